"""`dragoman keys`: API keys for `security.api_keys`."""

from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from service.cli.options import examples
from service.cli.reporting import reported

app = typer.Typer(help="API keys for the server's `security.api_keys`.", no_args_is_help=True, rich_markup_mode=None)

EPILOG = examples(
    "dragoman keys new shop",
    "dragoman keys new shop --file keys.toml --max-queued-tokens 20000 --model en-de --expires 2027-12-31",
    "dragoman keys new operator --file keys.toml --admin",
)


@app.callback()
def keys() -> None:
    """API keys for the server's `security.api_keys`."""


@app.command(epilog=EPILOG)
def new(
    name: Annotated[str, typer.Argument(help="Whose it is; a key and its successor may share a name.")],
    file: Annotated[Path | None, typer.Option("--file", help="Takes the entry; made if there is none.")] = None,
    priority: Annotated[str | None, typer.Option(help="Highest: interactive or batch.  [default: interactive]")] = None,
    weight: Annotated[float | None, typer.Option(help="Share beside other callers.  [default: 1]")] = None,
    max_queued_tokens: Annotated[int | None, typer.Option(help="Of texts without an answer.  [default: any]")] = None,
    models: Annotated[list[str] | None, typer.Option("--model", help="It may use; may be repeated.")] = None,
    admin: Annotated[bool, typer.Option("--admin", help="May call dragoman.admin.v1.")] = False,
    expires: Annotated[datetime | None, typer.Option(help="Good before this moment, UTC.")] = None,
) -> None:
    """Make a key and print it: once, as only its digest is kept."""
    with reported():
        from service.cli.keys_run import NewKey, run_new_key

        run_new_key(
            NewKey(
                name=name,
                priority=priority,
                weight=weight,
                max_queued_tokens=max_queued_tokens,
                models=tuple(models) if models else None,
                admin=admin or None,
                expires=expires,
            ),
            file,
        )
