"""A gRPC server's port, and what a connection may do.

gRPC shares a taken port silently unless told otherwise, and explains failures in many lines; a probe says it in one.
"""

from typing import TYPE_CHECKING

from service.addresses import Address, ListenError
from service.config import ServerConfig

if TYPE_CHECKING:  # gRPC takes long to load, and the engines start meanwhile
    import grpc.aio

    from service.api.grpc.tls import ServerTls

# Calls that gRPC has read and we have not looked at yet.  Beyond 1,000, gRPC's default, it resets some (CANCELLED), and
# a starved event loop is soon behind by so many; we refuse each with a status and a reason.
MAX_PENDING_CALLS = 10_000
# Between a client's pings; three faster ones are a flood, and its connection ends.  Half of what clients of Go and Java
# send at most, so that none is ended because its timer or the network was early.
MIN_PING_INTERVAL_S = 5.0


def add_grpc_port(
    server: "grpc.aio.Server", address: Address, tls: "ServerTls | None", purpose: str, *, is_shared: bool = False
) -> int:
    """Let `server` listen, encrypted where there is `tls`; return the port, a free one for 0, or raise ListenError.

    Args:
        is_shared: whether other processes of this server listen there, too.
    """
    if not is_shared:
        address.check_free(purpose)
    try:
        port: int = (
            server.add_secure_port(str(address), tls.credentials()) if tls else server.add_insecure_port(str(address))
        )
    except RuntimeError as error:
        raise ListenError(f"cannot listen on {address} ({purpose}): {error}") from error
    return port


def grpc_options(config: ServerConfig, *, is_shared: bool = False) -> list[tuple[str, int]]:
    """GRPC's channel arguments for these settings; `is_shared` as in `add_grpc_port`."""
    listen, limits = config.listen, config.limits
    options = [
        ("grpc.so_reuseport", int(is_shared)),  # else a taken port is an error
        ("grpc.max_receive_message_length", limits.max_message_bytes),
        ("grpc.max_send_message_length", -1),  # answers are bounded by texts x hypotheses x tokens
        ("grpc.max_metadata_size", listen.max_metadata_bytes),
        ("grpc.absolute_max_metadata_size", listen.max_metadata_bytes),  # else up to twice as much, by chance
        ("grpc.max_concurrent_streams", listen.max_streams_per_connection),
        ("grpc.server.max_pending_requests", MAX_PENDING_CALLS),
        ("grpc.server.max_pending_requests_hard_limit", MAX_PENDING_CALLS),
        ("grpc.server_handshake_timeout_ms", _ms(listen.keepalive_timeout_s)),  # TLS and the first frame of HTTP/2
        ("grpc.keepalive_time_ms", _ms(listen.keepalive_time_s)),
        ("grpc.keepalive_timeout_ms", _ms(listen.keepalive_timeout_s)),
        ("grpc.http2.ping_timeout_ms", _ms(listen.keepalive_timeout_s)),  # gRPC's own is a minute
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),  # no limit to our own: a long silent call is watched to its end
        ("grpc.http2.min_ping_interval_without_data_ms", _ms(MIN_PING_INTERVAL_S)),
        ("grpc.max_connection_idle_ms", _ms(listen.max_connection_idle_s)),
    ]
    if listen.max_connection_age_s is not None:
        longest_call_s = max(limits.max_request_seconds, limits.max_stream_seconds)
        options.append(("grpc.max_connection_age_ms", _ms(listen.max_connection_age_s)))
        options.append(("grpc.max_connection_age_grace_ms", _ms(longest_call_s)))
    return options


def _ms(seconds: float) -> int:
    return round(seconds * 1e3)
