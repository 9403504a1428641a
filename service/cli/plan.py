"""`dragoman plan`: reads load tests of one replica and says how many hold a p99 at a rate; as tables or as JSON.

    read(reports)                 the stages with which the replica kept up, by rate
    Measured.highest_rate(p99_s)  what one replica may get, in texts a second; replicas = rate / that, rounded up

A balancer that chooses at random makes of random arrivals random arrivals at each replica (a thinned Poisson process is
one), so n replicas have the latency that one had at an n-th of the rate.  A balancer that looks at outstanding calls
does better.  Between two measured rates the latency is taken to lie on a straight line, which is above the real curve,
since queues grow faster than rates.  Beyond the rates that were measured nothing is said.
"""

import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from itertools import accumulate, pairwise
from math import ceil
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from service.cli.options import AsJson, ranged, text_in, with_examples
from service.ranges import MILLISECONDS, RATE, REPLICAS
from service.tools.loadtest import OK, Summary

_LATE = 0.1  # of a stage's p99, by which its calls were sent late: the machine had no time, not only the server
_BUSY = 0.85  # of the capacity; beyond, a few more texts mean a long queue
_FAR = 1.5  # times the lower of two measured rates; what lies between is a guess
_LEAST_CALLS = 30  # a p99 of fewer says nothing
_MAX_FAILED_RATIO = 0.001  # with more, the latency is that of those who were let in
_OVERLOADED_RATIO = 0.02  # failed: the rest is what it can do
_BY_OVERLOAD = ("RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED", "UNAVAILABLE")
_KEPT_UP_RATIO = 0.95  # of what was offered, answered in the same time; with less, a queue grew


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One rate at which one replica was loaded, as a report has it."""

    name: str
    texts_per_call: int
    warm_up_s: float
    summary: Summary

    @property
    def rate(self) -> float:
        """Texts a second."""
        return self.summary.offered_rate * self.texts_per_call

    @property
    def p50_s(self) -> float:
        return self.summary.latency_ms["p50"] / 1e3

    @property
    def p99_s(self) -> float:
        return self.summary.latency_ms["p99"] / 1e3

    @property
    def failed(self) -> dict[str, int]:
        """Numbers of calls without an answer, by code."""
        return {code: number for code, number in self.summary.codes.items() if code != OK and number}

    @property
    def is_kept_up(self) -> bool:
        """Whether the replica answered what was offered."""
        return self._has_few_failures and not self._is_behind

    @property
    def is_overloaded(self) -> bool:
        """Whether the replica answered as much as it can, and that was less."""
        if not self.summary.ok_rate:  # what was done in it are calls of its warm-up
            return False
        by_overload = sum(self.failed.get(code, 0) for code in _BY_OVERLOAD)
        is_failing = by_overload >= _OVERLOADED_RATIO * self.summary.calls and self.summary.done_texts_rate > 0
        return is_failing or (self._has_few_failures and self._is_behind)

    @property
    def _has_few_failures(self) -> bool:
        return sum(self.failed.values()) / self.summary.calls <= _MAX_FAILED_RATIO

    @property
    def _is_behind(self) -> bool:
        """Whether more is unanswered at the end than the calls that are always under way, and chance."""
        summary = self.summary
        missing = (summary.texts_rate - summary.done_texts_rate) * summary.duration_s / self.texts_per_call
        begun_empty = summary.offered_rate * max(0.0, self.p50_s - self.warm_up_s)
        by_chance = 3 + 3 * (summary.offered_rate * self.p99_s) ** 0.5  # three deviations of how many are under way
        return summary.done_texts_rate < _KEPT_UP_RATIO * summary.texts_rate and missing > begun_empty + by_chance

    def __str__(self) -> str:
        codes = ", ".join(f"{number} {code}" for code, number in self.failed.items())
        return f"{self.name}: left out, {codes} of {self.summary.calls} calls"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What the reports say of one replica."""

    stages: tuple[Stage, ...]  # with which the replica kept up, by rate
    capacity: float | None = None  # texts a second that were answered when it did not
    left_out: tuple[str, ...] = ()  # what says nothing, and why

    def latency_s(self, rate: float) -> tuple[float, float] | None:
        """Return p50 and p99 at a rate, in seconds; None beyond the rates that were measured.

        Below the lowest rate it is that of the lowest; a stage that was quicker than one of a lower rate was so by
        chance.
        """
        p50_s, p99_s = self._curve(lambda stage: stage.p50_s), self._curve(lambda stage: stage.p99_s)
        if rate <= self.stages[0].rate:
            return p50_s[0], p99_s[0]
        for number, (low, high) in enumerate(pairwise(self.stages)):
            if rate <= high.rate:
                share = (rate - low.rate) / (high.rate - low.rate)
                p50, p99 = (values[number] + share * (values[number + 1] - values[number]) for values in (p50_s, p99_s))
                return p50, p99
        return None

    def highest_rate(self, p99_s: float) -> float:
        """Return the highest rate of one replica at which its p99 holds; raises ValueError if there is none."""
        curve = self._curve(lambda stage: stage.p99_s)
        if curve[0] > p99_s:
            lowest = self.stages[0].rate
            seen = f"it is {curve[0] * 1e3:.0f} ms at {lowest:g} texts/s, the lowest rate that was measured"
            raise ValueError(f"a p99 of {p99_s * 1e3:g} ms cannot be held: {seen}")
        rate = self.stages[0].rate
        for (low, high), (before, after) in zip(pairwise(self.stages), pairwise(curve), strict=True):
            if after > p99_s:
                return low.rate + (high.rate - low.rate) * (p99_s - before) / (after - before)
            rate = high.rate
        return rate

    def _curve(self, latency_s: Callable[[Stage], float]) -> list[float]:
        return list(accumulate(map(latency_s, self.stages), max))


def read(reports: Iterable[tuple[str, str]]) -> Measured:
    """Return what these reports say, each a name and a content; raises ValueError if that is too little."""
    found = [stage for name, text in reports for stage in _stages(name, text)]
    _check(found)
    by_rate = {one.rate: one for one in found if one.is_kept_up}
    kept_up = [by_rate[rate] for rate in sorted(by_rate)]
    left_out = [str(one) for one in found if not (one.is_kept_up or one.is_overloaded)]
    if len(kept_up) < 2:
        raise ValueError(
            f"the replica kept up with {len(kept_up)} of {len(found)} stages, "
            "at least 2 of different rates are needed: "
            + "".join(f"{line}; " for line in left_out)
            + "measure with `dragoman loadtest --rate A --rate B --report FILE.json`"
        )
    capacity = max((one.summary.done_texts_rate for one in found if one.is_overloaded), default=None)
    highest = kept_up[-1].rate
    if capacity is not None and capacity < _KEPT_UP_RATIO * highest:
        left_out.append(
            f"an overloaded stage had {capacity:.1f} texts/s answered, but another kept up with {highest:.1f}: "
            "not taken for what the replica can do"
        )
        capacity = None
    return Measured(stages=tuple(kept_up), capacity=capacity, left_out=tuple(left_out))


def _check(found: list[Stage]) -> None:
    sizes = set()
    for one in found:
        name, named, summary = one.name, one.texts_per_call, one.summary
        if not summary.ok_rate:
            continue  # it is left out
        if summary.calls < _LEAST_CALLS:
            needed = f"at least {_LEAST_CALLS} are needed: measure it again with a longer --duration"
            raise ValueError(f"{name} has {summary.calls} calls, {needed}")
        if abs(summary.texts_rate / summary.ok_rate - named) > 0.05:
            answered = f"{summary.texts_rate / summary.ok_rate:.1f} were answered: measure it again"
            raise ValueError(f"{name} is said to have {named} texts a call, but {answered}")
        sizes.add(named)
    if len(sizes) > 1:
        raise ValueError(f"the stages have {sorted(sizes)} texts a call, they must have the same number")


def _stages(name: str, text: str) -> list[Stage]:
    try:
        report = json.loads(text)
        if report["callers"]:  # a closed loop: it offers what the server takes
            return []
        return [
            Stage(
                name=stage["name"],
                texts_per_call=report["texts_per_call"],
                warm_up_s=report["warm_up_s"],
                summary=Summary(**{field.name: stage[field.name] for field in fields(Summary)}),
            )
            for stage in report["stages"]
            if stage["calls"]
        ]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{name} is no JSON report of `dragoman loadtest`: {error}") from None


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


def _warnings(answer: Answer) -> list[str]:
    measured, each = answer.measured, answer.rate / answer.needed
    stages, best = measured.stages, answer.highest_rate
    warnings = list(measured.left_out)
    warnings += [
        f"{stage.name}: calls were sent up to {stage.summary.send_delay_ms_p99:.0f} ms late; "
        "measure again, on a quiet machine"
        for stage in stages
        if stage.summary.send_delay_ms_p99 > _LATE * 1e3 * stage.p99_s
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
