"""`dragoman loadtest`."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from service.cli.connection import ApiKeyFile, Ca, Cert, Connection, Key, Tls, server_address
from service.cli.options import Server, examples
from service.cli.reporting import reported
from service.records import TranslateOptions

EPILOG = examples(
    "dragoman loadtest --rate 50",
    "dragoman loadtest --rate 20 --rate 40 --rate 80 --duration 60 --texts sentences.en --report load.html",
    "dragoman loadtest --find-p99 250 --texts sentences.en --report load.html --report load.json",
    "dragoman loadtest --concurrency 32 --beam-size 1 --beam-size 4",
    "dragoman loadtest --rate 200 --priority interactive --priority batch",
)


def loadtest(
    server: Server = None,
    tls: Tls = False,
    ca: Ca = None,
    cert: Cert = None,
    key: Key = None,
    api_key_file: ApiKeyFile = None,
    source_language: Annotated[str, typer.Option("--from", help="BCP 47; empty for the model's.")] = "",
    target_language: Annotated[str, typer.Option("--to", help="BCP 47; empty for the model's.")] = "",
    model: Annotated[str | None, typer.Option(help="Name as `dragoman models` shows it.")] = None,
    texts: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Texts to send, one a line.  [default: four of our own]")
    ] = None,
    texts_per_call: Annotated[int, typer.Option(min=1, help="Taken again from the first where they run out.")] = 1,
    rate: Annotated[list[float] | None, typer.Option(help="Calls a second; a stage for each.")] = None,
    find_p99: Annotated[
        float | None, typer.Option(metavar="MS", help="Find the highest rate whose p99 stays within this.")
    ] = None,
    first_rate: Annotated[float, typer.Option(help="Where --find-p99 begins.")] = 10.0,
    concurrency: Annotated[int | None, typer.Option(min=1, help="A closed loop of so many callers instead.")] = None,
    duration: Annotated[float, typer.Option(metavar="SECONDS", help="Of each stage.")] = 30.0,
    warm_up: Annotated[float, typer.Option(metavar="SECONDS", help="Cut from the start of each stage.")] = 5.0,
    arrivals: Annotated[str, typer.Option(help="poisson, or constant gaps.")] = "poisson",
    beam_size: Annotated[list[int] | None, typer.Option("--beam-size", "-b", help="Several are taken in turn.")] = None,
    priority: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CLASS", help="interactive or batch; several are taken in turn.  [default: what the key may have]"
        ),
    ] = None,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", help="Deadline of a call.")] = 60.0,
    target: Annotated[float | None, typer.Option(metavar="MS", help="Slower answers are no goodput.")] = None,
    workers: Annotated[int, typer.Option(min=1, help="Processes that send.")] = 1,
    seed: Annotated[int, typer.Option(min=0, help="Of the arrivals.")] = 1,
    report: Annotated[
        list[Path] | None, typer.Option(metavar="FILE", help=".html (with charts), .json or .csv; may be repeated.")
    ] = None,
) -> None:
    """Send calls at a rate, whatever the server does, and report latency from when each was due.

    The html report needs matplotlib: `pip install matplotlib` (extra `loadtest`).

    Exit code 0 when the load was made, however the server did; 2: wrong usage; 3: no server; 130: Ctrl-C.
    With the last two, the finished stages are shown and reported all the same.
    """
    with reported():
        from rich.console import Console

        from service.cli.loadtest_run import LoadTest, priority_of, run

        plan = LoadTest(
            server=server_address(server),
            connection=Connection(tls=tls, ca=ca, cert=cert, key=key, api_key_file=api_key_file),
            source_language=source_language,
            target_language=target_language,
            model=model,
            texts=texts,
            texts_per_call=texts_per_call,
            rates=tuple(rate or ()),
            find_p99_ms=find_p99,
            first_rate=first_rate,
            concurrency=concurrency,
            duration_s=duration,
            warm_up_s=warm_up,
            arrivals=arrivals,
            options=tuple(TranslateOptions(beam_size=size) for size in beam_size or (None,)),
            priorities=tuple(priority_of(name) for name in priority or ()) or (None,),
            timeout_s=timeout,
            target_ms=target,
            num_workers=workers,
            seed=seed,
            reports=tuple(report or ()),
        )
        run(plan, Console(width=None if sys.stdout.isatty() else 140))
