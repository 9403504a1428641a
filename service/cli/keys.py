"""`dragoman keys new`: makes an API key, shows it once, and writes or shows its entry for the server."""

import fcntl
import os
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from model.files import kind_of, write_whole
from service.api.auth import KeyEntry, digest_of, generate_key, parse_keys
from service.cli.options import examples, ranged, text_in
from service.cli.output import reported
from service.ranges import QUEUED_TOKENS, WEIGHT

app = typer.Typer(
    name="keys", help="API keys for the server's `security.api_keys`.", no_args_is_help=True, rich_markup_mode=None
)


@app.callback()
def keys() -> None:
    """Make API keys for the server's `security.api_keys`."""


@app.command(
    epilog=examples(
        "dragoman keys new shop",
        "dragoman keys new shop --file keys.toml --max-queued-tokens 20000 --model en-de --expires 2027-12-31",
        "dragoman keys new operator --file keys.toml --admin",
    )
)
@reported()
def new(
    name: Annotated[str, typer.Argument(help="Whose it is; a key and its successor may share a name.")],
    file: Annotated[Path | None, typer.Option("--file", help="Takes the entry; made if there is none.")] = None,
    priority: Annotated[str | None, typer.Option(help="Highest: interactive or batch.  [default: interactive]")] = None,
    weight: Annotated[float | None, ranged(WEIGHT, help="Share beside other callers.  [default: 1]")] = None,
    max_queued_tokens: Annotated[
        int | None, ranged(QUEUED_TOKENS, help="Of texts without an answer.  [default: any]")
    ] = None,
    models: Annotated[list[str] | None, typer.Option("--model", help="It may use; may be repeated.")] = None,
    admin: Annotated[bool, typer.Option("--admin", help="May call dragoman.admin.v1.")] = False,
    expires: Annotated[datetime | None, typer.Option(help="Good before this moment, UTC.")] = None,
) -> None:
    """Make a key and print it: once, as only its digest is kept."""
    new_key = NewKey(
        name=name,
        priority=priority,
        weight=weight,
        max_queued_tokens=max_queued_tokens,
        models=tuple(models) if models else None,
        admin=admin or None,
        expires=expires,
    )
    key = generate_key()
    entry = entry_of(new_key, key)
    if file is not None:
        append_entry(file, entry)
    print(key)
    if file is None:
        print(f"\n# for the file that security.api_keys names:\n{entry}", end="")


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


def entry_of(new: NewKey, key: str) -> str:
    """Return the entry in TOML; raises ValueError for a value that no entry may have."""
    given = {item.name: getattr(new, item.name) for item in fields(new) if item.name != "name"}
    values = {"name": new.name, "sha256": digest_of(key).hex(), **given}
    assert set(values) == {item.name for item in fields(KeyEntry)}
    lines = [f"{name} = {_to_toml(value)}" for name, value in values.items() if value is not None]
    entry = "\n".join(["[[keys]]", *lines, ""])
    parse_keys(entry)
    return entry


def append_entry(file: Path, entry: str) -> None:
    """Add the entry to the file in one move, so that a running server never sees half of it.

    Processes that add entries at the same time take turns: else one entry would be lost, and its key shown as good.
    """
    if kind_of(file):  # a pipe or a device: what was written to it before is not to be had
        write_whole(file, entry.encode())
        return
    file = file.resolve()  # so that all who take turns meet in one directory
    descriptor = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY)  # not the file itself, which is replaced
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)  # the kernel ends it with the process
        before = text_in(file) if file.exists() else ""
        after = f"{before.rstrip()}\n\n{entry}" if before.strip() else entry
        try:
            parse_keys(after)
        except ValueError as error:
            raise ValueError(f"{file} is left as it is: {error}") from None
        write_whole(file, after.encode(), new_mode=0o600)
    finally:
        os.close(descriptor)


def _to_toml(value: str | float | bool | tuple[str, ...] | datetime) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case datetime():
            return (value if value.tzinfo else value.replace(tzinfo=UTC)).isoformat()
        case tuple():
            return f"[{', '.join(_to_toml(item) for item in value)}]"
        case str():
            escaped = (char if char.isprintable() and char not in '"\\' else f"\\U{ord(char):08X}" for char in value)
            return f'"{"".join(escaped)}"'
        case _:
            return str(value)
