"""A load that does not wait: calls begin at the times of a Poisson process, whatever became of those before.

`main` is a process of its own, so that its work and the test's disturb each other little: it reads a pickled plan from
standard input and pickles a list of records into the plan's file; `load.py` starts it.
"""

import asyncio
import gc
import pickle
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import numpy as np
from google.rpc import error_details_pb2, status_pb2

from protos import translation_pb2 as pb

TRANSLATE = "/dragoman.v1.TranslationService/Translate"
LATEST_S = 0.0005  # a call this close to its time is sent rather than waited for
# Without a policy for retries every status is seen; what a server has refused unseen (REFUSED_STREAM: a call that was
# begun before the end of one that was taken back had arrived) is sent again by gRPC itself.
CHANNEL_OPTIONS = [
    ("grpc.use_local_subchannel_pool", 1),  # a connection for each channel
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One client: what it sends and how often."""

    phases: tuple[tuple[float, float], ...]  # calls per second, seconds
    name: str = ""
    texts: tuple[str, ...] = ("abcdefgh",)  # one a call, in turn
    beam_size: int | None = 1
    priority: int = 0
    timeout_s: float = 30.0
    cancel_share: float = 0.0  # of its calls, cancelled after up to `cancel_within_s`
    cancel_within_s: float = 0.1
    metadata: tuple[tuple[str, str], ...] = ()
    num_channels: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything that the process is told."""

    address: str
    records: str  # where they go
    sources: tuple[Source, ...]
    seed: int = 1
    start_at: float = 0.0  # time.monotonic(); in the past: at once


@dataclass(slots=True)
class Record:
    """One call; times on time.monotonic(), which processes of a machine share."""

    source: int
    phase: int
    intended: float
    sent: float = 0.0
    done: float = 0.0
    code: str = ""
    reason: str = ""
    details: bytes = field(default=b"", repr=False)


def arrivals(phases: Sequence[tuple[float, float]], random: np.random.Generator) -> list[tuple[float, int]]:
    """Seconds from the start, and phase, of every call."""
    times: list[tuple[float, int]] = []
    began = 0.0
    for phase, (rate, seconds) in enumerate(phases):
        count = random.poisson(rate * seconds)  # given their number, the points of a Poisson process are uniform
        times += [(float(point), phase) for point in np.sort(random.uniform(began, began + seconds, count))]
        began += seconds
    return times


class Generator:
    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._random = np.random.default_rng(plan.seed)
        self._records: list[Record] = []
        self._methods = [[self._method() for _ in range(source.num_channels)] for source in plan.sources]
        self._requests = [[_request(source, text) for text in source.texts] for source in plan.sources]
        self._channels: list[grpc.aio.Channel]

    def _method(self) -> tuple[grpc.aio.Channel, Any]:
        channel = grpc.aio.insecure_channel(self._plan.address, options=CHANNEL_OPTIONS)
        return channel, channel.unary_unary(TRANSLATE, None, None)

    async def run(self) -> list[Record]:
        channels = [channel for methods in self._methods for channel, _ in methods]
        await asyncio.gather(*(asyncio.wait_for(channel.channel_ready(), 60) for channel in channels))
        start = max(self._plan.start_at, time.monotonic())
        schedule = sorted(
            (start + offset, number, phase)
            for number, source in enumerate(self._plan.sources)
            for offset, phase in arrivals(source.phases, self._random)
        )
        calls: set[asyncio.Task[None]] = set()
        for turn, (intended, number, phase) in enumerate(schedule):
            if (wait_s := intended - time.monotonic()) > LATEST_S:
                await asyncio.sleep(wait_s)
            elif turn % 8 == 0:
                await asyncio.sleep(0)  # late: answers must be taken in all the same
            record = Record(number, phase, intended)
            self._records.append(record)
            call = asyncio.create_task(self._call(turn, record))
            calls.add(call)
            call.add_done_callback(calls.discard)
        await asyncio.gather(*calls)
        await asyncio.gather(*(channel.close() for channel in channels))
        return self._records

    async def _call(self, turn: int, record: Record) -> None:
        source, requests = self._plan.sources[record.source], self._requests[record.source]
        methods = self._methods[record.source]
        record.sent = time.monotonic()
        _, method = methods[turn % len(methods)]
        call = method(requests[turn % len(requests)], timeout=source.timeout_s, metadata=source.metadata)
        if source.cancel_share and self._random.random() < source.cancel_share:
            asyncio.get_running_loop().call_later(self._random.random() * source.cancel_within_s, call.cancel)
        code = await call.code()
        record.done = time.monotonic()
        record.code = code.name
        if code is not grpc.StatusCode.OK and not call.cancelled():
            trailers = dict(await call.trailing_metadata() or ())
            record.details = trailers.get("grpc-status-details-bin", b"")


def _request(source: Source, text: str) -> bytes:
    options = None if source.beam_size is None else pb.TranslateOptions(beam_size=source.beam_size)
    request = pb.TranslateRequest(texts=[text], options=options)
    request.priority = source.priority  # type: ignore[assignment]  # its number
    return request.SerializeToString()


def _reason(details: bytes) -> str:
    info = error_details_pb2.ErrorInfo()
    for detail in status_pb2.Status.FromString(details).details:
        if detail.Unpack(info):
            return str(info.reason)
    return ""


def main() -> None:
    """Read a plan, carry it out, write the records."""
    plan: Plan = pickle.load(sys.stdin.buffer)
    gc.disable()  # a look at all records is a pause of 20 ms, which would count as the server's

    async def generate() -> list[Record]:
        return await Generator(plan).run()  # channels belong to the loop they are made in

    records = asyncio.run(generate())
    for record in records:
        record.reason, record.details = _reason(record.details), b""
    Path(plan.records).write_bytes(pickle.dumps(records))
