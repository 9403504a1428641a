"""Certificates of the server: which files are taken, when they are looked at, and what a broken one does."""

import errno
import json
import os
import ssl
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from service.api.grpc.server import ServerTls, server_tls, warn_of_open_ports
from service.config import ConfigError, ListenConfig, SecurityConfig, ServerConfig
from tests.fakes.certificates import Authority, Pair
from tests.fakes.clock import Clock
from tests.fakes.logs import log

__all__ = ["log"]


def too_many_open_files(*_: object, **__: object) -> None:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "ours")


@pytest.fixture
def pair(authority: Authority) -> Pair:
    return authority.issue("server")


def settings_of(pair: Pair) -> SecurityConfig:
    return SecurityConfig(tls_certificate=pair.certificate, tls_key=pair.key)


class TestFiles:
    def test_key_with_a_password_is_refused_and_nobody_is_asked_for_it(self, pair):
        key = load_pem_private_key(pair.key.read_bytes(), None)
        locked = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))
        pair.key.write_bytes(locked)

        with pytest.raises(ConfigError, match="holds no private key in PEM without a password"):
            server_tls(settings_of(pair))

    @pytest.mark.parametrize(
        ("settings", "problem"),
        [
            ({"tls_certificate": Path("a")}, "security.tls_key is not set"),
            ({"tls_key": Path("a")}, "security.tls_certificate is not set"),
            ({"tls_client_ca": Path("a")}, "security.tls_certificate is not set"),
        ],
    )
    def test_a_setting_without_its_partner_is_refused(self, settings, problem):
        with pytest.raises(ConfigError, match=problem):
            server_tls(SecurityConfig(**settings))


def test_a_broken_pair_keeps_the_old_one_until_it_is_whole(pair, authority, log):
    """As when the key is replaced a while after its certificate."""
    clock, later = Clock(), authority.issue("next")
    tls = ServerTls(settings_of(pair), clock)
    old = tls.certificates()

    pair.certificate.write_bytes(later.certificate.read_bytes())
    clock.now = 10.0
    assert tls.certificates() is old
    pair.key.write_bytes(later.key.read_bytes())
    clock.now = 20.0

    assert tls.certificates() is not old
    assert [json.loads(line)["event"] for line in log.getvalue().splitlines()] == ["tls_not_reloaded", "tls_reloaded"]


def test_files_that_openssl_cannot_open_keep_the_old_ones(pair, authority, monkeypatch):
    clock = Clock()
    tls = ServerTls(settings_of(pair), clock)
    old = tls.certificates()
    pair.replace(authority.issue("next"))
    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", too_many_open_files)

    clock.now = 10.0

    assert tls.certificates() is old


@pytest.mark.parametrize(
    ("host", "settings", "is_warned"),
    [
        ("0.0.0.0", {"api_keys": Path("keys")}, True),
        ("0.0.0.0", {"api_keys": Path("keys"), "tls_certificate": Path("a")}, False),
        ("0.0.0.0", {}, False),
        ("127.0.0.2", {"api_keys": Path("keys")}, False),
    ],
)
def test_keys_that_everybody_on_the_way_can_read_are_warned_of(log, host, settings, is_warned):
    config = ServerConfig(listen=ListenConfig(grpc_host=host), security=SecurityConfig(**settings))

    warn_of_open_ports(config)

    assert ("api_keys_without_tls" in log.getvalue()) is is_warned


@pytest.mark.parametrize(("is_served", "is_warned"), [(True, True), (False, False)])
def test_keys_on_the_http_port_are_warned_of_also_with_a_certificate(log, is_served, is_warned):
    listen = ListenConfig(http_host="0.0.0.0", http=is_served)
    security = SecurityConfig(api_keys=Path("keys"), tls_certificate=Path("a"))

    warn_of_open_ports(ServerConfig(listen=listen, security=security))

    assert ("api_keys_without_tls" in log.getvalue()) is is_warned


@pytest.mark.parametrize(
    ("listen", "settings", "warnings"),
    [
        ({}, {}, set()),
        ({"admin_host": "127.0.0.1"}, {}, set()),
        ({"admin_host": "0.0.0.0"}, {}, {"admin_port_open"}),
        ({"admin_host": "0.0.0.0"}, {"tls_certificate": Path("a")}, {"admin_port_open"}),
        ({"admin_host": "0.0.0.0"}, {"tls_certificate": Path("a"), "tls_client_ca": Path("b")}, set()),
        ({"admin_host": "0.0.0.0"}, {"api_keys": Path("k")}, {"api_keys_without_tls"}),
    ],
)
def test_admin_port_that_strangers_reach_is_warned_of(log, listen, settings, warnings):
    config = ServerConfig(listen=ListenConfig(**{"admin_port": 50_052, **listen}), security=SecurityConfig(**settings))

    warn_of_open_ports(config)

    events = [json.loads(line) for line in log.getvalue().splitlines()]
    assert {event["event"] for event in events} == warnings
    assert all(event["admin_host"] == "0.0.0.0" for event in events)


def test_each_port_has_credentials_of_its_own(pair):
    tls = ServerTls(settings_of(pair))

    assert tls.credentials() is not tls.credentials()
