"""What can go wrong between the front process and one engine, with a scripted process."""

import asyncio
import errno
from pathlib import Path

import pytest

from service.engine.job import Report, to_frame
from service.engine.spec import EngineSpec
from service.engines import engine_process
from service.engines.engine_process import EngineProcess, EngineStartError, start_engine

SPEC = EngineSpec(bundle_dir=Path("no-bundle"))


class ScriptedProcess:
    """A process that ends when it is killed."""

    pid = 2**30  # of no process
    returncode: int | None = None

    async def wait(self) -> int:
        self.returncode = -9
        return -9


class ScriptedWriter:
    """A pipe that swallows everything."""

    def write(self, frame: bytes) -> None:
        pass

    def close(self) -> None:
        pass

    async def wait_closed(self) -> None:
        pass


def process_around(process: ScriptedProcess, *received: bytes) -> tuple[EngineProcess, asyncio.StreamReader]:
    reader = asyncio.StreamReader()
    for data in received:
        reader.feed_data(data)
    return EngineProcess(process, reader, ScriptedWriter()), reader  # type: ignore[arg-type]


async def test_process_that_cannot_be_made_is_an_engine_that_does_not_start(monkeypatch):
    async def no_descriptors(*arguments: object, **settings: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr("service.engines.engine_process.asyncio.create_subprocess_exec", no_descriptors)

    with pytest.raises(EngineStartError, match=r"no process could be made.*Too many open files"):
        await start_engine(SPEC, 60.0)


async def test_greeting_that_is_no_record_is_an_engine_that_does_not_start(monkeypatch):
    process = ScriptedProcess()

    async def spawn() -> EngineProcess:
        return process_around(process, b"\0\0\0\2no")[0]

    monkeypatch.setattr(engine_process, "_spawn", spawn)

    with pytest.raises(EngineStartError, match="cannot be understood: UnpicklingError"):
        await start_engine(SPEC, 60.0)
    assert process.returncode == -9


async def test_engine_that_is_heard_in_every_other_half_of_the_limit_is_not_killed(monkeypatch):
    pauses: list[float] = []
    engine, reader = process_around(ScriptedProcess())
    real_sleep, heard_in = asyncio.sleep, {1, 3, 5}  # halves; nothing comes in 6 and 7

    async def sleep(delay_s: float) -> None:
        pauses.append(delay_s)
        if len(pauses) in heard_in:
            reader.feed_data(to_frame(Report()))
        for _ in range(5):
            await real_sleep(0)

    monkeypatch.setattr("service.engines.engine_process.asyncio.sleep", sleep)
    reports: list[Report] = []
    following = asyncio.create_task(engine.listen(reports.append, 8.0))
    while not engine.is_condemned:
        await real_sleep(0)
    reader.feed_eof()

    await following
    assert (len(reports), pauses) == (3, [4.0] * 7)
    assert await engine.describe_end() == "it stopped answering and was killed"
