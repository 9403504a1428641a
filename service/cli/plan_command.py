"""`dragoman plan`: its options."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from service.cli.options import AsJson, examples
from service.cli.reporting import reported
from service.planning.balancer import Balancer

EPILOG = examples(
    "dragoman loadtest --rate 5 --rate 20 --rate 30 --rate 40 --rate 60 --texts sentences.en --report one.json",
    "dragoman plan one.json --rate 500 --p99-ms 400",
    "dragoman plan one.json --rate 500 --p99-ms 400 --spare 2 --balancer two-choices --json",
    "dragoman plan one.json more.json --rate 500 --p99-ms 400 --chart plan.png",
)


def plan(
    reports: Annotated[
        list[Path], typer.Argument(metavar="REPORT...", help="JSON of `dragoman loadtest` against one replica.")
    ],
    rate: Annotated[float, typer.Option(metavar="TEXTS", help="Texts a second that all replicas get together.")],
    p99_ms: Annotated[float, typer.Option(metavar="MS", help="99 of 100 calls must be answered within this.")],
    spare: Annotated[int, typer.Option(min=0, help="Replicas that may be lost; the rest still hold the target.")] = 0,
    texts_per_call: Annotated[int | None, typer.Option(min=1, help="[default: as measured]")] = None,
    balancer: Annotated[Balancer, typer.Option(help="Who gets the next call.")] = Balancer.LEAST_REQUEST,
    seed: Annotated[int, typer.Option(help="Of the simulated arrivals.")] = 1,
    as_json: AsJson = False,
    chart: Annotated[
        Path | None, typer.Option(metavar="FILE", help="p99 against replicas, .png or .svg; needs matplotlib.")
    ] = None,
) -> None:
    """Say how many replicas hold a p99 at a rate, from load tests of one replica.

    A model of the replica is fitted to the latency at each measured rate, then several of them are simulated behind a
    balancer. Measure a low rate, some between, and one beyond what the replica holds; with the texts, beam size and
    machine of the real load. Arrivals are taken as random and independent; a load with bursts needs more.

    Exit code 0 with an answer; 2: wrong usage, or no number of replicas holds the target.
    """
    with reported():
        from rich.console import Console

        from service.cli.plan_report import check_chart, show
        from service.cli.plan_run import Question, answer

        check_chart(chart)
        question = Question(
            reports=tuple(reports),
            rate=rate,
            p99_ms=p99_ms,
            spare=spare,
            texts_per_call=texts_per_call,
            balancer=balancer,
            seed=seed,
        )
        width = None if sys.stdout.isatty() else 140
        show(answer(question, Console(stderr=True)), Console(width=width), as_json=as_json, chart=chart)
