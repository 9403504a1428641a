"""A gRPC server's ports: what a connection may do, and its encryption, whose files are replaced without a restart.

gRPC shares a taken port silently unless told otherwise, and explains failures in many lines; a probe says it in one.
It asks at the beginning of every connection for new files, in a thread of its own.  New ones are taken if they fit each
other; else the old ones stay, one line says why, and they are tried again.  Connections that are open stay.
"""

import ssl
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from service.addresses import Address, ListenError, check_free, is_loopback
from service.config import ConfigError, SecurityConfig, ServerConfig
from service.telemetry.logs import get_logger
from service.watched_files import WatchedFiles, read_again

# Calls that gRPC has read and we have not looked at yet.  Beyond 1,000, gRPC's default, it resets some (CANCELLED), and
# a starved event loop is soon behind by so many; we refuse each with a status and a reason.
MAX_PENDING_CALLS = 10_000
# Between a client's pings; three faster ones are a flood, and its connection ends.  Half of what clients of Go and Java
# send at most, so that none is ended because its timer or the network was early.
MIN_PING_INTERVAL_S = 5.0


class ServerTls:
    """The newest good certificates of the files in the settings; may be asked from any thread."""

    def __init__(self, config: SecurityConfig, clock: Callable[[], float] = time.monotonic) -> None:
        """Read the files, or raise ConfigError; the first connection `reload_s` after a change notices it."""
        self._needs_client = config.tls_client_ca is not None
        files = _tls_files(config)
        self._watched = WatchedFiles(
            list(files.values()),
            lambda: _read_certificates(files),
            name="tls",
            facts=lambda _: {"certificate": str(files["tls_certificate"])},
            period_s=config.reload_s,
            clock=clock,
        )

    def certificates(self) -> grpc.ServerCertificateConfiguration:
        """Return what a connection that begins now is to use."""
        return self._watched.current()

    def credentials(self) -> grpc.ServerCredentials:
        """Return credentials for one port, which follow the files."""
        in_use = self.certificates()

        def newer() -> grpc.ServerCertificateConfiguration | None:
            nonlocal in_use
            before, in_use = in_use, self.certificates()
            return None if in_use is before else in_use

        fetcher: Any = newer  # the type stubs do not know that it may return None
        return grpc.dynamic_ssl_server_credentials(in_use, fetcher, self._needs_client)


def server_tls(config: SecurityConfig) -> ServerTls | None:
    """Return what the settings ask for (None: no encryption), or raise ConfigError."""
    return ServerTls(config) if _tls_files(config) else None


def _tls_files(config: SecurityConfig) -> dict[str, Path]:
    """Return the PEM files by their settings; certificate and key are there together, or ConfigError is raised."""
    names = ("tls_certificate", "tls_key", "tls_client_ca")
    files = {name: file for name in names if (file := getattr(config, name)) is not None}
    for name in names[:2]:
        if files and name not in files:
            raise ConfigError(f"security.{name} is not set: TLS needs tls_certificate and tls_key")
    return files


def _read_certificates(files: Mapping[str, Path]) -> grpc.ServerCertificateConfiguration:
    """Return the content of the files, or raise ConfigError with the setting, the file and the problem in one line."""
    content = _contents(files)
    # OpenSSL, which speaks plainly, says what gRPC would not like.
    for setting, file in files.items():
        try:
            if setting != "tls_key":
                ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(file)
        except ssl.SSLError:
            raise ConfigError(f"security.{setting}: {file} holds no certificate in PEM") from None
    certificate, key = files["tls_certificate"], files["tls_key"]
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        # Without a function for the password, OpenSSL would ask for it on the terminal.
        context.load_cert_chain(certificate, key, password=lambda: "")
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            problem = f"{key} is not the key of {certificate}"
        else:
            problem = f"{key} holds no private key in PEM without a password"
        raise ConfigError(f"security.tls_key: {problem}") from None
    if _contents(files) != content:
        raise ConfigError(f"security.tls_certificate: {certificate} or its key changed while they were read")
    return grpc.ssl_server_certificate_configuration(
        [(content["tls_key"], content["tls_certificate"])], root_certificates=content.get("tls_client_ca")
    )


def _contents(files: Mapping[str, Path]) -> dict[str, bytes]:
    return {setting: read_again(f"security.{setting}", file) for setting, file in files.items()}


def add_grpc_port(
    server: grpc.aio.Server, address: Address, tls: ServerTls | None, purpose: str, *, is_shared: bool = False
) -> int:
    """Let `server` listen, encrypted where there is `tls`; return the port, a free one for 0, or raise ListenError.

    Args:
        is_shared: whether other processes of this server listen there, too.
    """
    if not is_shared:
        check_free({purpose: address})
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


def warn_of_open_ports(config: ServerConfig) -> None:
    """Log what strangers could do where a port listens beyond this machine.

    API keys that travel unencrypted; a proxy with TLS in front makes that harmless.  Administration without a key and
    without a client's certificate; nothing makes that harmless.
    """
    listen, security = config.listen, config.security
    hosts = {"grpc_host": listen.grpc_host}
    if listen.admin_port is not None:
        hosts["admin_host"] = listen.admin_host
    hosts = {name: host for name, host in hosts.items() if not is_loopback(host)}
    without_tls = hosts if security.tls_certificate is None else {}
    if listen.http and not is_loopback(listen.http_host):  # which has none
        without_tls = {**without_tls, "http_host": listen.http_host}
    if without_tls and security.api_keys:
        get_logger().warning("api_keys_without_tls", **without_tls)
    if "admin_host" in hosts and security.api_keys is None and security.tls_client_ca is None:
        get_logger().warning("admin_port_open", admin_host=listen.admin_host)
