"""Ports of gRPC: addresses, options of connections, settings of TLS, and what strangers could reach."""

import ast
import json
import re
from pathlib import Path

import pytest
from grpc._cython import cygrpc  # type: ignore[attr-defined]

from service.addresses import Address, ListenError, check_free
from service.api.grpc import server
from service.api.grpc.server import grpc_options, server_tls, warn_of_open_ports
from service.config import ConfigError, ListenConfig, SecurityConfig, ServerConfig
from tests.fakes.logs import log

__all__ = ["log"]

SERVICE = Path(server.__file__).parents[1]


def test_address_of_another_machine_is_refused_by_name():
    with pytest.raises(
        ListenError, match=r"192\.0\.2\.1:0 \(listen.grpc_port\): Cannot assign requested address; the machine has"
    ):
        check_free({"listen.grpc_port": Address("192.0.2.1", 0)})  # RFC 5737: nobody's


def argument_names() -> set[str]:
    """Every channel argument that a file of the service names."""
    literals = {
        node.value
        for path in SERVICE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    return {name for name in literals if re.fullmatch(r"grpc\.(?!health|reflection)[a-z0-9_.]+", name)}


def test_grpc_knows_every_channel_argument_that_is_set():
    library = Path(cygrpc.__file__).read_bytes()
    names = argument_names()

    assert {name for name, _ in grpc_options(ServerConfig())} < names
    assert [name for name in sorted(names) if name.encode() + b"\0" not in library] == []


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
