"""One process that sends calls when they are due and notes what becomes of them.

It is a process of its own so that several CPUs can send.  Its pipe carries, in this order:

    Task          to the worker
    Connected     from it: the stage may begin; or Unavailable, and it ends
    float         to it: time.monotonic() of the stage's start, the same for all workers
    SendProgress  from it, several times
    Ended         from it, and it ends
"""

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import NamedTuple, TypeAlias

import grpc
import grpc.aio
import numpy as np

from protos import translation_pb2 as pb
from service.client.channel import ClientConfig, call_metadata, open_aio_channel
from service.errors import Unavailable
from service.loadtest.records import OK, Records
from service.loadtest.schedule import Seconds

TranslateCall: TypeAlias = "grpc.aio.UnaryUnaryMultiCallable[bytes, pb.TranslateResponse]"

PROGRESS_PERIOD_S = 0.25
_SLEEP_LEAST_S = 0.0005  # what is due sooner is sent now: the event loop wakes no more precisely


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What one worker is to do."""

    address: str
    config: ClientConfig
    requests: Sequence[bytes]  # serialised TranslateRequest messages; taken in turn from `first_request` on
    due: Seconds  # of its calls; empty in a closed loop
    first_request: int = 0
    timeout_s: float = 60.0
    concurrency: int | None = None  # callers of a closed loop
    duration_s: float = 0.0  # of the closed loop


@dataclass(frozen=True, slots=True)
class Connected:
    """The server can be called; nothing is sent before the start is told."""


@dataclass(frozen=True, slots=True)
class SendProgress:
    """Calls since the start."""

    sent: int
    done: int
    failed: int


@dataclass(frozen=True, slots=True)
class Ended:
    """All calls have ended."""

    records: Records
    cpu_s: float  # that the worker used from the stage's start on


Message: TypeAlias = Connected | Unavailable | SendProgress | Ended


def run(parent: Connection) -> None:
    """Do the task that comes through the pipe."""
    with parent, suppress(EOFError, ConnectionError):  # the parent is gone: nobody wants the calls
        asyncio.run(send_calls(parent.recv(), parent))


async def send_calls(task: Task, parent: Connection) -> None:
    """Connect, report that, and send the calls from the start that the parent names."""
    async with open_aio_channel(task.address, task.config) as channel:
        call = channel.unary_unary(
            "/dragoman.v1.TranslationService/Translate",
            request_serializer=lambda request: request,
            response_deserializer=pb.TranslateResponse.FromString,
        )
        try:
            await asyncio.wait_for(channel.channel_ready(), task.timeout_s)
        except TimeoutError:
            parent.send(Unavailable(f"no server answers at {task.address} within {task.timeout_s:g} s"))
            return
        parent.send(Connected())
        sender = _Sender(task, call, start_at=await asyncio.to_thread(parent.recv))  # the end of the parent ends it
        used_s = time.process_time()
        telling = asyncio.create_task(_tell_progress(sender, parent))
        await (sender.closed_loop(task.concurrency) if task.concurrency else sender.open_loop())
        telling.cancel()
    parent.send(Ended(sender.records(), time.process_time() - used_s))


async def _tell_progress(sender: "_Sender", parent: Connection) -> None:
    while True:
        await asyncio.sleep(PROGRESS_PERIOD_S)
        parent.send(SendProgress(sender.num_sent, len(sender.ended), sender.num_failed))


class _EndedCall(NamedTuple):
    due: float
    sent: float
    done: float
    code: str
    texts: int


class _Sender:
    def __init__(self, task: Task, call: TranslateCall, start_at: float) -> None:
        self._task = task
        self._call = call
        self._start_at = start_at
        self._metadata = call_metadata(task.config)
        self.ended: list[_EndedCall] = []
        self.num_sent = 0
        self.num_failed = 0

    async def open_loop(self) -> None:
        pending: set[asyncio.Task[None]] = set()
        for index, due in enumerate(self._task.due.tolist()):
            wait_s = self._start_at + due - time.monotonic()
            if wait_s > _SLEEP_LEAST_S:
                await asyncio.sleep(wait_s)
            sending = asyncio.create_task(self._send(due, index))
            pending.add(sending)
            sending.add_done_callback(pending.discard)
            if wait_s <= _SLEEP_LEAST_S and index % 16 == 0:
                await asyncio.sleep(0)  # what was sent must also get onto the wire
        await asyncio.gather(*pending)

    async def closed_loop(self, concurrency: int) -> None:
        async def caller(number: int) -> None:
            while (now := time.monotonic() - self._start_at) < self._task.duration_s:
                await self._send(now, number + self.num_sent)

        await asyncio.sleep(max(0.0, self._start_at - time.monotonic()))
        await asyncio.gather(*(caller(number) for number in range(concurrency)))

    async def _send(self, due: float, index: int) -> None:
        task = self._task
        request = task.requests[(task.first_request + index) % len(task.requests)]
        self.num_sent += 1
        sent = time.monotonic()
        code, texts = OK, 0
        try:
            response = await self._call(request, timeout=task.timeout_s, metadata=self._metadata)
            texts = len(response.translations)
        except grpc.aio.AioRpcError as error:
            code = error.code().name
            self.num_failed += 1
        done = time.monotonic()
        self.ended.append(_EndedCall(due, sent - self._start_at, done - self._start_at, code, texts))

    def records(self) -> Records:
        due, sent, done, codes, texts = zip(*self.ended, strict=True) if self.ended else ((),) * 5
        return Records(
            due=np.array(due, dtype=np.float64),
            sent=np.array(sent, dtype=np.float64),
            done=np.array(done, dtype=np.float64),
            codes=np.array(codes, dtype=np.str_),
            texts=np.array(texts, dtype=np.int64),
        )
