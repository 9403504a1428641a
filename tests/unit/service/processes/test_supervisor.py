"""Replacement of processes, with scripted processes."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import pytest

from service.engine.wire import Report
from service.processes.supervisor import Program, StartError, Supervisor, SupervisorConfig

PROGRAM = Program(name="engine", command_line=lambda _: [], spec=lambda: None)
CONFIG = SupervisorConfig(restart_backoff_s=0.5, max_restart_backoff_s=1.5, heartbeat_timeout_s=7.0)


@dataclass
class ScriptedProcess:
    """Gives one report and is lost when told to be."""

    pid: int
    is_lost: asyncio.Event = field(default_factory=asyncio.Event)
    is_killed: bool = False
    is_unhealthy: bool = False

    def mark_unhealthy(self, fault: str) -> None:
        self.is_unhealthy = True

    async def listen(self, on_record: Callable[[Report], None], silence_limit_s: float) -> None:
        assert silence_limit_s == CONFIG.heartbeat_timeout_s
        on_record(Report())
        await self.is_lost.wait()

    async def finish(self, timeout_s: float) -> str:
        return f"end of {self.pid}"

    async def kill(self) -> None:
        self.is_killed = True


class World:
    """A supervisor whose starts fail or give processes as scripted, whose pauses take no time, and its events."""

    def __init__(self) -> None:
        self.starts: list[ScriptedProcess | Exception] = []
        self.events: list[str] = []
        self.num_bugs = 0  # reports that the owner fails to take
        self.changed = asyncio.Event()
        self.engine = Supervisor(
            PROGRAM,
            CONFIG,
            on_record=self.take_report,
            on_lost=lambda reason: self.note(f"lost: {reason}"),
            on_change=self.note_change,
        )

    def take_report(self, report: Report) -> None:
        if self.num_bugs:
            self.num_bugs -= 1
            raise KeyError("a bug of ours")
        self.note(f"report of {self.pid}")

    @property
    def pid(self) -> int | None:
        return self.engine.process.pid if self.engine.process else None

    def note_change(self) -> None:
        delay = f"waits {self.engine.retry_in_s:g} s" if self.engine.retry_in_s else f"up: {self.pid}"
        assert self.engine.is_missing is self.engine.is_delayed is (self.engine.retry_in_s is not None)
        self.note(delay)

    def note(self, event: str) -> None:
        self.events.append(event)
        self.changed.set()

    async def until(self, event: str) -> None:
        async with asyncio.timeout(10):
            while event not in self.events:
                self.changed.clear()
                await self.changed.wait()

    async def start(self, *starts: ScriptedProcess | Exception) -> None:
        self.starts += starts
        await self.engine.start()
        await self.until("report of 1")


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    world, real_sleep = World(), asyncio.sleep

    async def start_child(program: Program, timeout_s: float) -> ScriptedProcess:
        assert (program, timeout_s) == (PROGRAM, CONFIG.start_timeout_s)
        start = world.starts.pop(0)
        if isinstance(start, Exception):
            raise start
        return start

    async def sleep(delay_s: float) -> None:
        world.note(f"sleeps {delay_s:g} s")
        await real_sleep(0)

    monkeypatch.setattr("service.processes.supervisor.start_child", start_child)
    monkeypatch.setattr("service.processes.supervisor.asyncio.sleep", sleep)
    yield world
    await world.engine.stop()


async def test_unhealthy_engine_takes_nothing_more_and_is_replaced(world):
    bad = ScriptedProcess(1)
    await world.start(bad, ScriptedProcess(2))

    bad.mark_unhealthy("gave nobody finite scores")

    assert world.engine.is_missing
    bad.is_lost.set()
    await world.until("up: 2")
    assert not world.engine.is_missing


@pytest.mark.parametrize("error", [StartError("no"), OSError(24, "Too many open files"), KeyError("a bug of ours")])
async def test_attempts_in_a_row_wait_twice_as_long_each_up_to_the_limit_however_they_fail(world, error):
    first, last = ScriptedProcess(1), ScriptedProcess(2)
    await world.start(first, *[error] * 4, last)

    first.is_lost.set()
    await world.until("up: 2")

    waits = [event for event in world.events if event.startswith(("waits", "sleeps"))]
    assert waits == [f"{what} {delay} s" for delay in ("0.5", "1", "1.5", "1.5") for what in ("waits", "sleeps")]


@pytest.mark.parametrize(("stable_after_s", "num_waits"), [(30.0, 1), (-1.0, 0)])
async def test_engine_that_is_soon_lost_again_waits_and_one_that_lived_long_does_not(
    world, monkeypatch, stable_after_s, num_waits
):
    monkeypatch.setattr("service.processes.supervisor._STABLE_AFTER_S", stable_after_s)
    processes = [ScriptedProcess(number) for number in (1, 2, 3)]
    await world.start(*processes)

    processes[0].is_lost.set()
    processes[1].is_lost.set()
    await world.until("report of 3")

    assert world.events.count("waits 0.5 s") == num_waits
