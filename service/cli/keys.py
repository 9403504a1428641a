"""`dragoman keys new`: makes an API key, shows it once, and writes or shows its entry for the server."""

import fcntl
import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from model.files import kind_of, write_whole
from service.api.auth import digest_of, generate_key, parse_keys
from service.cli.options import examples, ranged, text_in
from service.cli.output import reported
from service.ranges import QUEUED_TOKENS, WEIGHT
from service.records import Priority

app = typer.Typer(
    name="keys",
    help="API keys for the server's `security.api_keys`.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
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
    file: Annotated[
        Path | None, typer.Option("--file", metavar="FILE", help="Takes the entry; made if there is none.")
    ] = None,
    priority: Annotated[str | None, typer.Option(help="Highest: interactive or batch.  [default: interactive]")] = None,
    weight: Annotated[float | None, ranged(WEIGHT, help="Share beside other callers.  [default: 1]")] = None,
    max_queued_tokens: Annotated[
        int | None, ranged(QUEUED_TOKENS, help="Of texts without an answer.  [default: any]")
    ] = None,
    models: Annotated[
        list[str] | None, typer.Option("--model", metavar="NAME", help="It may use; may be repeated.")
    ] = None,
    admin: Annotated[bool, typer.Option("--admin", help="May call dragoman.admin.v1.")] = False,
    expires: Annotated[datetime | None, typer.Option(help="Good before this moment, UTC.")] = None,
) -> None:
    """Make a key and print it: once, as only its digest is kept."""
    classes = [each.label for each in Priority]
    if priority is not None and priority not in classes:
        raise ValueError(f"--priority is {priority!r}, there are {' and '.join(classes)}")
    key = generate_key()
    entry = entry_of(
        key,
        name,
        priority=priority,
        weight=weight,
        max_queued_tokens=max_queued_tokens,
        models=models or None,
        admin=admin or None,
        expires=expires,
    )
    if file is not None:
        append_entry(file, entry)
    print(key)
    if file is None:
        print(f"\n# for the file that security.api_keys names:\n{entry}", end="")


def entry_of(key: str, name: str, **rights: Any) -> str:
    """Return the entry of a key in TOML; raises ValueError for a value that no entry may have.

    Args:
        key: of which the entry has the digest.
        name: whose it is.
        rights: further fields of `ApiKey`; None means its default, and a time without a zone is in UTC.
    """
    values = {"name": name, "sha256": digest_of(key), **rights}
    lines = [f"{field} = {_to_toml(value)}" for field, value in values.items() if value is not None]
    entry = "\n".join(["[[keys]]", *lines, ""])
    (made,) = parse_keys(entry)
    if made.is_expired(datetime.now(UTC)):
        raise ValueError(f"--expires is {made.expires}, which has passed")
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


def _to_toml(value: Any) -> str:
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).isoformat()
    # JSON's numbers, booleans, texts and lists are TOML's, too, but for one character that TOML wants escaped.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", r"\u007f")
