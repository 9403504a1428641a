"""Stages of load on one server, by the library of `dragoman loadtest`: rates that hold a target, callers, latency."""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from service.cli.loadtest import LoadTest, run
from service.loadtest.records import Summary
from service.loadtest.search import LatencyTarget, highest_rate
from service.records import TranslateOptions

WARM_UP = 0.2  # of a stage
PRECISION = 0.06  # to which a highest rate is found
FIRST = 0.65  # of what callers who wait get, where the search for a rate begins: its next step is beyond the capacity
CALLERS = (32, 128)
SHARES = (0.25, 0.5, 0.75)  # of the highest rate, at which latency is measured


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """What a call asks for."""

    beam_size: int
    use_shortlist: bool

    def __str__(self) -> str:
        return f"beam {self.beam_size}{', shortlist' if self.use_shortlist else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """What a server carries of one kind of search."""

    search: Search
    held: dict[float, float]  # milliseconds of a p99 -> highest rate that holds it; 0: none did
    callers: dict[int, Summary]  # number of callers who wait -> what they got
    shares: dict[float, Summary]  # share of the rate that holds the reference -> latency there


@dataclass(slots=True, kw_only=True)
class Sender:
    """Sends the same texts to one server, stage after stage."""

    address: str
    texts: Path
    stage_s: float
    console: Console
    num_stages: int = 0
    warnings: list[str] = field(default_factory=list)  # of stages where the sender could not keep up

    def at_rate(self, search: Search, rate: float) -> Summary:
        """Calls at random times, so many a second."""
        return self._stage(search, rates=(rate,))

    def callers(self, search: Search, number: int) -> Summary:
        """Callers who wait for their answer before they call again."""
        return self._stage(search, concurrency=number)

    def _stage(self, search: Search, **load: Any) -> Summary:
        report = run(
            LoadTest(
                server=self.address,
                texts=self.texts,
                options=(TranslateOptions(beam_size=search.beam_size, use_shortlist=search.use_shortlist),),
                duration_s=self.stage_s,
                warm_up_s=WARM_UP * self.stage_s,
                **load,
            ),
            self.console,
        )
        self.num_stages += 1
        self.warnings += report.warnings
        return report.stages[0].summary


def measured(sender: Sender, search: Search, targets_ms: Sequence[float], reference_ms: float) -> Capacity:
    """All stages of one kind of search.

    Args:
        reference_ms: one of the targets; latency is measured at shares of the rate that holds it.
    """
    callers = {number: sender.callers(search, number) for number in CALLERS}
    first = round(FIRST * max(summary.done_rate for summary in callers.values()), 1)
    held = highest_rates(lambda rate: sender.at_rate(search, rate), targets_ms, first)
    reference = held[reference_ms]
    shares = {share: sender.at_rate(search, share * reference) for share in SHARES if reference}
    return Capacity(search=search, held=held, callers=callers, shares=shares)


def highest_rates(
    try_rate: Callable[[float], Summary], targets_ms: Sequence[float], first: float
) -> dict[float, float]:
    """For each p99 the highest rate that holds it, as `dragoman loadtest --find-p99` looks for it.

    The searches begin at the same rate and so ask for many of the same ones: a stage serves all that ask for it.  One
    that asks again, because it does not trust a break, gets another stage.
    """
    stages: defaultdict[float, list[Summary]] = defaultdict(list)

    def found(target_ms: float) -> float:
        asked: Counter[float] = Counter()

        def shared(rate: float) -> Summary:
            asked[rate] += 1
            if asked[rate] > len(stages[rate]):
                stages[rate].append(try_rate(rate))
            return stages[rate][asked[rate] - 1]

        return highest_rate(shared, LatencyTarget(p99_ms=target_ms), first=first, precision=PRECISION)[0]

    return {target_ms: found(target_ms) for target_ms in sorted(targets_ms)}
