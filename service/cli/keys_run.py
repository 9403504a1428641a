"""What `dragoman keys new` does: makes an API key, shows it once, and writes or shows its entry for the server."""

from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path

from service.files import write_whole
from service.grpc.api_keys import KeyEntry, digest_of, generate_key, parse_keys
from service.lock_file import locked_directory

_LONGEST_WAIT_S = 10.0  # for others who add an entry, which takes them milliseconds


@dataclass(frozen=True, slots=True, kw_only=True)
class NewKey:
    """What the holder of the new key may do; None takes the default of `KeyEntry`."""

    name: str
    priority: str | None = None  # "interactive" or "batch"
    weight: float | None = None
    max_queued_tokens: int | None = None
    models: tuple[str, ...] | None = None
    admin: bool | None = None
    expires: datetime | None = None  # without a time zone: UTC


def run_new_key(new: NewKey, file: Path | None = None) -> None:
    """Print the key, and its entry unless `file` takes it; the server keeps no key, so nobody can show it again.

    Args:
        file: `security.api_keys` of the server; made, for its owner alone, if there is none.

    Raises:
        ValueError: a value that no entry may have, or a file that holds something else.
        OSError: the file cannot be read or written.
    """
    key = generate_key()
    entry = entry_of(new, key)
    if file is None:
        print(f"{key}\n\n# for the file that security.api_keys names:\n{entry}", end="")
        return
    append_entry(file, entry)
    print(key)


def entry_of(new: NewKey, key: str) -> str:
    """The entry in TOML.

    Raises:
        ValueError: a value that no entry may have.
    """
    given = {item.name: getattr(new, item.name) for item in fields(new) if item.name != "name"}
    values = {"name": new.name, "sha256": digest_of(key).hex(), **given}
    assert set(values) == {item.name for item in fields(KeyEntry)}
    lines = [f"{name} = {_to_toml(value)}" for name, value in values.items() if value is not None]
    entry = "\n".join(["[[keys]]", *lines, ""])
    parse_keys(entry)
    return entry


def append_entry(file: Path, entry: str) -> None:
    """Add the entry to the file in one move, so that a running server never sees half of it.

    Whoever does so at the same time comes after it: else the entry of one would be gone, and its key shown as good.

    Raises:
        ValueError: the file with the entry would be none that the server takes.
        TimeoutError: another adds an entry, and does not end.
        OSError: it cannot be read or written.
    """
    file = file.resolve()  # a link stays one
    with locked_directory(file.parent, _LONGEST_WAIT_S):  # not the file itself, which is replaced
        _append(file, entry)


def _append(file: Path, entry: str) -> None:
    before = file.read_text(encoding="utf-8") if file.exists() else ""
    mode = file.stat().st_mode & 0o777 if file.exists() else 0o600
    after = f"{before.rstrip()}\n\n{entry}" if before.strip() else entry
    try:
        parse_keys(after)
    except ValueError as error:
        raise ValueError(f"{file} is left as it is: {error}") from None
    write_whole(file, after.encode(), mode)


def _to_toml(value: str | float | bool | tuple[str, ...] | datetime) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case datetime():
            return (value if value.tzinfo else value.replace(tzinfo=UTC)).isoformat()
        case tuple():
            return f"[{', '.join(_to_toml(item) for item in value)}]"
        case str():
            return '"' + "".join(_escaped(char) for char in value) + '"'
        case _:
            return str(value)


def _escaped(char: str) -> str:
    return char if char.isprintable() and char not in '"\\' else f"\\U{ord(char):08X}"
