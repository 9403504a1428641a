"""The way to a server: TLS files and the API key, and where they come from."""

from pathlib import Path

import pytest

from service.cli.options import Connection, bundle_dir
from service.client.channel import ClientConfig, TlsOptions


@pytest.fixture(autouse=True)
def no_key(monkeypatch) -> None:
    monkeypatch.delenv("DRAGOMAN_API_KEY", raising=False)


@pytest.mark.parametrize(
    ("given", "tls"),
    [
        ({}, None),
        ({"tls": True}, TlsOptions()),
        ({"ca": Path("ca.pem")}, TlsOptions(root_certificates=Path("ca.pem"))),
        (
            {"cert": Path("cert.pem"), "key": Path("key.pem")},
            TlsOptions(certificate_chain=Path("cert.pem"), private_key=Path("key.pem")),
        ),
    ],
)
def test_tls_is_used_where_it_is_asked_for_or_files_are_given(given, tls):
    assert Connection(**given).client_config() == ClientConfig(tls=tls)


@pytest.mark.parametrize("half", [{"cert": Path("cert.pem")}, {"key": Path("key.pem")}])
def test_half_an_identity_is_refused(half):
    with pytest.raises(ValueError, match="--cert and --key"):
        Connection(**half)


def test_the_key_comes_from_the_environment_or_a_file_and_the_file_wins(monkeypatch, tmp_path):
    monkeypatch.setenv("DRAGOMAN_API_KEY", "of the environment")
    (tmp_path / "key").write_text("of the file\nanything\n")

    assert Connection().client_config().api_key == "of the environment"
    assert Connection(api_key_file=tmp_path / "key").client_config().api_key == "of the file"


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"\n", "has no API key in its first line"), (b"a\xff", "key is not valid UTF-8 at byte 1")],
)
def test_a_file_that_holds_no_key_is_refused(tmp_path, content, message):
    (tmp_path / "key").write_bytes(content)

    with pytest.raises(ValueError, match=message):
        Connection(api_key_file=tmp_path / "key").client_config()


def test_a_bundle_without_a_name_is_refused_and_no_server_is_called_instead():
    with pytest.raises(ValueError, match="--bundle is empty"):
        bundle_dir("")
