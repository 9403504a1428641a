"""Addresses that cannot be listened on, and settings of connections as options of gRPC.

gRPC ignores an option that it does not know, and says nothing.
"""

import ast
import re
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from grpc._cython import cygrpc  # type: ignore[attr-defined]

from service.addresses import Address, ListenError, check_free
from service.api.grpc import server
from service.api.grpc.server import grpc_options
from service.config import LimitsConfig, ListenConfig, ServerConfig
from tests.fakes.calls import eventually
from tests.fakes.http2_peer import ENHANCE_YOUR_CALM, Peer, ping_frame

SERVICE = Path(server.__file__).parents[1]
LISTEN: list[tuple[dict[str, Any], str, int]] = [
    ({"keepalive_time_s": 1.5}, "grpc.keepalive_time_ms", 1_500),
    ({"keepalive_timeout_s": 2.5}, "grpc.keepalive_timeout_ms", 2_500),
    ({"keepalive_timeout_s": 2.5}, "grpc.server_handshake_timeout_ms", 2_500),
    ({"max_metadata_bytes": 2_000}, "grpc.absolute_max_metadata_size", 2_000),
    ({"max_streams_per_connection": 3}, "grpc.max_concurrent_streams", 3),
    ({"max_connection_age_s": 9.0}, "grpc.max_connection_age_ms", 9_000),
]


@pytest.mark.parametrize(
    ("config", "option", "value"),
    [
        (ServerConfig(), "grpc.so_reuseport", 0),
        (ServerConfig(limits=LimitsConfig(max_message_bytes=5_000)), "grpc.max_receive_message_length", 5_000),
        *((ServerConfig(listen=ListenConfig(**settings)), option, value) for settings, option, value in LISTEN),
        (
            ServerConfig(listen=ListenConfig(max_connection_age_s=9.0), limits=LimitsConfig(max_stream_seconds=70.0)),
            "grpc.max_connection_age_grace_ms",  # the longest call of all
            70_000,
        ),
    ],
)
def test_setting_reaches_grpc(config, option, value):
    assert dict(grpc_options(config))[option] == value


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


@pytest.mark.parametrize("interval_s", [0.0, 60.0])
async def test_the_interval_between_a_clients_pings_is_in_force(monkeypatch, interval_s):
    monkeypatch.setattr("service.api.grpc.server.MIN_PING_INTERVAL_S", interval_s)
    server = grpc.aio.server(options=grpc_options(ServerConfig()))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    with Peer(port) as peer:
        peer.send(ping_frame() * 10)

        if interval_s:
            assert await peer.farewell() == (ENHANCE_YOUR_CALM, b"too_many_pings")
        else:
            await eventually(lambda: peer.num_answered == 10)
            assert not peer.is_closed.is_set()
    await server.stop(0)
