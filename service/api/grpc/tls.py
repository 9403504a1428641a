"""TLS of the gRPC ports: certificate, key and the authority of clients, replaced without a restart.

gRPC asks at the beginning of every connection for new files, in a thread of its own.  New ones are taken if they
fit each other; else the old ones stay, one line says why, and they are tried again.  Connections that are open stay.
"""

import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from service.addresses import is_loopback
from service.config import ConfigError, SecurityConfig, ServerConfig
from service.telemetry.logs import get_logger
from service.watched_files import WatchedFiles


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
