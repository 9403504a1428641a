"""`dragoman plan`: reads load tests of one replica and says how many hold a p99 at a rate; as tables or as JSON.

    read(reports)                 the stages with which the replica kept up, by rate
    Measured.highest_rate(p99)    what one replica may get, in texts a second; replicas = rate / that, rounded up

A balancer that chooses at random makes of random arrivals random arrivals at each replica (a thinned Poisson process is
one), so n replicas have the latency that one had at an n-th of the rate.  A balancer that looks at outstanding calls
does better.  Between two measured rates the latency is taken to lie on a straight line, which is above the real curve,
since queues grow faster than rates.  Beyond the rates that were measured nothing is said.
"""

import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import ceil
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from service.cli.options import AsJson, ranged, text_in, with_examples
from service.ranges import MILLISECONDS, RATE
from service.tools.loadtest import OK

_LATE = 0.1  # of a stage's p99, by which its calls were sent late: the machine had no time, not only the server
_FAR = 1.5  # times the lower of two measured rates; what lies between is a guess
_LEAST_CALLS = 30  # a p99 of fewer says nothing
_MAX_FAILED_RATIO = 0.001  # with more, the latency is that of those who were let in
_KEPT_UP_RATIO = 0.95  # of what was offered, answered while the stage lasted; with less, a queue grew


@with_examples(
    "dragoman loadtest --rate 5 --rate 20 --rate 30 --rate 40 --rate 60 --texts sentences.en --report one.json",
    "dragoman plan one.json --rate 500 --p99-ms 400",
    "dragoman plan one.json --rate 500 --p99-ms 400 --json",
)
def plan(
    reports: Annotated[
        list[Path], typer.Argument(metavar="REPORT...", help="JSON of `dragoman loadtest` against one replica.")
    ],
    rate: Annotated[float, ranged(RATE, help="Texts a second that all replicas get together.")],
    p99_ms: Annotated[float, ranged(MILLISECONDS, help="99 of 100 calls must be answered within this.")],
    as_json: AsJson = False,
) -> None:
    """Say how many replicas hold a p99 at a rate, from load tests of one replica.

    Measure a low rate, some between, and one beyond what the replica holds; with the texts, beam size and machine of
    the real load. Calls are taken as random, independent and spread evenly; a load with bursts needs more.

    Exit code 0 with an answer; 2: wrong usage, or no number of replicas holds the target.
    """
    measured = read((str(file), text_in(file)) for file in reports)
    best = measured.highest_rate(p99_ms)
    replicas = max(1, ceil(rate / best - 1e-9))
    numbers = sorted({max(1, replicas - 1), replicas, replicas + 1})
    answer = {
        "replicas": replicas,
        "rate": rate,
        "p99_ms": p99_ms,
        "replica": {"texts_per_second": best},
        "stages": [
            {"stage": one.name, "texts_per_second": one.rate, "p50_ms": one.p50_ms, "p99_ms": one.p99_ms}
            for one in measured.stages
        ],
        "predictions": [  # of latency: null where replicas get more than was measured
            {"replicas": number, "texts_per_second": rate / number, **measured.latency_ms(rate / number)}
            for number in numbers
        ],
        "warnings": [*measured.left_out, *_warnings(measured, best)],
    }
    if as_json:
        print(json.dumps(answer, indent=2))
    else:
        _print(answer, Console(width=None if sys.stdout.isatty() else 140))


class Stage(NamedTuple):
    """One rate at which one replica was loaded, and kept up."""

    name: str
    rate: float  # texts a second
    p50_ms: float
    p99_ms: float
    send_delay_ms: float  # how late the load generator itself was


@dataclass(frozen=True, slots=True)
class Measured:
    """What the reports say of one replica.

    A stage that was quicker than one of a lower rate was so by chance, and counts as slow as that one.
    """

    stages: tuple[Stage, ...]  # by rate
    left_out: tuple[str, ...] = ()  # the other stages, and why

    def latency_ms(self, rate: float) -> dict[str, float | None]:
        """Return p50 and p99 at a rate; None beyond the rates that were measured."""
        if rate > self.stages[-1].rate:
            return {"p50_ms": None, "p99_ms": None}
        rates = [stage.rate for stage in self.stages]
        return {name: float(np.interp(rate, rates, self._curve(name))) for name in ("p50_ms", "p99_ms")}

    def highest_rate(self, p99_ms: float) -> float:
        """Return the highest rate of one replica at which its p99 holds; raises ValueError if there is none."""
        curve = self._curve("p99_ms")
        if curve[0] > p99_ms:
            lowest = self.stages[0].rate
            seen = f"it is {curve[0]:.0f} ms at {lowest:g} texts/s, the lowest rate that was measured"
            raise ValueError(f"a p99 of {p99_ms:g} ms cannot be held: {seen}")
        return float(np.interp(p99_ms, curve, [stage.rate for stage in self.stages]))

    def _curve(self, name: str) -> list[float]:
        return list(accumulate((getattr(stage, name) for stage in self.stages), max))


def read(reports: Iterable[tuple[str, str]]) -> Measured:
    """Return what these reports say, each a name and a content; raises ValueError if that is too little."""
    stages: dict[float, Stage] = {}
    left_out: list[str] = []
    sizes: set[int] = set()
    for name, text in reports:
        try:
            report = json.loads(text)
            if report["callers"]:  # a closed loop: it offers what the server takes
                continue
            sizes.add(report["texts_per_call"])
            for found in report["stages"]:
                if why := _why_left_out(found):
                    left_out.append(f"{found['name']}: left out, {why}")
                else:
                    rate = found["offered_rate"] * report["texts_per_call"]
                    latency_ms = found["latency_ms"]
                    stages[rate] = Stage(
                        found["name"], rate, latency_ms["p50"], latency_ms["p99"], found["send_delay_ms_p99"]
                    )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{name} is no JSON report of `dragoman loadtest`: {error}") from None
    if len(sizes) > 1:
        raise ValueError(f"the stages have {sorted(sizes)} texts a call, they must have the same number")
    if len(stages) < 2:
        raise ValueError(
            f"the replica kept up with {len(stages)} stages, at least 2 of different rates are needed: "
            + "".join(f"{line}; " for line in left_out)
            + "measure with `dragoman loadtest --rate A --rate B --report FILE.json`"
        )
    return Measured(tuple(stages[rate] for rate in sorted(stages)), tuple(left_out))


def _why_left_out(stage: dict[str, Any]) -> str:
    """Return why a stage of a report says nothing of the replica's latency; empty if it does."""
    num_calls = stage["calls"]
    failed = {code: number for code, number in stage["codes"].items() if code != OK}
    if sum(failed.values()) > _MAX_FAILED_RATIO * num_calls:
        codes = ", ".join(f"{number} {code}" for code, number in failed.items())
        return f"{codes} of {num_calls} calls"
    if num_calls < _LEAST_CALLS:
        return f"{num_calls} calls, at least {_LEAST_CALLS} are needed: measure it again with a longer --duration"
    if stage["done_texts_rate"] < _KEPT_UP_RATIO * stage["texts_rate"]:
        rates = f"{stage['done_texts_rate']:.1f} of {stage['texts_rate']:.1f} texts/s were answered while it lasted"
        return f"{rates}: too high a rate, or too short a --duration"
    return ""


def _warnings(measured: Measured, best: float) -> list[str]:
    """Return what the highest rate of one replica rests on, where that is little."""
    stages = measured.stages
    warnings = [
        f"{stage.name}: calls were sent up to {stage.send_delay_ms:.0f} ms late; measure again, on a quiet machine"
        for stage in stages
        if stage.send_delay_ms > _LATE * stage.p99_ms
    ]
    if best == stages[-1].rate:
        warnings.append(f"the p99 holds at {best:g} texts/s, the highest rate measured: higher ones may hold, too")
    warnings += [
        f"between {low.rate:g} and {high.rate:g} texts/s nothing was measured: a rate between them says more"
        for low, high in pairwise(stages)
        if low.rate < best < high.rate and high.rate > _FAR * low.rate
    ]
    return warnings


def _print(answer: dict[str, Any], console: Console) -> None:
    table = Table("stage", "texts/s", "p50 ms", "p99 ms", title="One replica, as measured")
    for one in answer["stages"]:
        table.add_row(one["stage"], f"{one['texts_per_second']:g}", f"{one['p50_ms']:.0f}", f"{one['p99_ms']:.0f}")
    console.print(table)
    console.print(f"one replica holds the p99 up to {answer['replica']['texts_per_second']:.1f} texts/s")
    table = Table("replicas up", "texts/s each", "p50 ms", "p99 ms", title="Replicas together")
    for one in answer["predictions"]:
        times = ["more than was measured" if ms is None else f"{ms:.0f}" for ms in (one["p50_ms"], one["p99_ms"])]
        table.add_row(str(one["replicas"]), f"{one['texts_per_second']:.1f}", *times)
    console.print(table)
    for warning in answer["warnings"]:
        console.print(f"[yellow]{warning}[/yellow]")
    verb = "replica holds" if answer["replicas"] == 1 else "replicas hold"
    target = f"a p99 of {answer['p99_ms']:g} ms at {answer['rate']:g} texts/s"
    console.print(f"[bold]{answer['replicas']} {verb} {target}[/bold]")
