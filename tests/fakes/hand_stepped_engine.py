"""An engine supervisor without a process: its engine makes a step, dies and comes back when the test says so."""

import time
from collections.abc import Sequence

from service.engine.job import Outcome
from service.engine.loop import EngineLoop
from service.engine.process import Cancel, Command, Report, Start
from service.engine.spec import EngineSpec
from service.engines.supervisor import EngineListener, SupervisorConfig
from tests.fakes.fake_runner import FakeRunner


class HandSteppedEngine:
    """In place of `EngineSupervisor`: the engine loop itself around a scripted model."""

    def __init__(self, spec: EngineSpec, config: SupervisorConfig, listener: EngineListener) -> None:
        self.started_ids: list[int] = []
        self.most_rows = 0
        self._spec = spec
        self._listener = listener
        self._loop: EngineLoop | None = None
        self._without_answer: set[int] = set()

    def _new_loop(self) -> EngineLoop:
        return EngineLoop(FakeRunner(), self._spec.scheduler, clock=lambda: time.monotonic())  # noqa: PLW0108  patched

    @property
    def is_up(self) -> bool:
        """Whether the engine takes commands."""
        return self._loop is not None

    @property
    def pid(self) -> int | None:
        """Some number while it is up."""
        return 1 if self.is_up else None

    async def start(self) -> None:
        """Be up."""
        self._loop = self._new_loop()

    async def stop(self) -> None:
        """Be gone."""
        self._loop = None

    def send(self, commands: Sequence[Command]) -> None:
        """Hand on to the engine, if there is one."""
        if self._loop is None:
            return
        for command in commands:
            match command:
                case Start(job):
                    self.started_ids.append(job.id)
                    self._without_answer.add(job.id)
                    self._loop.submit(job)
                case Cancel(job_id):
                    self._loop.cancel(job_id)

    def step(self) -> None:
        """One decoder step, and a report of it."""
        if self._loop is None:
            return
        outcomes: tuple[Outcome, ...] = tuple(self._loop.step())
        stats = self._loop.take_stats()
        self.most_rows = max(self.most_rows, stats.live_rows)
        for outcome in outcomes:
            self._without_answer.remove(outcome.job_id)  # fails when it is answered twice
        self._listener.heard(Report(outcomes, stats))

    def die(self, *, is_delayed: bool) -> None:
        """Be lost with everything it holds; with a pause before the next attempt, or not."""
        if self._loop is not None:
            self._loop = None
            self._without_answer.clear()
            self._listener.lost("killed by the test")
            if is_delayed:
                self._listener.delayed(1.0)

    def come_back(self) -> None:
        """A new engine in the old one's place."""
        if self._loop is None:
            self._listener.starting()
            self._loop = self._new_loop()
            self._listener.restarted()
