"""`dragoman plan`: reads reports of one replica and says how many hold a target; as tables or as JSON."""

import json
import sys
from dataclasses import dataclass
from itertools import pairwise
from math import ceil
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from service.cli.options import AsJson, ranged, text_in, with_examples
from service.ranges import MILLISECONDS, RATE, REPLICAS
from service.tools.loadtest.plan import Measured, read

_LATE = 0.1  # of a stage's p99, by which its calls were sent late: the machine had no time, not only the server
_BUSY = 0.85  # of the capacity; beyond, a few more texts mean a long queue
_FAR = 1.5  # times the lower of two measured rates; what lies between is a guess


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The number of replicas, and what it rests on."""

    measured: Measured
    rate: float  # texts a second, of all replicas together
    p99_s: float
    highest_rate: float  # of one replica, at which the p99 holds
    spare: int

    @property
    def needed(self) -> int:
        """Replicas that must be up."""
        return max(1, ceil(self.rate / self.highest_rate - 1e-9))

    @property
    def replicas(self) -> int:
        """Replicas to run: those needed and the spare ones."""
        return self.needed + self.spare

    @property
    def numbers(self) -> list[int]:
        """The numbers of replicas to speak of."""
        return sorted({max(1, self.needed - 1), self.needed, self.needed + 1, self.replicas})


@with_examples(
    "dragoman loadtest --rate 5 --rate 20 --rate 30 --rate 40 --rate 60 --texts sentences.en --report one.json",
    "dragoman plan one.json --rate 500 --p99-ms 400",
    "dragoman plan one.json --rate 500 --p99-ms 400 --spare 2 --json",
)
def plan(
    reports: Annotated[
        list[Path], typer.Argument(metavar="REPORT...", help="JSON of `dragoman loadtest` against one replica.")
    ],
    rate: Annotated[float, ranged(RATE, help="Texts a second that all replicas get together.")],
    p99_ms: Annotated[float, ranged(MILLISECONDS, help="99 of 100 calls must be answered within this.")],
    spare: Annotated[int, ranged(REPLICAS, help="Replicas that may be lost; the rest still hold the target.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Say how many replicas hold a p99 at a rate, from load tests of one replica.

    Measure a low rate, some between, and one beyond what the replica holds; with the texts, beam size and machine of
    the real load. Calls are taken as random, independent and spread evenly; a load with bursts needs more.

    Exit code 0 with an answer; 2: wrong usage, or no number of replicas holds the target.
    """
    measured = read((str(file), text_in(file)) for file in reports)
    p99_s = p99_ms / 1e3
    answer = Answer(measured=measured, rate=rate, p99_s=p99_s, highest_rate=measured.highest_rate(p99_s), spare=spare)
    if as_json:
        print(json.dumps(_to_json(answer), indent=2))
    else:
        _print(answer, Console(width=None if sys.stdout.isatty() else 140))


def _warnings(answer: Answer) -> list[str]:
    measured, each = answer.measured, answer.rate / answer.needed
    stages, best = measured.stages, answer.highest_rate
    warnings = list(measured.left_out)
    warnings += [
        f"{stage.name}: calls were sent up to {stage.send_delay_s * 1e3:.0f} ms late; measure again, on a quiet machine"
        for stage in stages
        if stage.send_delay_s > _LATE * stage.p99_s
    ]
    if best == stages[-1].rate:
        warnings.append(f"the p99 holds at {best:g} texts/s, the highest rate measured: higher ones may hold, too")
    warnings += [
        f"between {low.rate:g} and {high.rate:g} texts/s nothing was measured: a rate between them says more"
        for low, high in pairwise(stages)
        if low.rate < best < high.rate and high.rate > _FAR * low.rate
    ]
    if measured.capacity is None:
        warnings.append("no stage was beyond what the replica can do: measure a higher rate, too")
    elif each > _BUSY * measured.capacity:
        more = measured.capacity / each - 1
        warnings.append(f"{answer.needed} replicas have little room: {more:.0%} more texts would overload them")
    return warnings


def _to_json(answer: Answer) -> dict[str, object]:
    """Return the answer for JSON: milliseconds; null where replicas get more than was measured."""
    return {
        "replicas": answer.replicas,
        "needed": answer.needed,
        "spare": answer.spare,
        "rate": answer.rate,
        "p99_ms": answer.p99_s * 1e3,
        "replica": {"texts_per_second": answer.highest_rate, "capacity": answer.measured.capacity},
        "stages": [
            {"stage": one.name, "texts_per_second": one.rate, "p50_ms": one.p50_s * 1e3, "p99_ms": one.p99_s * 1e3}
            for one in answer.measured.stages
        ],
        "predictions": [
            {"replicas": number, "texts_per_second": answer.rate / number, **_latency_ms(answer, number)}
            for number in answer.numbers
        ],
        "warnings": _warnings(answer),
    }


def _latency_ms(answer: Answer, number: int) -> dict[str, float | None]:
    p50_s, p99_s = answer.measured.latency_s(answer.rate / number) or (None, None)
    return {name: None if s is None else s * 1e3 for name, s in (("p50_ms", p50_s), ("p99_ms", p99_s))}


def _print(answer: Answer, console: Console) -> None:
    table = Table("stage", "texts/s", "p50 ms", "p99 ms", title="One replica, as measured")
    for one in answer.measured.stages:
        table.add_row(one.name, f"{one.rate:g}", f"{one.p50_s * 1e3:.0f}", f"{one.p99_s * 1e3:.0f}")
    console.print(table)
    console.print(f"one replica holds the p99 up to {answer.highest_rate:.1f} texts/s")
    remarks = {answer.replicas: "with the spare ones", answer.needed: "needed"}
    table = Table("replicas up", "texts/s each", "p50 ms", "p99 ms", "", title="Replicas together")
    for number in answer.numbers:
        times = ["more than was measured" if ms is None else f"{ms:.0f}" for ms in _latency_ms(answer, number).values()]
        table.add_row(str(number), f"{answer.rate / number:.1f}", *times, remarks.get(number, ""))
    console.print(table)
    for warning in _warnings(answer):
        console.print(f"[yellow]{warning}[/yellow]")
    spare = f" ({answer.needed} needed, {answer.spare} to spare)" if answer.spare else ""
    verb = "replica holds" if answer.replicas == 1 else "replicas hold"
    target = f"a p99 of {answer.p99_s * 1e3:g} ms at {answer.rate:g} texts/s"
    console.print(f"[bold]{answer.replicas} {verb} {target}{spare}[/bold]")
