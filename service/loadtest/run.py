"""Runs a stage of a load test: several processes that send calls when they are due, one clock, their records joined.

Each sender is a process of its own so that several CPUs can send.  Its pipe carries, in this order:

    Task          to the sender
    Connected     from it: the stage may begin; or Unavailable, and it ends
    float         to it: time.monotonic() of the stage's start, the same for all senders
    SendProgress  from it, several times
    Ended         from it, and it ends
"""

import asyncio
import multiprocessing
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from typing import NamedTuple, TypeAlias

import grpc
import grpc.aio
import numpy as np

from protos import translation_pb2 as pb
from service.client.channel import ClientConfig, RetryPolicy, call_metadata, open_aio_channel
from service.errors import Unavailable
from service.loadtest.records import OK, Records
from service.loadtest.schedule import Seconds, due_times

TranslateCall: TypeAlias = "grpc.aio.UnaryUnaryMultiCallable[bytes, pb.TranslateResponse]"

PROGRESS_PERIOD_S = 0.25
_SLEEP_LEAST_S = 0.0005  # what is due sooner is sent now: the event loop wakes no more precisely
_START_S = 0.1  # from the word to start until calls are due: it has reached every worker by then
_BOOT_S = 60.0  # for the processes to start, beside the time in which each may connect


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


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadConfig:
    """Who sends what to whom."""

    address: str
    requests: Sequence[bytes]  # serialised TranslateRequest messages, taken in turn
    # Without retries, or refusals would not be seen.
    client: ClientConfig = field(default_factory=lambda: ClientConfig(retry=RetryPolicy(max_attempts=1)))
    arrivals: str = "poisson"  # one of `schedule.ARRIVALS`
    timeout_s: float = 60.0
    num_workers: int = 1
    seed: int = 1


@dataclass(frozen=True, slots=True)
class StageOutcome:
    """What a stage gave."""

    records: Records
    cpu_s: float  # that the workers used, all together


OnProgress = Callable[[SendProgress], None]


def run_stage(
    load: LoadConfig, rate: float, duration_s: float, on_progress: OnProgress = lambda _: None
) -> StageOutcome:
    """Run an open loop: so many calls a second become due, whatever the server does.

    Raises:
        Unavailable: no server answers.
    """
    rng = None if load.arrivals == "constant" else np.random.default_rng(load.seed)
    times = due_times(rate, duration_s, rng)
    tasks = [
        Task(
            address=load.address,
            config=load.client,
            due=times[worker :: load.num_workers],
            requests=load.requests,
            first_request=worker * (len(load.requests) // load.num_workers),
            timeout_s=load.timeout_s,
        )
        for worker in range(load.num_workers)
    ]
    return _run(load, tasks, on_progress)


def run_closed(
    load: LoadConfig, concurrency: int, duration_s: float, on_progress: OnProgress = lambda _: None
) -> StageOutcome:
    """Run a closed loop: so many callers, each waiting for its answer before it calls again.

    Raises:
        Unavailable: no server answers.
    """
    tasks = [
        Task(
            address=load.address,
            config=load.client,
            due=np.empty(0),
            requests=load.requests,
            first_request=worker * len(load.requests) // load.num_workers,
            timeout_s=load.timeout_s,
            concurrency=concurrency // load.num_workers + (worker < concurrency % load.num_workers),
            duration_s=duration_s,
        )
        for worker in range(min(concurrency, load.num_workers))
    ]
    return _run(load, tasks, on_progress)


def _run(load: LoadConfig, tasks: Sequence[Task], on_progress: OnProgress) -> StageOutcome:
    with worker_processes(len(tasks)) as workers:
        for worker, task in zip(workers, tasks, strict=True):
            _tell(worker, task)
        start(workers, load.timeout_s + _BOOT_S)
        ended = _collect(workers, on_progress)
    return StageOutcome(Records.joined(part.records for part in ended), sum(part.cpu_s for part in ended))


@contextmanager
def worker_processes(number: int) -> Iterator[Sequence[Connection]]:
    """Yield connections to so many processes, which end with the block."""
    spawn = multiprocessing.get_context("spawn")  # gRPC does not survive a fork
    pipes = [spawn.Pipe() for _ in range(number)]
    processes = [spawn.Process(target=_serve, args=(theirs,), daemon=True) for _, theirs in pipes]
    try:
        with _without_ctrl_c():
            for process, (_, theirs) in zip(processes, pipes, strict=True):
                process.start()
                theirs.close()
        yield [ours for ours, _ in pipes]
    finally:
        for process in processes:
            if process.pid is not None:
                process.terminate()
                process.join()
        for ours, _ in pipes:
            ours.close()


@contextmanager
def _without_ctrl_c() -> Iterator[None]:
    """A terminal sends Ctrl-C to all processes; those that start here never see it, and end when this one ends them."""
    resource_tracker.ensure_running()  # or the start of the first process would start it, which lifts the mask
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def start(workers: Sequence[Connection], within_s: float) -> None:
    """Tell all workers the same start, when every one of them is connected.

    Raises:
        Unavailable: one could not connect, has died, or was not heard of in time.
    """
    waiting, until = set(workers), time.monotonic() + within_s
    while waiting:
        ready = wait(waiting, max(0.0, until - time.monotonic()))
        if not ready:
            raise Unavailable(
                f"{len(waiting)} of {len(workers)} processes that send calls were not ready within {within_s:g} s"
            )
        for worker in ready:
            assert isinstance(worker, Connection)
            message = _received(worker)
            assert isinstance(message, Connected)
            waiting.remove(worker)
    start_at = time.monotonic() + _START_S
    for worker in workers:
        _tell(worker, start_at)


def _collect(workers: Sequence[Connection], on_progress: OnProgress) -> list[Ended]:
    latest: dict[Connection, SendProgress] = {}
    ended: dict[Connection, Ended] = {}
    while len(ended) < len(workers):
        for ready in wait([worker for worker in workers if worker not in ended]):
            assert isinstance(ready, Connection)
            message = _received(ready)
            if isinstance(message, Ended):
                ended[ready] = message
            elif isinstance(message, SendProgress):
                latest[ready] = message
                every = latest.values()
                counts = ((part.sent, part.done, part.failed) for part in every)
                on_progress(SendProgress(*map(sum, zip(*counts, strict=True))))
    return list(ended.values())


def _received(worker: Connection) -> Message:
    try:
        message: Message = worker.recv()
    except (EOFError, ConnectionError):
        raise _death() from None
    if isinstance(message, Unavailable):
        raise message
    return message


def _tell(worker: Connection, message: Task | float) -> None:
    try:
        worker.send(message)
    except ConnectionError:
        raise _death() from None


def _death() -> Unavailable:
    return Unavailable("a process that sends calls has died; its last words are above, if it had any")


def _serve(parent: Connection) -> None:
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
