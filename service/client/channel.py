"""How the client connects: address, TLS, API key, keepalive, balancing and the retry policy, as gRPC wants them.

Knows no call and no message.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import grpc.aio

from service.client.retry import RetryPolicy, service_config

DEFAULT_ADDRESS = "127.0.0.1:50051"

# A request is kept for sending again while it fits here; grpc's own default of 256 KiB is less than 64 long texts.
_RETRY_BUFFER_BYTES = 4 << 20

ChannelOption = tuple[str, int | str]
Metadata = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsOptions:
    """PEM files; every one of them is optional."""

    root_certificates: Path | None = None  # who may sign the server's certificate; None: the system's authorities
    private_key: Path | None = None  # with certificate_chain: who this client is
    certificate_chain: Path | None = None
    server_name: str | None = None  # name in the server's certificate where it differs from the address


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """Everything a client can be told."""

    timeout_s: float = 60.0  # deadline of a call that names none
    wait_for_ready: bool = True  # a server that is not there yet is waited for, within the deadline
    keepalive_time_s: float = 60.0  # a silent connection with a call under way is pinged after this ...
    keepalive_timeout_s: float = 20.0  # ... and given up when nothing comes back within this
    max_message_bytes: int = 16 << 20  # one answer
    batch_size: int = 32  # texts per call of `translate_all`
    max_calls: int = 4  # calls of one `translate_all` under way at the same time
    # Of one text, in UTF-8; a larger one fails without being sent.  Servers accept messages of 4 MiB by default.
    max_text_bytes: int = (4 << 20) - (4 << 10)  # 4 KiB are left for names and options
    max_stream_texts: int = 128  # of one `translate_stream`: taken from its texts and not answered yet
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    tls: TlsOptions | None = None  # None: no encryption
    api_key: str | None = field(default=None, repr=False)  # without TLS everybody on the way can read it

    def __post_init__(self) -> None:
        if self.api_key is not None and not (self.api_key.isascii() and self.api_key.isprintable()):
            raise ValueError("api_key has characters that no API key has")
        for name in ("timeout_s", "batch_size", "max_calls", "max_text_bytes", "max_stream_texts"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} is {getattr(self, name)}, more than 0 is needed")


def config_from_environment(environment: Mapping[str, str] = os.environ) -> ClientConfig:
    """The defaults, with the API key and TLS of these variables, so that keys need not be on a command line.

    DRAGOMAN_API_KEY; DRAGOMAN_TLS=1 for TLS with the authorities of the system, or what `TlsOptions` has:
    DRAGOMAN_TLS_CA, DRAGOMAN_TLS_CLIENT_CERTIFICATE, DRAGOMAN_TLS_CLIENT_KEY, DRAGOMAN_TLS_SERVER_NAME.

    Raises:
        ValueError: a value that cannot be meant.
    """
    tls = TlsOptions(
        root_certificates=_path(environment.get("DRAGOMAN_TLS_CA")),
        private_key=_path(environment.get("DRAGOMAN_TLS_CLIENT_KEY")),
        certificate_chain=_path(environment.get("DRAGOMAN_TLS_CLIENT_CERTIFICATE")),
        server_name=environment.get("DRAGOMAN_TLS_SERVER_NAME") or None,
    )
    wanted = environment.get("DRAGOMAN_TLS", "")
    if wanted not in ("", "0", "1"):
        raise ValueError(f"DRAGOMAN_TLS is {wanted!r}: 0 or 1 is accepted")
    has_tls = wanted == "1" or (wanted == "" and tls != TlsOptions())
    return ClientConfig(tls=tls if has_tls else None, api_key=environment.get("DRAGOMAN_API_KEY") or None)


def call_metadata(config: ClientConfig) -> Metadata:
    """What every call sends beside its request."""
    return () if config.api_key is None else (("authorization", f"Bearer {config.api_key}"),)


def channel_options(config: ClientConfig) -> Sequence[ChannelOption]:
    """The channel arguments for `grpc.insecure_channel` and its siblings."""
    options: list[ChannelOption] = [
        ("grpc.service_config", service_config(config.retry)),
        ("grpc.enable_retries", 1),
        ("grpc.per_rpc_retry_buffer_size", _RETRY_BUFFER_BYTES),
        # A server that is just starting is found soon after it listens; grpc's own first pause is a second.
        ("grpc.initial_reconnect_backoff_ms", 200),
        ("grpc.max_reconnect_backoff_ms", 5_000),
        ("grpc.keepalive_time_ms", round(config.keepalive_time_s * 1_000)),
        ("grpc.keepalive_timeout_ms", round(config.keepalive_timeout_s * 1_000)),
        ("grpc.http2.ping_timeout_ms", round(config.keepalive_timeout_s * 1_000)),  # gRPC's own is a minute
        ("grpc.max_receive_message_length", config.max_message_bytes),
    ]
    if config.tls is not None and config.tls.server_name is not None:
        options.append(("grpc.ssl_target_name_override", config.tls.server_name))
    return options


def open_channel(address: str, config: ClientConfig) -> grpc.Channel:
    """A channel with everything of these settings but what each call brings: deadline and key.

    Raises:
        OSError, ValueError: see `credentials`.
    """
    if config.tls is None:
        return grpc.insecure_channel(address, channel_options(config))
    return grpc.secure_channel(address, credentials(config.tls), channel_options(config))


def open_aio_channel(address: str, config: ClientConfig) -> grpc.aio.Channel:
    """As `open_channel`, for the event loop that is running.

    Raises:
        OSError, ValueError: see `credentials`.
    """
    if config.tls is None:
        return grpc.aio.insecure_channel(address, channel_options(config))
    return grpc.aio.secure_channel(address, credentials(config.tls), channel_options(config))


def credentials(tls: TlsOptions) -> grpc.ChannelCredentials:
    """The credentials these files hold.

    Raises:
        OSError: a file cannot be read.
        ValueError: a certificate without its key, or the other way round.
    """
    if (tls.private_key is None) != (tls.certificate_chain is None):
        raise ValueError("private_key and certificate_chain need each other")
    return grpc.ssl_channel_credentials(
        root_certificates=_bytes_of(tls.root_certificates),
        private_key=_bytes_of(tls.private_key),
        certificate_chain=_bytes_of(tls.certificate_chain),
    )


def _path(written: str | None) -> Path | None:
    return Path(written) if written else None


def _bytes_of(path: Path | None) -> bytes | None:
    return None if path is None else path.read_bytes()
