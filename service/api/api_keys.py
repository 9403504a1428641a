"""API keys: what a key looks like, the file that says which are good, and finding one in it.

The file holds no key, only SHA-256 digests.  A key is 256 random bits, so there is nothing to guess: a slow or salted
hash would protect nothing more, it would only let strangers make the server work.

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
import secrets
import time
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from datetime import time as time_of_day
from pathlib import Path
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as checked_dataclass

from service.call import Caller
from service.config import ConfigError
from service.records import Priority
from service.watched_files import WatchedFiles

KEY_PREFIX = "dragoman_"  # lets scanners of repositories and logs recognise a leaked key
KEY_BYTES = 32
MAX_KEYS = 1_000  # each call is compared with all of them
_MAX_KEY_CHARACTERS = 256


@checked_dataclass(frozen=True, slots=True, kw_only=True, config=ConfigDict(extra="forbid", allow_inf_nan=False))
class KeyEntry:
    """One entry of the file, as written."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9._@-]{1,64}$")]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    priority: Literal["interactive", "batch"] = "interactive"
    weight: Annotated[float, Gt(0), Le(1_000)] = 1.0
    max_queued_tokens: Annotated[int, Ge(1)] | None = None
    models: tuple[str, ...] | None = None
    admin: bool = False
    expires: datetime | date | None = None


_ENTRIES: TypeAdapter[list[KeyEntry]] = TypeAdapter(list[KeyEntry])


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """What the holder of a key is and may do."""

    caller: Caller
    digest: bytes = field(repr=False)
    models: frozenset[str] | None = None  # None: all
    is_admin: bool = False
    expires: datetime | None = None

    def is_expired(self, now: datetime) -> bool:
        return self.expires is not None and now >= self.expires


def generate_key() -> str:
    return KEY_PREFIX + secrets.token_urlsafe(KEY_BYTES)


def digest_of(key: str) -> bytes:
    """SHA-256 of a key as callers send it."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()


class KeyRing:
    """The good keys of one moment."""

    def __init__(self, keys: Sequence[ApiKey]) -> None:
        self._keys = tuple(keys)

    def __len__(self) -> int:
        return len(self._keys)

    def find(self, presented: str) -> ApiKey | None:
        """The entry of this key.  Takes as long for a key that is nearly right as for any other."""
        if len(presented) > _MAX_KEY_CHARACTERS:
            return None
        digest, found = digest_of(presented), None
        for key in self._keys:  # all of them, also after the one that fits
            if hmac.compare_digest(digest, key.digest):
                found = key
        return found


def parse_keys(text: str) -> KeyRing:
    """Return the keys of a file, or raise ValueError, which quotes no value: somebody may have put a key there."""
    document = tomllib.loads(text)
    written = document.get("keys")
    if set(document) != {"keys"} or not isinstance(written, list) or not written:
        raise ValueError("it needs [[keys]] entries, at least one, and nothing else")
    if len(written) > MAX_KEYS:
        raise ValueError(f"it has {len(written):,} keys, at most {MAX_KEYS:,} are accepted")
    try:
        entries = _ENTRIES.validate_python(written)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        index, *names = first["loc"]
        raise ValueError(f"keys[{index}]{''.join(f'.{name}' for name in names)}: {first['msg']}") from None
    digests = {entry.sha256 for entry in entries}
    if len(digests) < len(entries):
        raise ValueError("two entries have the same sha256")
    return KeyRing([_to_key(entry) for entry in entries])


def _to_key(entry: KeyEntry) -> ApiKey:
    expires = entry.expires
    if expires is not None and not isinstance(expires, datetime):
        expires = datetime.combine(expires, time_of_day())  # a date is its first moment
    if expires is not None and expires.tzinfo is None:
        expires = expires.replace(tzinfo=UTC)
    return ApiKey(
        caller=Caller(
            name=entry.name,
            source="key",
            priority=Priority[entry.priority.upper()],
            weight=entry.weight,
            max_queued_tokens=entry.max_queued_tokens,
        ),
        digest=bytes.fromhex(entry.sha256),
        models=None if entry.models is None else frozenset(entry.models),
        is_admin=entry.admin,
        expires=expires,
    )


def watch_keys(file: Path, *, period_s: float, clock: Callable[[], float] = time.monotonic) -> WatchedFiles[KeyRing]:
    """Return the keys of a file that may be replaced, or raise ConfigError."""
    return WatchedFiles(
        [file],
        lambda: _read_keys(file),
        name="api_keys",
        facts=lambda keys: {"keys": len(keys)},
        period_s=period_s,
        clock=clock,
    )


def _read_keys(file: Path) -> KeyRing:
    try:
        return parse_keys(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"security.api_keys: {file} cannot be read: {error.strerror}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"security.api_keys: {file} is not valid TOML: {error}") from None
    except ValueError as error:  # also bad UTF-8
        reason = "it is not valid UTF-8" if isinstance(error, UnicodeError) else error
        raise ConfigError(f"security.api_keys: {file}: {reason}") from None
