"""Addresses that cannot be listened on, and settings of connections as options of gRPC."""

from typing import Any

import pytest

from service.addresses import Address, ListenError
from service.config import LimitsConfig, ListenConfig, ServerConfig
from service.grpc.listening import grpc_options

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
    with pytest.raises(ListenError, match=r"192\.0\.2\.1:0 \(gRPC\): Cannot assign requested address$"):
        Address("192.0.2.1", 0).check_free("gRPC")  # RFC 5737: nobody's
