"""One process that sends calls when they are due and notes what becomes of them.

A process of its own, so that several CPUs can send.  What goes through its pipe, in this order:

    Task        to the worker
    Connected   from it: the stage may begin; or Unreachable, and it ends
    float       to it: time.monotonic() of the stage's start, the same for all workers
    Progress    from it, several times
    Ended       from it, and it ends
"""

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import TypeAlias

import grpc
import grpc.aio
import numpy as np

from protos import translation_pb2 as pb
from service.arrivals import Seconds
from service.client.channel import ClientConfig, Metadata, call_metadata, open_aio_channel
from service.loadtest.records import OK, Records

Call: TypeAlias = "grpc.aio.UnaryUnaryMultiCallable[bytes, pb.TranslateResponse]"

PROGRESS_PERIOD_S = 0.25
_SLEEP_LEAST_S = 0.0005  # what is due sooner is sent now: the event loop wakes no more precisely


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What one worker is to do."""

    address: str
    config: ClientConfig
    due: Seconds  # of its calls; in a closed loop, ignored
    requests: Sequence[bytes]  # serialised TranslateRequest messages; taken in turn from `first_request` on
    first_request: int = 0
    timeout_s: float = 60.0
    concurrency: int | None = None  # a closed loop of this many callers
    duration_s: float = 0.0  # of the closed loop


@dataclass(frozen=True, slots=True)
class Connected:
    """The server can be called; nothing is sent before the start is told."""


@dataclass(frozen=True, slots=True)
class Unreachable:
    """No connection came about within the timeout."""

    message: str


@dataclass(frozen=True, slots=True)
class Progress:
    """Calls since the start."""

    sent: int
    done: int
    failed: int


@dataclass(frozen=True, slots=True)
class Ended:
    """All calls have ended."""

    records: Records
    cpu_s: float  # that the worker used from the stage's start on


Message: TypeAlias = Connected | Unreachable | Progress | Ended


def run(parent: Connection) -> None:
    """Do the task that comes through the pipe."""
    with parent, suppress(EOFError, ConnectionError):  # the parent is gone: nobody wants the calls
        asyncio.run(send_calls(parent.recv(), parent))


async def send_calls(task: Task, parent: Connection) -> None:
    """Connect, say so, and send the calls from when the parent says."""
    await _Worker(task, parent).run()


@dataclass(slots=True)
class _Worker:
    task: Task
    parent: Connection
    due: list[float] = field(default_factory=list)
    sent: list[float] = field(default_factory=list)
    done: list[float] = field(default_factory=list)
    codes: list[str] = field(default_factory=list)
    texts: list[int] = field(default_factory=list)
    num_sent: int = 0
    num_failed: int = 0
    metadata: Metadata = ()
    start_at: float = 0.0

    def __post_init__(self) -> None:
        self.metadata = call_metadata(self.task.config)

    async def run(self) -> None:
        async with open_aio_channel(self.task.address, self.task.config) as channel:
            call = channel.unary_unary(
                "/dragoman.v1.TranslationService/Translate",
                request_serializer=_as_it_is,
                response_deserializer=pb.TranslateResponse.FromString,
            )
            try:
                await asyncio.wait_for(channel.channel_ready(), self.task.timeout_s)
            except TimeoutError:
                self._tell(Unreachable(f"no server answers at {self.task.address} within {self.task.timeout_s:g} s"))
                return
            self._tell(Connected())
            self.start_at = await asyncio.to_thread(self.parent.recv)  # the end of the parent ends it
            used_s = time.process_time()
            telling = asyncio.create_task(self._tell_progress())
            await (self._closed_loop(call) if self.task.concurrency else self._open_loop(call))
            telling.cancel()
        self._tell(Ended(self._records(), time.process_time() - used_s))

    def _tell(self, message: Message) -> None:
        self.parent.send(message)

    async def _open_loop(self, call: Call) -> None:
        pending: set[asyncio.Task[None]] = set()
        for index, due in enumerate(self.task.due.tolist()):
            wait_s = self.start_at + due - time.monotonic()
            if wait_s > _SLEEP_LEAST_S:
                await asyncio.sleep(wait_s)
            sending = asyncio.create_task(self._send(call, due, index))
            pending.add(sending)
            sending.add_done_callback(pending.discard)
            if wait_s <= _SLEEP_LEAST_S and index % 16 == 0:
                await asyncio.sleep(0)  # what was sent must also get onto the wire
        await asyncio.gather(*pending)

    async def _closed_loop(self, call: Call) -> None:
        async def caller(number: int) -> None:
            while (now := time.monotonic() - self.start_at) < self.task.duration_s:
                await self._send(call, now, number + self.num_sent)

        await asyncio.sleep(max(0.0, self.start_at - time.monotonic()))
        await asyncio.gather(*(caller(number) for number in range(self.task.concurrency or 0)))

    async def _send(self, call: Call, due: float, index: int) -> None:
        request = self.task.requests[(self.task.first_request + index) % len(self.task.requests)]
        self.num_sent += 1
        sent = time.monotonic()
        code, texts = OK, 0
        try:
            response = await call(request, timeout=self.task.timeout_s, metadata=self.metadata)
            texts = len(response.translations)
        except grpc.aio.AioRpcError as error:
            code = error.code().name
            self.num_failed += 1
        done = time.monotonic()
        self.due.append(due)
        self.sent.append(sent - self.start_at)
        self.done.append(done - self.start_at)
        self.codes.append(code)
        self.texts.append(texts)

    async def _tell_progress(self) -> None:
        while True:
            await asyncio.sleep(PROGRESS_PERIOD_S)
            self._tell(Progress(self.num_sent, len(self.done), self.num_failed))

    def _records(self) -> Records:
        return Records(
            due=np.array(self.due),
            sent=np.array(self.sent),
            done=np.array(self.done),
            codes=np.array(self.codes, dtype=np.str_),
            texts=np.array(self.texts, dtype=np.int64),
        )


def _as_it_is(request: bytes) -> bytes:
    return request
