"""Engines of a setting, and what they do: one sentence at a time, and with more than they can hold.

Real engine processes behind the server's own dispatcher.  Throughput is counted in row-steps, live hypotheses times
decoder steps: a sentence takes the same number of them in every setting, and a short turn holds thousands.  Latency is
that of a sentence alone on the machine, which the number of rows there could be does not change.
"""

import asyncio
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from statistics import median
from typing import Literal

from service.commands.tuning_choice import Sample, Setting, Turn
from service.config import EngineConfig
from service.dispatch.dispatcher import DispatchConfig, Dispatcher
from service.engine.job import JobResult, StepStats
from service.front.engine_start import engine_spec

_SENTENCES_APART = 101  # where turns begin in the sample, so that they do not all translate its first sentences
_SHARE_OF_WARM_UP = 0.25  # of a turn: the load runs but is not counted yet
_QUEUED_PER_ENGINE = 16  # sentences more than an engine can hold, so that it never waits
_SHARE_OF_MEMORY = 0.5  # of what is free: engines of several settings stay up side by side within this


class Meter:
    """Adds up what engines report; an `EngineObserver`."""

    def __init__(self) -> None:
        self.rows = 0
        self._reported = asyncio.Event()

    def step(self, stats: StepStats) -> None:
        self.rows += stats.rows
        self._reported.set()

    def engine_lost(self) -> None:
        """The jobs it had fail, and with them the turn."""

    def job_dropped(self, where: Literal["queue", "decode"], reason: str) -> None:
        """At the end of a turn."""

    async def report(self) -> None:
        """Return at the next report, of whichever engine."""
        self._reported.clear()
        await self._reported.wait()


class Engines:
    """The engines of one setting, warm."""

    def __init__(self, setting: Setting, dispatcher: Dispatcher, meter: Meter, sample: Sample) -> None:
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


class EnginePool:
    """Engines that stay up between their turns as far as memory reaches; the least recently used ones go first."""

    def __init__(self, bundle_dir: Path, config: EngineConfig, sample: Sample, start_timeout_s: float) -> None:
        self._bundle_dir = bundle_dir
        self._config = config
        self._sample = sample
        self._start_timeout_s = start_timeout_s
        self._up: dict[Setting, Engines] = {}  # least recently used first
        self._memory_bytes = _SHARE_OF_MEMORY * available_bytes()
        self._engine_bytes = 0  # of one engine, as far as is known

    async def engines(self, setting: Setting) -> Engines:
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

    async def _start(self, setting: Setting) -> Engines:
        chosen = replace(
            self._config, num_engines=setting.num_engines, threads=setting.threads, max_rows=setting.max_rows
        )
        meter = Meter()
        keeping = DispatchConfig(num_engines=setting.num_engines, start_timeout_s=self._start_timeout_s)
        dispatcher = Dispatcher(engine_spec(self._bundle_dir, chosen), keeping, observer=meter)
        try:
            await dispatcher.start()
        except BaseException:  # out of time, too: engines that are up already must not be left behind
            await dispatcher.close()
            raise
        return Engines(setting, dispatcher, meter, self._sample)


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
