"""The client's settings and connection: what comes from the environment, the retry policy, the pauses."""

import json
from dataclasses import fields
from itertools import product
from pathlib import Path

import pytest

from service.client.channel import (
    PUBLISHED,
    Backoff,
    ClientConfig,
    TlsOptions,
    call_metadata,
    config_from_environment,
    credentials,
    service_config,
)


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
        ({}, None),
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
    assert config_from_environment(variables) == ClientConfig(tls=tls)


def test_what_cannot_be_meant_as_tls_is_refused():
    with pytest.raises(ValueError, match="DRAGOMAN_TLS is 'yes': 0 or 1 is accepted"):
        config_from_environment({"DRAGOMAN_TLS": "yes"})
    with pytest.raises(ValueError, match="need each other"):
        credentials(TlsOptions(certificate_chain=Path("c.pem")))


def test_the_published_policy_is_sent_as_it_is_or_not_at_all():
    (method,) = json.loads(service_config(retries=False))["methodConfig"]

    assert json.loads(service_config(retries=True)) == PUBLISHED
    assert "retryPolicy" not in method


def test_pauses_grow_to_the_largest_and_begin_anew_after_a_success():
    backoff = Backoff()

    pauses = [backoff.next_s() for _ in range(2_000)]
    backoff.reset()

    for pause, middle in zip(pauses, [0.2, 0.6, 1.8, 5.0, 5.0], strict=False):
        assert pause == pytest.approx(middle, rel=0.2001)
    assert max(pauses) <= 6.0
    assert backoff.next_s() <= 0.24
    assert backoff.next_s(at_least_s=30.0) == 30.0


def test_every_number_of_a_client_has_bounds():
    names = [field.name for field in fields(ClientConfig) if field.type in ("int", "float", int, float)]

    assert names
    for name, number in product(names, (float("inf"), float("nan"), -1.0, 0, 9e9)):
        with pytest.raises(ValueError, match=rf"^{name} is .*, from .* to .* is accepted"):
            ClientConfig(**{name: number})  # type: ignore[arg-type]  # numbers alone


@pytest.mark.parametrize(
    "content", [b"", b"\xff\x00", b"no certificate", b"-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n"]
)
def test_a_file_that_holds_no_certificate_is_named_before_anything_is_called(tmp_path, content):
    file = tmp_path / "c.pem"
    file.write_bytes(content)

    with pytest.raises(ValueError, match=r"c\.pem has no certificate in PEM"):
        credentials(TlsOptions(root_certificates=file))
    with pytest.raises(ValueError, match=r"c\.pem and .*c\.pem are no certificate and its private key"):
        credentials(TlsOptions(certificate_chain=file, private_key=file))
