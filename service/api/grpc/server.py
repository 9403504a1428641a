"""A gRPC server's ports: what a connection may do, and its encryption, whose files are replaced without a restart.

gRPC shares a taken port silently unless told otherwise, and explains failures in many lines; a probe says it in one.
It asks at the beginning of every connection for new files, in a thread of its own.  New ones are taken if they fit each
other; else the old ones stay, one line says why, and they are tried again.  Connections that are open stay.
"""

import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from service.addresses import Address, ListenError, is_loopback
from service.config import ConfigError, SecurityConfig, ServerConfig
from service.telemetry.logs import get_logger
from service.watched_files import WatchedFiles

# Calls that gRPC has read and we have not looked at yet.  Beyond 1,000, gRPC's default, it resets some (CANCELLED), and
# a starved event loop is soon behind by so many; we refuse each with a status and a reason.
MAX_PENDING_CALLS = 10_000
# Between a client's pings; three faster ones are a flood, and its connection ends.  Half of what clients of Go and Java
# send at most, so that none is ended because its timer or the network was early.
MIN_PING_INTERVAL_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """PEM files."""

    certificate: Path  # the server's, then those that lead to its authority
    key: Path
    client_ca: Path | None = None  # who may sign the clients' certificates; None: clients need none


@dataclass(frozen=True, slots=True)
class TlsMaterial:
    """What the files held at one moment; the parts fit each other."""

    certificate: bytes
    key: bytes = field(repr=False)
    client_ca: bytes | None


def read_material(files: TlsFiles) -> TlsMaterial:
    """Return the content of the files, or raise ConfigError with the setting, the file and the problem in one line."""
    material = _read(files)
    # OpenSSL, which speaks plainly, says what gRPC would not like.
    for setting, file in (("tls_certificate", files.certificate), ("tls_client_ca", files.client_ca)):
        try:
            if file:
                ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(file)
        except ssl.SSLError:
            raise ConfigError(f"security.{setting}: {file} holds no certificate in PEM") from None
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        # Without a function for the password, OpenSSL would ask for it on the terminal.
        context.load_cert_chain(files.certificate, files.key, password=lambda: "")
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            problem = f"{files.key} is not the key of {files.certificate}"
        else:
            problem = f"{files.key} holds no private key in PEM without a password"
        raise ConfigError(f"security.tls_key: {problem}") from None
    if _read(files) != material:
        raise ConfigError(f"security.tls_certificate: {files.certificate} or its key changed while they were read")
    return material


def _read(files: TlsFiles) -> TlsMaterial:
    def bytes_of(file: Path, setting: str) -> bytes:
        try:
            return file.read_bytes()
        except OSError as error:
            raise ConfigError(f"security.{setting}: {file} cannot be read: {error.strerror}") from error

    return TlsMaterial(
        bytes_of(files.certificate, "tls_certificate"),
        bytes_of(files.key, "tls_key"),
        bytes_of(files.client_ca, "tls_client_ca") if files.client_ca else None,
    )


class ServerTls:
    """The newest good material of the files; may be asked from any thread."""

    def __init__(self, files: TlsFiles, *, period_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        """Read the files; the first connection that comes `period_s` after a change notices it."""
        self._needs_client = files.client_ca is not None
        self._watched = WatchedFiles(
            [path for path in (files.certificate, files.key, files.client_ca) if path],
            lambda: read_material(files),
            name="tls",
            facts=lambda _: {"certificate": str(files.certificate)},
            period_s=period_s,
            clock=clock,
        )

    def material(self) -> TlsMaterial:
        """Return what a connection that begins now is to use."""
        return self._watched.current()

    def credentials(self) -> grpc.ServerCredentials:
        """Return credentials for one port, which follow the files."""
        in_use = self.material()

        def newer() -> grpc.ServerCertificateConfiguration | None:
            nonlocal in_use
            material = self.material()
            if material is in_use:
                return None
            in_use = material
            return _configuration(material)

        fetcher: Any = newer  # the type stubs do not know that it may return None
        return grpc.dynamic_ssl_server_credentials(_configuration(in_use), fetcher, self._needs_client)


def _configuration(material: TlsMaterial) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration(
        [(material.key, material.certificate)], root_certificates=material.client_ca
    )


def server_tls(config: SecurityConfig) -> ServerTls | None:
    """Return what the settings ask for (None: no encryption), or raise ConfigError."""
    certificate, key, client_ca = config.tls_certificate, config.tls_key, config.tls_client_ca
    if certificate is None and key is None and client_ca is None:
        return None
    if certificate is None or key is None:
        missing = "tls_certificate" if certificate is None else "tls_key"
        raise ConfigError(f"security.{missing} is not set: TLS needs tls_certificate and tls_key")
    return ServerTls(TlsFiles(certificate=certificate, key=key, client_ca=client_ca), period_s=config.reload_s)


def add_grpc_port(
    server: grpc.aio.Server, address: Address, tls: ServerTls | None, purpose: str, *, is_shared: bool = False
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
