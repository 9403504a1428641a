"""Settings of TLS that need each other, and ports that are open to strangers."""

import json
from pathlib import Path

import pytest

from service.api.grpc.server import server_tls, warn_of_open_ports
from service.config import ConfigError, ListenConfig, SecurityConfig, ServerConfig
from tests.fakes.logs import log

__all__ = ["log"]


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"tls_certificate": Path("a")}, "security.tls_key is not set"),
        ({"tls_key": Path("a")}, "security.tls_certificate is not set"),
        ({"tls_client_ca": Path("a")}, "security.tls_certificate is not set"),
    ],
)
def test_a_setting_without_its_partner_is_refused(settings, problem):
    with pytest.raises(ConfigError, match=problem):
        server_tls(SecurityConfig(**settings))


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
