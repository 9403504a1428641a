"""A dispatcher with real engine processes around a scripted model.

The token a source begins with says what the engine does with it: see fake_runner.py.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from model.config import EOS_ID
from service.engine.job import Job, JobResult, SearchParams, StepStats
from service.engine.loop import EngineLoop
from service.engine.scheduler import SchedulerConfig
from service.engine.spec import EngineSpec
from service.engines.dispatcher import DispatchConfig, Dispatcher
from tests.fakes.fake_runner import SLOW_TOKEN, FakeRunner

SPEC = EngineSpec(
    bundle_dir=Path("no-bundle"),
    scheduler=SchedulerConfig(max_rows=8),
    heartbeat_interval_s=0.02,
    runner_factory="tests.fakes.fake_runner:create",
)
CONFIG = DispatchConfig(lookahead_jobs=1, restart_backoff_s=0.01, start_timeout_s=60.0)
PARAMS = SearchParams(beam_size=2, max_target_tokens=12)
LONG = replace(PARAMS, max_target_tokens=500)
NORMAL = (5, 6, EOS_ID)
SLOW = (SLOW_TOKEN, *range(5, 25), EOS_ID)  # so long that it needs a good second


@dataclass
class Counts:
    """An EngineObserver that remembers."""

    stats: list[StepStats] = field(default_factory=list)
    losses: int = 0
    dropped: list[tuple[str, str]] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def step(self, stats: StepStats) -> None:
        self.stats.append(stats)
        self.changed.set()

    def engine_lost(self) -> None:
        self.losses += 1
        self.changed.set()

    def job_dropped(self, where: Literal["queue", "decode"], reason: str) -> None:
        self.dropped.append((where, reason))
        self.changed.set()

    async def until(self, fact: Callable[[], bool]) -> None:
        """Return once it is so; looks whenever something was observed."""
        async with asyncio.timeout(60):
            while not fact():
                self.changed.clear()
                await self.changed.wait()


@asynccontextmanager
async def running(
    spec: EngineSpec = SPEC, config: DispatchConfig = CONFIG, observer: Counts | None = None
) -> AsyncIterator[Dispatcher]:
    """One whose engines are up, closed at the end."""
    dispatcher = Dispatcher(spec, config, observer=observer)
    await dispatcher.start()
    try:
        yield dispatcher
    finally:
        await dispatcher.close()


def expected(source: tuple[int, ...], params: SearchParams = PARAMS) -> JobResult:
    """What an engine in this process makes of the sentence."""
    engine = EngineLoop(FakeRunner())
    engine.submit(Job(id=0, source_ids=source, params=params))
    while not engine.is_idle:
        for outcome in engine.step():
            assert isinstance(outcome, JobResult)
            return outcome
    raise AssertionError
