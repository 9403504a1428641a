"""`serve --demo`: how it calls the server that it belongs to."""

from pathlib import Path

import pytest

from service.cli.demo import client_config, demonstration, own_address
from service.client.channel import ClientConfig, TlsOptions
from service.config import ListenConfig, SecurityConfig, ServerConfig

CERTIFICATE, KEY = Path("chain.pem"), Path("key.pem")
SECURED = ServerConfig(security=SecurityConfig(tls_certificate=CERTIFICATE, tls_key=KEY))


@pytest.fixture(autouse=True)
def no_key(monkeypatch) -> None:
    monkeypatch.delenv("DRAGOMAN_API_KEY", raising=False)


def test_an_open_server_is_called_without_tls_whatever_the_environment_says(monkeypatch):
    monkeypatch.setenv("DRAGOMAN_TLS", "1")

    assert client_config(ServerConfig()) == ClientConfig()


def test_a_server_s_own_certificate_is_trusted():
    assert client_config(SECURED).tls == TlsOptions(root_certificates=CERTIFICATE)


def test_key_authority_and_name_come_from_the_environment(monkeypatch):
    monkeypatch.setenv("DRAGOMAN_API_KEY", "k")
    monkeypatch.setenv("DRAGOMAN_TLS_CA", "ca.pem")
    monkeypatch.setenv("DRAGOMAN_TLS_SERVER_NAME", "mt.example")

    config = client_config(SECURED)

    assert config.api_key == "k"
    assert config.tls == TlsOptions(root_certificates=Path("ca.pem"), server_name="mt.example")


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("127.0.0.1", "127.0.0.1:50051"),
        ("0.0.0.0", "127.0.0.1:50051"),
        ("::1", "[::1]:50051"),
        ("::", "[::1]:50051"),
        ("localhost", "localhost:50051"),
    ],
)
def test_a_server_is_called_where_it_listens(host, address):
    assert own_address(ServerConfig(listen=ListenConfig(grpc_host=host, grpc_port=50051))) == address


def test_port_that_nobody_knows_yet_is_refused():
    config = ServerConfig(listen=ListenConfig(grpc_port=0))

    with pytest.raises(ValueError, match="--demo"), demonstration("The cat sleeps.", config):
        pytest.fail("the server was started")
    with demonstration(None, config):
        pass
