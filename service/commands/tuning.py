"""Which engines, threads and rows suit a machine and a model: settings measured in turns, and one of them chosen.

Runs real engine processes through the server's own dispatcher.  Knows token ids and times; no text, tables or files.

Every setting is measured in several short turns that alternate with those of the others, so that a moment in which the
machine is slow meets all of them.  Throughput is counted in row-steps, live hypotheses times decoder steps: a sentence
takes the same number of them in every setting, and a short turn holds thousands.  Latency is that of a sentence alone
on the machine, which the number of rows there could be does not change.
"""

import asyncio
import os
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import count
from pathlib import Path
from statistics import median, quantiles
from typing import Literal, NamedTuple

from service.config import EngineConfig
from service.dispatch.dispatcher import DispatchConfig, Dispatcher
from service.engine.job import JobResult, SearchParams, StepStats
from service.engine.scheduler import SchedulerConfig
from service.errors import DragomanError
from service.front.engine_start import engine_spec
from service.threads import available_threads

MAX_LATENCY_RATIO = 1.5  # a balanced setting answers a single sentence at most this much later than the best one
_SAME = 0.05  # speeds and latencies that differ by less count as equal: repeated runs differ by as much
_CONTENDS = 0.25  # a setting so much slower than the best, in both, gets no more turns than ...
_MIN_ROUNDS = 2  # ... these
_MAX_ROWS = (32, 64, 128, 256)

_MAX_ROUNDS = 7  # turns of one setting; more change no median that matters
_SHARE_OF_SHAPES = 0.45  # of the time: engines x threads first, rows for the best of them afterwards
_TURNS_PLANNED = 5  # that the time of a stage is cut into, per setting; starting the engines takes some of it
_TURN_S = (0.3, 4.0)  # shortest and longest
_SHARE_OF_SINGLES = 0.3  # of a turn: sentences one at a time
_SENTENCES_APART = 101  # where turns begin in the sample, so that they do not all translate its first sentences
_SHARE_OF_WARM_UP = 0.25  # of a turn: the load runs but is not counted yet
_QUEUED_PER_ENGINE = 16  # sentences more than an engine can hold, so that it never waits
_SHARE_OF_MEMORY = 0.5  # of what is free: engines of several settings stay up side by side within this


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


class Tuner:
    """Measures settings on real engines."""

    def __init__(
        self,
        config: EngineConfig,
        sample: Sample,
        *,
        start_timeout_s: float,
        on_turn: Callable[[Setting], None] = lambda _: None,
    ) -> None:
        """Take what is the same for all settings.

        Args:
            on_turn: told of each turn when it begins.
        """
        self._pool = _Pool(config, sample, start_timeout_s)
        self._sample = sample
        self._on_turn = on_turn
        self._measured: dict[Setting, Measurement] = {}
        self._latencies_s: dict[Shape, list[float]] = {}
        self._num_singles = 0  # in each turn, the same sentences for every setting; 0: not known yet

    async def run(self, seconds: float, preference: Preference) -> list[Measurement]:
        """What was found within this time; the engines are gone afterwards."""
        began = time.monotonic()
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._stage(shapes(available_threads()), began + _SHARE_OF_SHAPES * seconds)
                    await self._stage(self._finalists(preference), began + seconds)
        finally:
            await self._pool.close()
        return list(self._measured.values())

    def _finalists(self, preference: Preference) -> list[Setting]:
        """The best engines x threads, with every number of rows."""
        measured = [each for each in self._measured.values() if each.is_usable]
        if not measured:
            return []
        return with_other_rows(choose(measured, preference).setting, self._sample.params.beam_size)

    async def _stage(self, settings: Sequence[Setting], until: float) -> None:
        """Give each setting a turn, and more as long as there is time and it has a chance."""
        await self._pool.keep(settings)
        turn_s = (until - time.monotonic()) / (_TURNS_PLANNED * max(1, len(settings)))
        turn_s = min(max(turn_s, _TURN_S[0]), _TURN_S[1])
        for number in range(_MAX_ROUNDS):
            contenders = [setting for setting in settings if self._contends(setting, number)]
            await self._pool.keep(contenders)
            for setting in contenders:
                if number > 0 and time.monotonic() + turn_s > until:
                    return
                self._on_turn(setting)
                await self._turn(setting, number, turn_s)

    async def _turn(self, setting: Setting, number: int, turn_s: float) -> None:
        """Single sentences unless only rows differ, and a load: the same sentences in this turn of each setting."""
        latencies_s = self._latencies_s.setdefault(setting.shape, [])
        measurement = self._measured.setdefault(setting, Measurement(setting, latencies_s))
        try:
            engines = await self._pool.engines(setting)
            if setting.max_rows == SchedulerConfig().max_rows:
                self._num_singles = self._num_singles or await engines.singles_in(_SHARE_OF_SINGLES * turn_s)
                latencies_s += await engines.latencies(number, self._num_singles)
            measurement.turns.append(await engines.load(number, turn_s * (1 - _SHARE_OF_SINGLES)))
        except DragomanError as error:
            measurement.failure = str(error)

    def _contends(self, setting: Setting, number: int) -> bool:
        """Whether it gets a turn in this round."""
        mine = self._measured.get(setting)
        if mine is None or (number < _MIN_ROUNDS and mine.failure is None):
            return True
        usable = [each for each in self._measured.values() if each.is_usable]
        return mine in usable and (
            mine.rows_per_s >= (1 - _CONTENDS) * max(each.rows_per_s for each in usable)
            or mine.latency_p50_s <= (1 + _CONTENDS) * min(each.latency_p50_s for each in usable)
        )


class _Meter:
    """Adds up what engines report; an `EngineObserver`."""

    def __init__(self) -> None:
        self.rows = 0
        self._reported = asyncio.Event()

    def step(self, stats: StepStats) -> None:
        self.rows += stats.rows
        self._reported.set()

    def engine_restarted(self) -> None:
        """The jobs it had fail, and with them the turn."""

    def job_dropped(self, where: Literal["queue", "decode"], reason: str) -> None:
        """At the end of a turn."""

    async def report(self) -> None:
        """Return at the next report, of whichever engine."""
        self._reported.clear()
        await self._reported.wait()


class _Engines:
    """The engines of one setting, warm."""

    def __init__(self, setting: Setting, dispatcher: Dispatcher, meter: _Meter, sample: Sample) -> None:
        self.setting = setting
        self.dispatcher = dispatcher
        self._meter = meter
        self._sample = sample
        self._is_loading = False
        self._held: set[asyncio.Future[JobResult]] = set()
        self._numbers = count()
        self._error: BaseException | None = None

    @property
    def memory_bytes(self) -> int:
        return sum(resident_bytes(pid) for pid in self.dispatcher.engine_pids)

    async def singles_in(self, seconds: float) -> int:
        """How many sentences can be translated one after the other in this time, about; at least 2."""
        return max(2, round(seconds / median(await self.latencies(0, 3))))

    async def latencies(self, number: int, num_singles: int) -> list[float]:
        """Seconds of sentences one after the other."""
        latencies_s: list[float] = []
        for index in range(num_singles):
            source = self._sample.source(_SENTENCES_APART * number + index)
            began = time.perf_counter()
            self._sample.note(source, await self.dispatcher.submit(source, self._sample.params, None))
            latencies_s.append(time.perf_counter() - began)
        return latencies_s

    async def load(self, number: int, seconds: float) -> Turn:
        """What the engines do with more sentences than they can hold."""
        self._numbers = count(_SENTENCES_APART * number)
        self._is_loading = True
        for _ in range(self._num_held()):
            self._submit()
        await asyncio.sleep(seconds * _SHARE_OF_WARM_UP)
        await self._meter.report()  # rows are known when an engine reports: both ends of the time lie there
        began, rows = time.perf_counter(), self._meter.rows
        await asyncio.sleep(seconds * (1 - _SHARE_OF_WARM_UP))
        await self._meter.report()
        rows_per_s = (self._meter.rows - rows) / (time.perf_counter() - began)
        turn = Turn(rows_per_s=rows_per_s, memory_bytes=self.memory_bytes)
        await self._unload()
        return turn

    def _num_held(self) -> int:
        """Sentences that keep every engine busy."""
        running = self.setting.max_rows // self._sample.params.beam_size
        return self.setting.num_engines * (running + _QUEUED_PER_ENGINE)

    def _submit(self) -> None:
        source = self._sample.source(next(self._numbers))
        future = self.dispatcher.submit(source, self._sample.params, None)
        self._held.add(future)
        future.add_done_callback(lambda done: self._settle(source, done))

    def _settle(self, source: tuple[int, ...], done: "asyncio.Future[JobResult]") -> None:
        self._held.discard(done)
        if done.cancelled():
            return
        if done.exception() is None:
            self._sample.note(source, done.result())
            if self._is_loading:
                self._submit()
        else:
            self._error = done.exception()

    async def _unload(self) -> None:
        """Take everything back that is under way, and wait until the engines have nothing to do."""
        self._is_loading = False
        for future in list(self._held):
            future.cancel()
        while self.dispatcher.running_jobs:
            await self._meter.report()
        if self._error is not None:
            raise self._error


class _Pool:
    """Engines that stay up between their turns as far as memory reaches; the least recently used ones go first."""

    def __init__(self, config: EngineConfig, sample: Sample, start_timeout_s: float) -> None:
        self._config = config
        self._sample = sample
        self._start_timeout_s = start_timeout_s
        self._up: dict[Setting, _Engines] = {}  # least recently used first
        self._memory_bytes = _SHARE_OF_MEMORY * available_bytes()
        self._engine_bytes = 0  # of one engine, as far as is known

    async def engines(self, setting: Setting) -> _Engines:
        """Those of a setting, started if they are not up.

        Raises:
            InternalError: they do not start.
        """
        engines = self._up.pop(setting, None)
        if engines is None:
            await self._make_room(setting.num_engines)
            engines = await self._start(setting)
        self._up[setting] = engines
        self._engine_bytes = max(self._engine_bytes, engines.memory_bytes // setting.num_engines)
        return engines

    async def keep(self, settings: Sequence[Setting]) -> None:
        """End the engines of all other settings."""
        for setting in self._up.keys() - set(settings):
            await self._end(setting)

    async def close(self) -> None:
        """End all."""
        await self.keep([])

    async def _make_room(self, num_engines: int) -> None:
        while self._up and (self._num_up() + num_engines) * self._engine_bytes > self._memory_bytes:
            await self._end(next(iter(self._up)))

    async def _end(self, setting: Setting) -> None:
        closing = asyncio.create_task(self._up.pop(setting).dispatcher.close())
        try:
            await asyncio.shield(closing)
        except asyncio.CancelledError:  # out of time; their processes must end all the same
            await closing
            raise

    def _num_up(self) -> int:
        return sum(setting.num_engines for setting in self._up)

    async def _start(self, setting: Setting) -> _Engines:
        chosen = replace(
            self._config, num_engines=setting.num_engines, threads=setting.threads, max_rows=setting.max_rows
        )
        meter = _Meter()
        keeping = DispatchConfig(num_engines=setting.num_engines, start_timeout_s=self._start_timeout_s)
        dispatcher = Dispatcher(engine_spec(chosen), keeping, observer=meter)
        try:
            await dispatcher.start()
        except BaseException:  # out of time, too: engines that are up already must not be left behind
            await dispatcher.close()
            raise
        return _Engines(setting, dispatcher, meter, self._sample)


def resident_bytes(pid: int) -> int:
    """Memory of a process that is in RAM, 0 when it is gone."""
    try:
        pages = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]
    except OSError:
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def available_bytes(meminfo: Path = Path("/proc/meminfo"), cgroup: Path = Path("/sys/fs/cgroup")) -> float:
    """Memory that can be taken without pushing others out: what the machine has left, and what the container may."""
    limits = [_limit_left(cgroup)]
    with suppress(OSError):
        lines = meminfo.read_text(encoding="ascii").splitlines()
        limits += [1_024.0 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")]
    return min(limits)


def _limit_left(cgroup: Path) -> float:
    try:
        limit = (cgroup / "memory.max").read_text(encoding="ascii").strip()
        used = (cgroup / "memory.current").read_text(encoding="ascii").strip()
    except OSError:
        return float("inf")
    return float("inf") if limit == "max" else float(limit) - float(used)
