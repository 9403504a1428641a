"""Authenticates calls: API keys, roles, and the identity of a caller without a key.

Decides from the method and the metadata alone, so before a byte of the request is read.  A key is sent as
`authorization: Bearer KEY`, or as `x-goog-api-key: KEY`, as Google's clients do; a protocol that has another place for
keys puts them there.  Health needs none, so that balancers can ask; dragoman.admin.v1 needs one with admin rights;
everything else, reflection and unknown methods included, needs any.  A caller without a key is the name that a trusted
proxy gives it, or the address that it calls from.

The file of keys holds no key, only SHA-256 digests.  A key is 256 random bits, so there is nothing to guess: a slow or
salted hash would protect nothing more, it would only let strangers make the server work.

    [[keys]]
    name = "shop"                       # who it is; an old key and its successor may share a name
    sha256 = "9f86d081..."              # of the key; `dragoman keys new` writes the entry
    priority = "interactive"            # the highest it may ask for; or "batch"
    weight = 1.0                        # its share beside others
    max_queued_tokens = 20000           # of its texts without an answer
    models = ["en-de"]                  # the only ones it may use; absent: all
    admin = false                       # may call dragoman.admin.v1 too
    expires = 2027-01-31T00:00:00Z      # good before this moment
"""

import hashlib
import hmac
import re
import secrets
import time
import tomllib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from datetime import time as time_of_day
from functools import cached_property, lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from pathlib import Path
from typing import Annotated, Literal, TypeAlias, cast
from urllib.parse import unquote

from annotated_types import Ge, Gt, Le
from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as checked_dataclass

from service.call import Caller
from service.config import ConfigError, SecurityConfig
from service.errors import PermissionDenied, Unauthenticated
from service.records import Priority
from service.telemetry.logs import printable
from service.watched_files import WatchedFiles, read_again

KEY_PREFIX = "dragoman_"  # lets scanners of repositories and logs recognise a leaked key
KEY_BYTES = 32
MAX_KEYS = 1_000  # each call is compared with all of them
_MAX_KEY_CHARACTERS = 256
AUTHORIZATION = "authorization"
GOOGLE_KEY = "x-goog-api-key"
KEY_HEADERS = (AUTHORIZATION, GOOGLE_KEY)
OPEN_METHODS = (  # need no key
    "grpc.health.v1.Health/",
    "inference.GRPCInferenceService/ServerLive",
    "inference.GRPCInferenceService/ServerReady",
)
_ADMIN = "dragoman.admin."
_SCHEMES = ("bearer", "deepl-auth-key")  # the second one is that of DeepL's clients
MAX_NAME_CHARACTERS = 128
_PEERS_KEPT = 1_024  # each is parsed once, not for every call
_IPV6_PREFIX = 64  # one customer's: every host of it can choose among 2**64 addresses
_VALID_HEADER = re.compile(r"[a-z0-9_.-]{1,64}")
_RESERVED = ("grpc-", "authorization", "x-api-key", "x-goog-api-key")

Metadata: TypeAlias = Iterable[tuple[str, str | bytes]]
IpAddress: TypeAlias = IPv4Address | IPv6Address


def _moment(expires: datetime | date) -> datetime:
    """Return the moment that is meant: of a date its beginning, and without a zone in UTC."""
    if not isinstance(expires, datetime):
        expires = datetime.combine(expires, time_of_day())
    return expires if expires.tzinfo is not None else expires.replace(tzinfo=UTC)


@checked_dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid", allow_inf_nan=False))
class ApiKey:
    """An entry of the file: what the holder of a key is and may do."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9._@-]{1,64}$")]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] = field(repr=False)
    priority: Literal["interactive", "batch"] = "interactive"
    weight: Annotated[float, Gt(0), Le(1_000)] = 1.0
    max_queued_tokens: Annotated[int, Ge(1)] | None = None
    models: frozenset[str] | None = None  # None: all
    admin: bool = False
    expires: Annotated[datetime | date, AfterValidator(_moment)] | None = None

    @cached_property
    def caller(self) -> Caller:
        """Who calls with it."""
        return Caller(
            name=self.name,
            source="key",
            priority=Priority[self.priority.upper()],
            weight=self.weight,
            max_queued_tokens=self.max_queued_tokens,
        )

    def is_expired(self, now: datetime) -> bool:
        return self.expires is not None and now >= cast("datetime", self.expires)


_ENTRIES: TypeAdapter[list[ApiKey]] = TypeAdapter(list[ApiKey])
ApiKeys: TypeAlias = Sequence[ApiKey]


def generate_key() -> str:
    return KEY_PREFIX + secrets.token_urlsafe(KEY_BYTES)


def digest_of(key: str) -> str:
    """Return the SHA-256 of a key as callers send it, in hexadecimal digits."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def find_key(keys: ApiKeys, presented: str) -> ApiKey | None:
    """Return the entry of this key; that takes as long for a key that is nearly right as for any other."""
    if len(presented) > _MAX_KEY_CHARACTERS:
        return None
    digest, found = digest_of(presented), None
    for key in keys:  # all of them, also after the one that fits
        if hmac.compare_digest(digest, key.sha256):
            found = key
    return found


def parse_keys(text: str) -> ApiKeys:
    """Return the keys of a file, or raise ValueError, which quotes no value: somebody may have put a key there."""
    document = tomllib.loads(text)
    written = document.get("keys")
    if set(document) != {"keys"} or not isinstance(written, list) or not written:
        raise ValueError("it needs [[keys]] entries, at least one, and nothing else: `dragoman keys new` writes one")
    if len(written) > MAX_KEYS:
        raise ValueError(f"it has {len(written):,} keys, at most {MAX_KEYS:,} are accepted")
    try:
        entries = _ENTRIES.validate_python(written)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        index, *names = first["loc"]
        raise ValueError(f"keys[{index}]{''.join(f'.{name}' for name in names)}: {first['msg']}") from None
    if len({entry.sha256 for entry in entries}) < len(entries):
        raise ValueError("two entries have the same sha256")
    return entries


def watch_keys(file: Path, *, period_s: float, clock: Callable[[], float] = time.monotonic) -> WatchedFiles[ApiKeys]:
    """Return the keys of a file that may be replaced, or raise ConfigError."""
    return WatchedFiles(
        [file],
        lambda: _read_keys(file),
        name="api_keys",
        facts=lambda keys: {"keys": len(keys)},
        period_s=period_s,
        clock=clock,
    )


def _read_keys(file: Path) -> ApiKeys:
    content = read_again("security.api_keys", file)
    try:
        return parse_keys(content.decode("utf-8-sig"))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"security.api_keys: {file} is not valid TOML: {error}") from None
    except ValueError as error:  # also bad UTF-8
        reason = "it is not valid UTF-8" if isinstance(error, UnicodeError) else error
        raise ConfigError(f"security.api_keys: {file}: {reason}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustedProxies:
    """The proxies that may name the client that they call for, and the metadata key of that name."""

    header: str | None  # None: they name no client, and say only whether it came by https
    networks: tuple[IPv4Network | IPv6Network, ...]

    def are_at(self, address: IpAddress | None) -> bool:
        """Whether one of them calls from this address."""
        return address is not None and any(address in network for network in self.networks)

    def client_named(self, metadata: Metadata, address: IpAddress | None) -> str | None:
        """Return the name in the metadata, or None: not from a proxy of ours, not given, or given more than once.

        More than once means that the proxy lets its clients' own headers through; which is whose cannot be known.
        """
        if self.header is None or not self.are_at(address):
            return None
        names = [value for key, value in metadata if key == self.header]
        return names[0].strip() or None if len(names) == 1 and isinstance(names[0], str) else None


def trusted_proxies(config: SecurityConfig) -> TrustedProxies | None:
    """Return what the settings say about proxies; None: nobody is trusted.

    Raises:
        ConfigError: there is a header that nobody is trusted with, or a value cannot be read.
    """
    header, written = config.identity_header, config.trusted_proxies.strip()
    if header is None and not written:
        return None
    if not written:
        raise ConfigError("security.identity_header needs security.trusted_proxies: the addresses that may send it")
    if header is not None and (
        not _VALID_HEADER.fullmatch(header) or header.endswith("-bin") or header.startswith(_RESERVED)
    ):
        raise ConfigError(f"security.identity_header is {header!r}: lower-case letters, digits and -_. are allowed")
    try:
        networks = tuple(ip_network(part.strip()) for part in written.split(","))
    except ValueError as error:  # names the part at fault
        raise ConfigError(f"security.trusted_proxies: {error}") from None
    return TrustedProxies(header=header, networks=networks)


@lru_cache(maxsize=_PEERS_KEPT)
def _party_at(place: str) -> tuple[IpAddress | None, Caller]:
    """Return the address, and the caller that it is by itself; `place` is gRPC's name of a peer without the port."""
    address = address_of(f"{place}:")
    if address is None:
        name = place.partition(":")[0]  # "unix"
    elif isinstance(address, IPv6Address) and not address.is_loopback:
        name = str(ip_network((address, _IPV6_PREFIX), strict=False))
    else:
        name = str(address)
    return address, Caller(name=_bounded(name), source="peer")


def address_of(peer: str) -> IpAddress | None:
    """Return the IP address in gRPC's name of a peer; None where there is none, as with Unix sockets."""
    scheme, _, rest = unquote(peer).partition(":")
    if scheme not in ("ipv4", "ipv6"):
        return None
    host = rest.rpartition(":")[0].strip("[]").partition("%")[0]
    try:
        address = ip_address(host)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def _bounded(name: str) -> str:
    return printable(name, max_characters=MAX_NAME_CHARACTERS)


class Authenticator:
    """Answers for one server; without keys everybody may call everything."""

    def __init__(
        self,
        keys: WatchedFiles[ApiKeys] | None = None,
        proxies: TrustedProxies | None = None,
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._keys = keys
        self._proxies = proxies
        self._clock = clock

    def authenticate(self, method: str, metadata: Metadata) -> ApiKey | None:
        """Return the key that the call is made with; None where none is needed.

        Args:
            method: "package.Service/Method".

        Raises:
            Unauthenticated: no key, or none that is good.
            PermissionDenied: the key may not call this.
        """
        if self._keys is None or method.startswith(OPEN_METHODS):
            return None
        presented = _presented_key(metadata)
        key = find_key(self._keys.current(), presented)
        if key is None:
            raise Unauthenticated("the server does not know this API key: use a valid one")
        if key.is_expired(self._clock()):
            raise Unauthenticated(f"the API key of {key.caller.name} has expired")
        if method.startswith(_ADMIN) and not key.admin:
            raise PermissionDenied(f"the API key of {key.caller.name} has no admin rights: use one with `admin = true`")
        return key

    def caller_at(self, peer: str, metadata: Metadata) -> Caller:
        """Return in whose name a call without a key is made: a trusted proxy's word, else the peer's address.

        Args:
            peer: gRPC's name of the other end, such as "ipv4:10.0.0.7:41234" or "ipv6:%5B::1%5D:41234".
        """
        address, caller = _party_at(peer.rpartition(":")[0] or peer)
        claimed = self._proxies.client_named(metadata, address) if self._proxies else None
        return caller if claimed is None else Caller(name=_bounded(claimed), source="proxy")


def authenticator(config: SecurityConfig) -> Authenticator:
    """Return what the settings ask for.

    Raises:
        ConfigError: the file of keys or a setting is wrong.
    """
    keys = watch_keys(config.api_keys, period_s=config.reload_s) if config.api_keys else None
    return Authenticator(keys, trusted_proxies(config))


def _presented_key(metadata: Metadata) -> str:
    values = [(name, value) for name, value in metadata if name in KEY_HEADERS]
    if not values:
        raise Unauthenticated("an API key is needed: send it as `authorization: Bearer KEY`")
    ((name, value),) = values if len(values) == 1 else [("", b"")]
    if not isinstance(value, str):
        raise Unauthenticated("one `authorization` is accepted, not several")
    if name == GOOGLE_KEY:
        return value.strip()
    scheme, _, key = value.partition(" ")
    if scheme.lower() not in _SCHEMES or not key.strip():
        raise Unauthenticated("`authorization` is accepted as `Bearer KEY` only")
    return key.strip()
