"""Settings of engines, threads and rows: those worth measuring, what is known of each, and which is the best.

Pure; runs nothing.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from statistics import median, quantiles
from typing import NamedTuple

from service.engine.job import JobResult, SearchParams
from service.engine.scheduler import SchedulerConfig

MAX_LATENCY_RATIO = 1.5  # a balanced setting answers a single sentence at most this much later than the best one
_SAME = 0.05  # speeds and latencies that differ by less count as equal: repeated runs differ by as much
_MAX_ROWS = (32, 64, 128, 256)


class Preference(StrEnum):
    """What makes a setting the best."""

    BALANCE = "balance"  # the highest throughput among those with a good latency
    LATENCY = "latency"
    THROUGHPUT = "throughput"


class Shape(NamedTuple):
    """What the latency of a sentence alone depends on."""

    num_engines: int
    threads: int  # per engine


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What is varied."""

    num_engines: int
    threads: int  # per engine
    max_rows: int  # per engine

    @property
    def shape(self) -> Shape:
        """The engines without their rows."""
        return Shape(self.num_engines, self.threads)

    def __str__(self) -> str:
        engines = "1 engine" if self.num_engines == 1 else f"{self.num_engines} engines"
        threads = "1 thread" if self.threads == 1 else f"{self.threads} threads"
        return f"{engines} x {threads}, max_rows {self.max_rows}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What one turn under load found."""

    rows_per_s: float  # row-steps, with every engine busy
    memory_bytes: int  # resident then, all engines together


@dataclass(slots=True)
class Measurement:
    """All that is known about a setting."""

    setting: Setting
    latencies_s: list[float]  # of sentences that were alone on the machine; shared by all settings of one shape
    turns: list[Turn] = field(default_factory=list)
    failure: str | None = None  # why it cannot be used

    @property
    def is_usable(self) -> bool:
        """Whether it has figures and may be chosen."""
        return bool(self.turns and self.latencies_s) and self.failure is None

    @property
    def rows_per_s(self) -> float:
        """Median over the turns."""
        return median(turn.rows_per_s for turn in self.turns)

    @property
    def spread(self) -> float:
        """How far the turns are apart, relative to their median."""
        speeds = [turn.rows_per_s for turn in self.turns]
        return (max(speeds) - min(speeds)) / median(speeds)

    @property
    def latency_p50_s(self) -> float:
        """Median of the single sentences."""
        return median(self.latencies_s)

    @property
    def latency_p95_s(self) -> float:
        """95 of 100 single sentences took at most this."""
        return quantiles(self.latencies_s * 2, n=20, method="inclusive")[-1]  # twice: it wants more than one

    @property
    def memory_bytes(self) -> int:
        """The most that a turn found."""
        return max(turn.memory_bytes for turn in self.turns)


class Sample:
    """The sentences that are measured with, and what the model makes of them, which is the same in every setting."""

    def __init__(self, sources: Sequence[tuple[int, ...]], params: SearchParams) -> None:
        """Take source ids, each with end-of-sentence; at least one."""
        self.params = params
        self._sources = sources
        self._steps: dict[tuple[int, ...], int] = {}
        self._tokens: dict[tuple[int, ...], int] = {}

    def source(self, number: int) -> tuple[int, ...]:
        """One of them; numbers go on without end."""
        return self._sources[number % len(self._sources)]

    def note(self, source: tuple[int, ...], result: JobResult) -> None:
        """Remember how much work a sentence was."""
        self._steps[source] = result.num_steps
        self._tokens[source] = len(result.hypotheses[0].token_ids)

    @property
    def rows_per_sentence(self) -> float:
        """Row-steps that a sentence takes on average."""
        return self.params.beam_size * sum(self._steps.values()) / len(self._steps)

    @property
    def tokens_per_sentence(self) -> float:
        """Target tokens of the best hypothesis on average."""
        return sum(self._tokens.values()) / len(self._tokens)


def choose(measured: Iterable[Measurement], preference: Preference) -> Measurement:
    """The best setting; of those that are as good, the one that needs the least memory.

    Args:
        measured: at least one of them usable.
    """
    usable = [each for each in measured if each.is_usable]
    best_s = min(each.latency_p50_s for each in usable)
    ratio = {Preference.BALANCE: MAX_LATENCY_RATIO, Preference.LATENCY: 1 + _SAME}.get(preference, float("inf"))
    quick = [each for each in usable if each.latency_p50_s <= ratio * best_s]
    top = max(each.rows_per_s for each in quick)
    return min((each for each in quick if each.rows_per_s >= (1 - _SAME) * top), key=lambda each: each.memory_bytes)


def shapes(num_cpus: int) -> list[Setting]:
    """Engines x threads worth measuring, few engines first: those that use all CPUs, and two that use half of them.

    Half of the CPUs can be all of the cores.
    """
    pairs = {(engines, num_cpus // engines) for engines in _halvings(num_cpus)}
    half = max(1, num_cpus // 2)
    rows = SchedulerConfig().max_rows
    return [
        Setting(num_engines=engines, threads=threads, max_rows=rows)
        for engines, threads in sorted(pairs | {(1, half), (half, 1)})
    ]


def with_other_rows(setting: Setting, beam_size: int) -> list[Setting]:
    """The same engines with every number of rows that a beam fits into, its own included."""
    rows = {setting.max_rows, *(max_rows for max_rows in _MAX_ROWS if max_rows >= beam_size)}
    return [replace(setting, max_rows=max_rows) for max_rows in sorted(rows)]


def _halvings(number: int) -> list[int]:
    """`number`, half of it, ... down to 1."""
    return [number >> shift for shift in range(number.bit_length())]
