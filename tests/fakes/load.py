"""Starts `load_process` processes, and says what their records show."""

import asyncio
import pickle
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import numpy as np

from protos import translation_pb2 as pb
from tests.fakes.calls import Calls, calling, code_of
from tests.fakes.load_process import Plan, Record, Source
from tests.fakes.server_process import ROOT

PROGRAM = "from tests.fakes.load_process import main; main()"
LATE_END_S = 60.0  # a generator that has not ended this long after its plan hangs


@dataclass(frozen=True, slots=True)
class Load:
    records: tuple[Record, ...]

    def where(self, is_meant: Callable[[Record], bool]) -> "Load":
        return Load(tuple(record for record in self.records if is_meant(record)))

    def phase(self, number: int) -> "Load":
        return self.where(lambda record: record.phase == number)

    def of(self, *codes: str) -> "Load":
        return self.where(lambda record: record.code in codes)

    def between(self, first_s: float, last_s: float) -> "Load":
        """Calls meant for a time between these, in seconds after the first call."""
        start = min((record.intended for record in self.records), default=0.0)
        return self.where(lambda record: first_s <= record.intended - start < last_s)

    @property
    def codes(self) -> dict[str, int]:
        return dict(Counter(record.code for record in self.records))

    def good(self, deadline_s: float) -> int:
        """Calls that were OK within the deadline, counted from when they were meant to begin."""
        return sum(record.code == "OK" and record.done - record.intended <= deadline_s for record in self.records)

    def latency(self, quantile: float, *, since_sent: bool = False) -> float:
        """Seconds from the intended time (or from the actual one) to the answer."""
        seconds = [record.done - (record.sent if since_sent else record.intended) for record in self.records]
        return float(np.quantile(seconds, quantile)) if seconds else float("nan")

    def lateness(self, quantile: float) -> float:
        """Seconds by which the generator itself was late."""
        seconds = [record.sent - record.intended for record in self.records]
        return float(np.quantile(seconds, quantile)) if seconds else float("nan")


async def offer(
    address: str, *sources: Source, directory: Path, seed: int = 1, cpu: int | None = None, start_at: float = 0.0
) -> Load:
    """The calls of these sources, once all have ended.

    Args:
        directory: for the records.
        cpu: the only CPU that the generator may use; None for all.
        start_at: time.monotonic() of the plan's beginning; in the past: as soon as there is a connection.
    """
    records = directory / f"records-{seed}-{id(sources)}"
    plan = Plan(address=address, records=str(records), sources=sources, seed=seed, start_at=start_at)
    pin = () if cpu is None else ("taskset", "-c", str(cpu))
    process = await asyncio.create_subprocess_exec(
        *pin, sys.executable, "-c", PROGRAM, cwd=ROOT, stdin=asyncio.subprocess.PIPE
    )
    longest_s = max(sum(seconds for _, seconds in source.phases) + source.timeout_s for source in sources)
    try:
        async with asyncio.timeout(longest_s + LATE_END_S):
            await process.communicate(pickle.dumps(plan))
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, "the load generator failed"
    found: list[Record] = pickle.loads(records.read_bytes())
    records.unlink()
    return Load(tuple(found))


def jain_index(values: Iterable[float]) -> float:
    """1 for equal shares, 1/n when one has all (Jain, Chiu and Hawe 1984)."""
    shares = np.asarray(list(values), float)
    return float(shares.sum() ** 2 / (len(shares) * (shares**2).sum()))


async def closed_loop_rate(
    address: str, texts: Sequence[str], *, seconds: float, concurrency: int, metadata: Sequence[tuple[str, str]] = ()
) -> float:
    """Texts a second with this many callers, each with one text at a time; the first third warms up."""
    answered: list[float] = []
    began = time.monotonic()
    async with calling(address) as calls:

        async def caller(number: int) -> None:
            turn = number
            while time.monotonic() < began + seconds:
                await calls.translate(texts[turn % len(texts)], metadata=metadata)
                answered.append(time.monotonic())
                turn += concurrency

        await asyncio.gather(*(caller(number) for number in range(concurrency)))
    counted = [at for at in answered if began + seconds / 3 <= at < began + seconds]
    return len(counted) / (seconds * 2 / 3)


@dataclass
class Probe:
    waits: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def p99(self) -> float:
        """Seconds."""
        return float(np.quantile(self.waits, 0.99))


@asynccontextmanager
async def probing(
    calls: Calls, pause_s: float = 0.01, metadata: Sequence[tuple[str, str]] = ()
) -> AsyncIterator[Probe]:
    """A caller that goes on for as long as the block lasts."""
    probe, is_over, options = Probe(), asyncio.Event(), pb.TranslateOptions(beam_size=1)

    async def caller() -> None:
        while not is_over.is_set():
            began = time.monotonic()
            code = await code_of(calls.translate("Hi.", metadata=metadata, options=options))
            probe.waits.append(time.monotonic() - began)
            if code is not grpc.StatusCode.OK:
                probe.errors.append(code.name)
            await asyncio.sleep(pause_s)

    task = asyncio.create_task(caller())
    try:
        yield probe
    finally:
        is_over.set()
        await asyncio.wait_for(task, 60)
