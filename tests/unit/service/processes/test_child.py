"""What can go wrong between the core and a child, with a scripted process."""

import asyncio
import errno
from dataclasses import replace

import pytest

from service.engine.wire import Ready, Report, to_frame
from service.processes.process import ChildProcess, Program, Spare, StartError, start_child
from service.processes.rpc import FrameChannel

PROGRAM = Program(name="engine", command_line=lambda _: [], spec=lambda: None)


class ScriptedProcess:
    """A process that ends when it is killed."""

    pid = 2**30  # of no process
    returncode: int | None = None

    async def wait(self) -> int:
        self.returncode = -9
        return -9


def process_around(process: ScriptedProcess, *received: bytes) -> tuple[ChildProcess, FrameChannel]:
    channel = FrameChannel()
    for data in received:
        channel.data_received(data)
    return ChildProcess(process, channel, "engine"), channel  # type: ignore[arg-type]


async def test_process_that_cannot_be_made_is_one_that_does_not_start(monkeypatch):
    async def no_descriptors(*arguments: object, **settings: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr("service.processes.process.asyncio.create_subprocess_exec", no_descriptors)

    with pytest.raises(StartError, match=r"no process could be made.*Too many open files"):
        await start_child(PROGRAM, 60.0)


async def test_greeting_that_is_no_record_is_one_that_does_not_start(monkeypatch):
    process = ScriptedProcess()

    async def spawn(*_: object) -> ChildProcess:
        return process_around(process, b"\0\0\0\2no")[0]

    monkeypatch.setattr("service.processes.process._spawn", spawn)

    with pytest.raises(StartError, match="cannot be understood: UnpicklingError"):
        await start_child(PROGRAM, 60.0)
    assert process.returncode == -9


class TestSpare:
    @pytest.fixture
    def made(self, monkeypatch) -> list[ScriptedProcess]:
        """The processes that were made, which are ready at once."""
        made: list[ScriptedProcess] = []

        async def spawn(*_: object) -> ChildProcess:
            made.append(ScriptedProcess())
            return process_around(made[-1], to_frame(Ready()))[0]

        monkeypatch.setattr("service.processes.process._spawn", spawn)
        return made

    async def test_is_made_once_and_taken_by_the_next_start(self, made):
        spare = Spare("edge", lambda _: [])
        program = replace(PROGRAM, spare=spare)
        spare.make()
        spare.make()
        await asyncio.sleep(0)
        spare.make()
        await asyncio.sleep(0)
        assert len(made) == 1

        await start_child(program, 60.0)
        assert len(made) == 1
        await start_child(program, 60.0)
        assert len(made) == 2

    async def test_that_has_died_is_not_taken_and_is_made_again(self, made):
        spare = Spare("edge", lambda _: [])
        spare.make()
        await asyncio.sleep(0)

        made[0].returncode = -9
        assert spare.take() is None
        spare.make()
        await asyncio.sleep(0)
        assert spare.take() is not None


async def test_engine_that_is_heard_in_every_other_half_of_the_limit_is_not_killed(monkeypatch):
    pauses: list[float] = []
    engine, channel = process_around(ScriptedProcess())
    real_sleep, heard_in = asyncio.sleep, {1, 3, 5}  # halves; nothing comes in 6 and 7

    async def sleep(delay_s: float) -> None:
        pauses.append(delay_s)
        if len(pauses) in heard_in:
            channel.data_received(to_frame(Report()))
        for _ in range(5):
            await real_sleep(0)

    monkeypatch.setattr("service.processes.process.asyncio.sleep", sleep)
    reports: list[Report] = []
    following = asyncio.create_task(engine.listen(reports.append, 8.0))
    while not engine.is_unhealthy:
        await real_sleep(0)
    channel.connection_lost(None)

    await following
    assert (len(reports), pauses) == (3, [4.0] * 7)
    assert await engine.describe_end() == "it stopped answering and was killed"
