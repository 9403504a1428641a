"""Replacement of engines, with scripted links instead of processes."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from service.engine.process import Cancel, Command, Report
from service.engine.spec import EngineSpec
from service.engines import supervisor
from service.engines.engine_process import EngineStartError
from service.engines.supervisor import EngineSupervisor, SupervisorConfig

SPEC = EngineSpec(bundle_dir=Path("no-bundle"))
CONFIG = SupervisorConfig(restart_backoff_s=0.5, max_restart_backoff_s=1.5, heartbeat_timeout_s=7.0)


@dataclass
class ScriptedLink:
    """Gives one report and is lost when told to be."""

    pid: int
    is_lost: asyncio.Event = field(default_factory=asyncio.Event)
    sent: list[Command] = field(default_factory=list)
    is_killed: bool = False
    is_condemned: bool = False

    def condemn(self, fault: str) -> None:
        self.is_condemned = True

    async def reports(self, silence_limit_s: float) -> AsyncIterator[Report]:
        assert silence_limit_s == CONFIG.heartbeat_timeout_s
        yield Report()
        await self.is_lost.wait()

    async def finish(self, timeout_s: float) -> None:
        pass

    async def describe_end(self) -> str:
        return f"end of {self.pid}"

    def send(self, commands: Sequence[Command]) -> None:
        self.sent += commands

    async def kill(self) -> None:
        self.is_killed = True


@dataclass
class Events:
    """An EngineListener that remembers."""

    seen: list[str] = field(default_factory=list)
    delays: list[float] = field(default_factory=list)
    attempts: list[str] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def heard(self, report: Report) -> None:
        self.add("heard")

    def lost(self, reason: str) -> None:
        self.add(f"lost: {reason}")

    def delayed(self, retry_in_s: float) -> None:
        self.delays.append(retry_in_s)
        self.attempts.append(f"delayed for {retry_in_s:g} s")

    def starting(self) -> None:
        self.attempts.append("starting")

    def restarted(self) -> None:
        self.add("restarted")

    def add(self, event: str) -> None:
        self.seen.append(event)
        self.changed.set()

    async def until(self, count: int) -> None:
        async with asyncio.timeout(10):
            while len(self.seen) < count:
                self.changed.clear()
                await self.changed.wait()


@dataclass
class World:
    """Starts that fail or give links as scripted, and pauses that take no time."""

    keeper: EngineSupervisor
    events: Events
    starts: list[ScriptedLink | Exception]
    pauses: list[float]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    pauses: list[float] = []
    starts: list[ScriptedLink | Exception] = []
    real_sleep = asyncio.sleep

    async def start_engine(spec: EngineSpec, timeout_s: float) -> ScriptedLink:
        assert (spec, timeout_s) == (SPEC, CONFIG.start_timeout_s)
        start = starts.pop(0)
        if isinstance(start, Exception):
            raise start
        return start

    async def sleep(delay_s: float) -> None:
        pauses.append(delay_s)
        await real_sleep(0)

    monkeypatch.setattr(supervisor, "start_engine", start_engine)
    monkeypatch.setattr("service.engines.supervisor.asyncio.sleep", sleep)
    events = Events()
    return World(EngineSupervisor(SPEC, CONFIG, events), events, starts, pauses)


async def test_engine_is_missing_from_its_loss_until_another_takes_its_place_however_many_starts_fail(world):
    first, second = ScriptedLink(1), ScriptedLink(2)
    starts = [first, EngineStartError("no memory"), EngineStartError("no memory"), second]
    world.starts += starts
    missing = [world.keeper.is_missing]
    world.events.delayed = lambda _: missing.append(world.keeper.is_missing)
    await world.keeper.start()
    missing.append(world.keeper.is_missing)
    await world.events.until(1)

    first.is_lost.set()
    await world.events.until(4)

    assert missing == [False, False, True, True]
    assert (world.keeper.is_missing, world.keeper.pid) == (False, 2)
    second.is_condemned = True
    assert world.keeper.is_missing
    await world.keeper.stop()


async def test_lost_engine_is_replaced_at_once(world):
    first, second = ScriptedLink(1), ScriptedLink(2)
    world.starts += [first, second]
    await world.keeper.start()
    assert (world.keeper.is_up, world.keeper.pid) == (True, 1)
    await world.events.until(1)

    first.is_lost.set()
    await world.events.until(4)

    assert world.events.seen == ["heard", "lost: end of 1", "restarted", "heard"]
    assert world.pauses == [0.0]
    assert world.events.delays == []
    assert world.keeper.pid == 2
    await world.keeper.stop()


async def test_condemned_engine_takes_nothing_more_and_is_replaced(world):
    bad, good = ScriptedLink(1), ScriptedLink(2)
    world.starts += [bad, good]
    await world.keeper.start()
    await world.events.until(1)

    world.keeper.condemn("gave nobody finite scores")

    assert bad.is_condemned
    assert not world.keeper.is_up
    bad.is_lost.set()
    await world.events.until(4)
    assert (world.keeper.is_up, world.keeper.pid) == (True, 2)
    await world.keeper.stop()


async def test_attempts_in_a_row_wait_twice_as_long_each_up_to_the_limit(world):
    first, last = ScriptedLink(1), ScriptedLink(2)
    world.starts += [first, *(EngineStartError("no") for _ in range(4)), last]
    await world.keeper.start()

    first.is_lost.set()
    await world.events.until(4)

    assert world.pauses == [0.0, 0.5, 1.0, 1.5, 1.5]
    assert world.events.delays == [0.5, 1.0, 1.5, 1.5]
    await world.keeper.stop()


async def test_each_attempt_is_told_of_once_the_pause_before_it_is_over(world):
    first, last = ScriptedLink(1), ScriptedLink(2)
    world.starts += [first, EngineStartError("no"), EngineStartError("no"), last]
    await world.keeper.start()

    first.is_lost.set()
    await world.events.until(4)

    assert world.events.attempts == ["starting", "delayed for 0.5 s", "starting", "delayed for 1 s", "starting"]
    await world.keeper.stop()


@pytest.mark.parametrize("error", [OSError(24, "Too many open files"), KeyError("a bug of ours")])
async def test_attempt_that_fails_in_an_unforeseen_way_is_followed_by_the_next(world, error):
    first, last = ScriptedLink(1), ScriptedLink(2)
    world.starts += [first, error, last]
    await world.keeper.start()

    first.is_lost.set()
    await world.events.until(4)

    assert world.keeper.pid == 2
    assert world.pauses == [0.0, 0.5]
    await world.keeper.stop()


async def test_engine_that_is_soon_lost_again_does_not_start_from_zero(world):
    links = [ScriptedLink(number) for number in range(3)]
    world.starts += links
    await world.keeper.start()

    links[0].is_lost.set()
    links[1].is_lost.set()
    await world.events.until(7)

    assert world.pauses == [0.0, 0.5]
    await world.keeper.stop()


async def test_engine_that_lived_long_is_replaced_without_delay(world, monkeypatch):
    monkeypatch.setattr(supervisor, "_STABLE_AFTER_S", -1.0)
    links = [ScriptedLink(number) for number in range(3)]
    world.starts += links
    await world.keeper.start()

    links[0].is_lost.set()
    links[1].is_lost.set()
    await world.events.until(7)

    assert world.pauses == [0.0, 0.0]
    await world.keeper.stop()


async def test_first_start_that_fails_is_the_callers_to_handle(world):
    world.starts.append(EngineStartError("no bundle"))

    with pytest.raises(EngineStartError, match="no bundle"):
        await world.keeper.start()

    assert not world.keeper.is_up
    assert world.keeper.pid is None
    await world.keeper.stop()


async def test_stopped_engine_is_killed_and_not_replaced(world):
    link = ScriptedLink(1)
    world.starts.append(link)
    await world.keeper.start()
    await world.events.until(1)

    await world.keeper.stop()
    world.keeper.send([Cancel(1)])

    assert link.is_killed
    assert link.sent == []
    assert not world.keeper.is_up
    assert world.events.seen == ["heard"]


async def test_listener_that_fails_costs_the_engine_and_not_the_service(world):
    def fail(report: Report) -> None:
        world.events.heard = Events.heard.__get__(world.events)  # only once
        raise KeyError("a bug of ours")

    world.events.heard = fail
    world.starts += [ScriptedLink(1), ScriptedLink(2)]
    await world.keeper.start()

    await world.events.until(3)

    assert world.events.seen == ["lost: end of 1", "restarted", "heard"]
    await world.keeper.stop()
