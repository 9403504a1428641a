"""The client's connection: what of it comes from the environment, and what is refused."""

from pathlib import Path

import pytest

from service.client.channel import ClientConfig, TlsOptions, call_metadata, config_from_environment, credentials


def test_environment_without_variables_gives_the_defaults():
    assert config_from_environment({}) == ClientConfig()


def test_key_is_sent_as_a_bearer_s_and_never_described():
    config = config_from_environment({"DRAGOMAN_API_KEY": "geheim"})

    assert call_metadata(config) == (("authorization", "Bearer geheim"),)
    assert "geheim" not in repr(config)
    assert call_metadata(ClientConfig()) == ()


@pytest.mark.parametrize("key", ["a\nb", "ä", "a\x00"])
def test_key_that_no_header_carries_is_refused_without_being_repeated(key):
    with pytest.raises(ValueError, match=r"^api_key has characters that no API key has$"):
        ClientConfig(api_key=key)


@pytest.mark.parametrize(
    ("variables", "tls"),
    [
        ({"DRAGOMAN_TLS": "1"}, TlsOptions()),
        ({"DRAGOMAN_TLS_CA": "ca.pem"}, TlsOptions(root_certificates=Path("ca.pem"))),
        (
            {"DRAGOMAN_TLS_CLIENT_CERTIFICATE": "c.pem", "DRAGOMAN_TLS_CLIENT_KEY": "c.key"},
            TlsOptions(certificate_chain=Path("c.pem"), private_key=Path("c.key")),
        ),
        ({"DRAGOMAN_TLS_SERVER_NAME": "x.example"}, TlsOptions(server_name="x.example")),
        ({"DRAGOMAN_TLS": "0", "DRAGOMAN_TLS_CA": "ca.pem"}, None),
        ({"DRAGOMAN_TLS": "", "DRAGOMAN_TLS_CA": ""}, None),
    ],
)
def test_tls_comes_from_the_environment(variables, tls):
    assert config_from_environment(variables).tls == tls


def test_tls_is_on_or_off():
    with pytest.raises(ValueError, match="DRAGOMAN_TLS is 'yes': 0 or 1 is accepted"):
        config_from_environment({"DRAGOMAN_TLS": "yes"})


def test_certificate_without_its_key_is_refused():
    with pytest.raises(ValueError, match="need each other"):
        credentials(TlsOptions(certificate_chain=Path("c.pem")))
