"""A client's settings, the address that it calls, and the gRPC channel that they make: TLS, key, keepalive, retries.

An address is checked before anything is called, and whether a proxy stands on the way: gRPC itself takes a port modulo
65,536 and waits for what no server can be; it sends calls to this machine's own addresses through a company's proxy,
too, where the environment names one.  `protos/service_config.json` is the retry policy, as gRPC takes it in every
language; its numbers stand nowhere else.  Knows no call and no message.
"""

import json
import os
import random
import re
import ssl
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from importlib.resources import files
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from service.ranges import BYTES, PORT, SECONDS, TEXTS, Range

# dns: may name the server that is to be asked.  Addresses of files have no port.
_SCHEME = re.compile(r"dns:(//[^/]*/)?|ipv[46]:", re.IGNORECASE)
_FILE = re.compile(r"unix(-abstract)?:", re.IGNORECASE)
_HOST_PORT = re.compile(r"(\[[0-9a-f:.]+(?:%\w+)?\]|[^\s\x00-\x1f:/@?#\[\]]+):([0-9]{1,5})", re.IGNORECASE)
_PROXY_VARIABLES = ("grpc_proxy", "https_proxy", "http_proxy")  # the first one that is set counts, as with gRPC
_EXCEPTION_VARIABLES = ("no_grpc_proxy", "no_proxy")


def checked_target(address: str) -> str:
    """Return the address; raises ValueError for one at which gRPC could not find a server.

    It is host:port, or a name of gRPC's: dns:///host:port, ipv4:host:port, ipv6:[host]:port, unix:/path.
    """
    _hosts(address)
    return address


def is_local(target: str) -> bool:
    """Whether this machine alone can be meant by a checked target."""
    return all(_is_local_host(host) for host in _hosts(target))


def proxy_on_the_way(target: str, environment: Mapping[str, str] = os.environ) -> str:
    """Return what to say of the proxy through which gRPC calls a checked target; empty without one.

    No call to this machine goes through one: see `open_aio_channel`.
    """
    name = next((name for name in _PROXY_VARIABLES if environment.get(name)), None)
    if name is None or is_local(target):
        return ""
    exceptions = next((environment[name] for name in _EXCEPTION_VARIABLES if environment.get(name)), "")
    if _is_excepted(_hosts(target)[0], exceptions):
        return ""
    _, _, without_scheme = environment[name].rpartition("://")
    _, _, where = without_scheme.rpartition("@")  # whoever reads the message need not know the password
    return f"through the proxy {where.rstrip('/')}, which the environment's {name} names; no_proxy excepts hosts"


def _hosts(address: str) -> list[str]:
    """Return the host of each host:port of an address, none of a file; raises ValueError for something else."""
    if _FILE.match(address):
        return []
    hosts = []
    for part in _SCHEME.sub("", address, count=1).split(","):
        found = _HOST_PORT.fullmatch(part)
        if found is None or not PORT.has(int(found[2])):
            raise ValueError(
                f"the server's address is {address!a}: host:port is needed, like 127.0.0.1:50051 or [::1]:50051, "
                f"with a port {PORT}"
            )
        hosts.append(found[1].strip("[]"))
    return hosts


def _is_local_host(host: str) -> bool:
    name = host.lower().removesuffix(".")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    address = _ip(name)
    return address is not None and (address.is_loopback or address.is_unspecified)


def _ip(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def _is_excepted(host: str, exceptions: str) -> bool:
    """Whether a list of names and networks excepts the host: as gRPC reads it, a name's end is enough."""
    address = _ip(host)
    for exception in map(str.strip, exceptions.split(",")):
        if exception and host.lower().endswith(exception.lower()):
            return True
        try:
            if address is not None and address in ip_network(exception, strict=False):
                return True
        except ValueError:
            continue
    return False


DEFAULT_ADDRESS = "127.0.0.1:50051"

# A request is kept for sending again while it fits here; grpc's own default of 256 KiB is less than 64 long texts.
_RETRY_BUFFER_BYTES = 4 << 20

PUBLISHED: dict[str, Any] = json.loads(files("protos").joinpath("service_config.json").read_text(encoding="utf-8"))
_POLICY: dict[str, Any] = PUBLISHED["methodConfig"][0]["retryPolicy"]
_NO_PROXY = ("grpc.enable_http_proxy", 0)
_INITIAL_BACKOFF_S, _MAX_BACKOFF_S = (
    float(_POLICY[name].removesuffix("s")) for name in ("initialBackoff", "maxBackoff")
)
_JITTER = 0.2  # a pause varies by this much, as gRPC's own do: clients that failed together do not return together

ChannelOption = tuple[str, int | str]
Metadata = tuple[tuple[str, str], ...]


# Of every number that a client can be told.
_RANGES = {
    "timeout_s": SECONDS,
    "keepalive_time_s": SECONDS,
    "keepalive_timeout_s": SECONDS,
    "max_message_bytes": BYTES,
    "batch_size": TEXTS,
    "max_calls": Range(least=1, most=10_000, unit="calls"),
    "max_text_bytes": BYTES,
    "max_stream_texts": TEXTS,
}


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
    retries: bool = True  # whether a call is sent again as the published policy has it
    tls: TlsOptions | None = None  # None: no encryption
    api_key: str | None = field(default=None, repr=False)  # without TLS everybody on the way can read it

    def __post_init__(self) -> None:
        if self.api_key is not None and not (self.api_key.isascii() and self.api_key.isprintable()):
            raise ValueError("api_key has characters that no API key has")
        for name, within in _RANGES.items():
            within.check(name, getattr(self, name))


def config_from_environment(environment: Mapping[str, str] = os.environ) -> ClientConfig:
    """Return the defaults with the API key and TLS of the environment, so that keys need not be on a command line.

    DRAGOMAN_API_KEY; DRAGOMAN_TLS=1 for TLS with the authorities of the system, or what `TlsOptions` has:
    DRAGOMAN_TLS_CA, DRAGOMAN_TLS_CLIENT_CERTIFICATE, DRAGOMAN_TLS_CLIENT_KEY, DRAGOMAN_TLS_SERVER_NAME.
    """
    names = ("DRAGOMAN_TLS_CA", "DRAGOMAN_TLS_CLIENT_KEY", "DRAGOMAN_TLS_CLIENT_CERTIFICATE")
    ca, key, certificate = (Path(environment[name]) if environment.get(name) else None for name in names)
    tls = TlsOptions(
        root_certificates=ca,
        private_key=key,
        certificate_chain=certificate,
        server_name=environment.get("DRAGOMAN_TLS_SERVER_NAME") or None,
    )
    wanted = environment.get("DRAGOMAN_TLS", "")
    if wanted not in ("", "0", "1"):
        raise ValueError(f"DRAGOMAN_TLS is {wanted!r}: 0 or 1 is accepted")
    has_tls = wanted == "1" or (wanted == "" and tls != TlsOptions())
    return ClientConfig(tls=tls if has_tls else None, api_key=environment.get("DRAGOMAN_API_KEY") or None)


def call_metadata(config: ClientConfig) -> Metadata:
    """Return what every call sends beside its request."""
    return () if config.api_key is None else (("authorization", f"Bearer {config.api_key}"),)


def channel_options(config: ClientConfig) -> Sequence[ChannelOption]:
    """Return the channel arguments for `grpc.insecure_channel` and its siblings."""
    options: list[ChannelOption] = [
        ("grpc.service_config", service_config(retries=config.retries)),
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


def open_direct_channel(address: str, config: ClientConfig) -> grpc.Channel:
    """Open a blocking channel, never through a proxy; each call brings its deadline and key.

    Raises:
        ValueError: the address is none.
    """
    options = [*channel_options(config), _NO_PROXY]
    if config.tls is None:
        return grpc.insecure_channel(checked_target(address), options)
    return grpc.secure_channel(checked_target(address), credentials(config.tls), options)


def open_aio_channel(address: str, config: ClientConfig) -> grpc.aio.Channel:
    """Open a channel for the event loop that is running; through a proxy if the environment names one for this host.

    To this machine itself it goes directly, whatever the environment says.

    Raises:
        ValueError: the address is none.
    """
    options = [*channel_options(config), *([_NO_PROXY] if is_local(checked_target(address)) else [])]
    if config.tls is None:
        return grpc.aio.insecure_channel(address, options)
    return grpc.aio.secure_channel(address, credentials(config.tls), options)


def credentials(tls: TlsOptions) -> grpc.ChannelCredentials:
    """Read the files and return gRPC's credentials.

    Raises:
        ValueError: a certificate or a key is without the other, or a file is not what it should be: gRPC would fail
            with each connection, and not say why.
        OSError: a file cannot be read.
    """
    if (tls.private_key is None) != (tls.certificate_chain is None):
        raise ValueError("private_key and certificate_chain need each other")
    files_of_tls = (tls.root_certificates, tls.private_key, tls.certificate_chain)
    contents = [None if file is None else file.read_bytes() for file in files_of_tls]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if tls.root_certificates is not None:
        try:
            context.load_verify_locations(tls.root_certificates)
        except ssl.SSLError as error:
            raise ValueError(f"{tls.root_certificates} has no certificate in PEM") from error
    if tls.certificate_chain is not None and tls.private_key is not None:
        try:
            context.load_cert_chain(tls.certificate_chain, tls.private_key, password="")  # or OpenSSL would ask for one
        except ssl.SSLError as error:
            pair = f"{tls.certificate_chain} and {tls.private_key}"
            raise ValueError(f"{pair} are no certificate and its private key, in PEM without a password") from error
    return grpc.ssl_channel_credentials(*contents)


def service_config(*, retries: bool) -> str:
    """Return the published service config as JSON, also without the policy of retries.

    RESOURCE_EXHAUSTED is sent again because Dragoman says with it how long to wait, CANCELLED because proxies and older
    servers that end reset what reaches them too late; a call that its caller cancels is not sent again.  A pushback
    from the server overrides the backoff, and a negative one ends it.  Each failure costs one token, each success earns
    back 0.5; below half of them nothing is sent again, so that a server in trouble is not buried under retries.
    """
    config = deepcopy(PUBLISHED)
    if not retries:
        del config["methodConfig"][0]["retryPolicy"]
    return json.dumps(config)


class Backoff:
    """Pauses that grow while nothing succeeds, as gRPC's between attempts; for what gRPC cannot repeat."""

    def __init__(self) -> None:
        self._pause_s = _INITIAL_BACKOFF_S

    def next_s(self, *, at_least_s: float = 0.0) -> float:
        """Return the seconds to wait after one more failure; `at_least_s` is what the server asked for."""
        pause_s = self._pause_s
        self._pause_s = min(pause_s * _POLICY["backoffMultiplier"], _MAX_BACKOFF_S)
        return max(at_least_s, pause_s * random.uniform(1 - _JITTER, 1 + _JITTER))

    def reset(self) -> None:
        self._pause_s = _INITIAL_BACKOFF_S
