"""Runs a stage of a load test: several processes that send calls when they are due, one clock, their records joined.

Each sender is a process of its own so that several CPUs can send.  Its pipe carries, in this order:

    Task          to the sender
    Connected     from it: the stage may begin; or Unavailable, and it ends
    float         to it: time.monotonic() of the stage's start, the same for all senders
    SendProgress  from it, several times
    StageOutcome  from it, and it ends
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
from grpc_health.v1.health_pb2_grpc import HealthStub

from protos import translation_pb2 as pb
from service.child_process import end_with_parent
from service.client.channel import ClientConfig, RetryPolicy, call_metadata, open_aio_channel, proxy_on_the_way
from service.client.failures import domain_error, wait_until_ready
from service.errors import DeadlineExceeded, InternalError, Overloaded, Unavailable
from service.tools.loadtest.records import OK, Records, Seconds, due_times

TranslateCall: TypeAlias = "grpc.aio.UnaryUnaryMultiCallable[bytes, pb.TranslateResponse]"

PROGRESS_PERIOD_S = 0.25
_SLEEP_LEAST_S = 0.0005  # what is due sooner is sent now: the event loop wakes no more precisely
_START_S = 0.1  # from the word to start until calls are due: it has reached every worker by then
_BOOT_S = 60.0  # for the processes to start, beside the time in which each may connect


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadConfig:
    """Who sends what to whom."""

    address: str
    requests: Sequence[bytes]  # serialised TranslateRequest messages, taken in turn
    # Without retries, or refusals would not be seen.
    client: ClientConfig = field(default_factory=lambda: ClientConfig(retry=RetryPolicy(max_attempts=1)))
    arrivals: str = "poisson"  # one of `ARRIVALS`
    timeout_s: float = 60.0
    num_workers: int = 1
    seed: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What one worker is to do."""

    load: LoadConfig
    first_request: int = 0
    due: Seconds | None = None  # of its calls; None in a closed loop
    concurrency: int = 0  # callers of the closed loop
    duration_s: float = 0.0  # of the closed loop


@dataclass(frozen=True, slots=True)
class Connected:
    """The server can be called; nothing is sent before the start is told."""


class SendProgress(NamedTuple):
    """Calls since the start."""

    sent: int
    done: int
    failed: int


@dataclass(frozen=True, slots=True)
class StageOutcome:
    """The calls of a stage, those of one worker or of all; all of them have ended."""

    records: Records
    cpu_s: float  # that the workers used from the stage's start on


OnProgress = Callable[[SendProgress], None]


def require_server(load: LoadConfig, wait_s: float) -> None:
    """Return when the server is ready and has taken the first request, whether it could answer it in time or not.

    Raises:
        Unavailable: no server is ready within the wait.
        DragomanError: it refuses the request, and would refuse all: a wrong key, a model that is not there.
    """
    asyncio.run(_require_server(load, wait_s))


async def _require_server(load: LoadConfig, wait_s: float) -> None:
    way = proxy_on_the_way(load.address)
    async with open_aio_channel(load.address, load.client) as channel:
        await wait_until_ready(HealthStub(channel), load.address, wait_s, way)
        try:
            await _translate_of(channel)(load.requests[0], timeout=load.timeout_s, metadata=call_metadata(load.client))
        except grpc.aio.AioRpcError as error:
            failure = domain_error(error, way)
            if not isinstance(failure, Overloaded | DeadlineExceeded | InternalError):
                raise failure from error


def _translate_of(channel: grpc.aio.Channel) -> TranslateCall:
    return channel.unary_unary(
        "/dragoman.v1.TranslationService/Translate",
        request_serializer=lambda request: request,
        response_deserializer=pb.TranslateResponse.FromString,
    )


def run_stage(
    load: LoadConfig, rate: float, duration_s: float, on_progress: OnProgress = lambda _: None
) -> StageOutcome:
    """Run an open loop: so many calls a second become due, whatever the server does.

    Raises:
        Unavailable: no server answers.
    """
    rng = None if load.arrivals == "constant" else np.random.default_rng(load.seed)
    times, num_workers = due_times(rate, duration_s, rng), load.num_workers
    tasks = [
        Task(load=load, first_request=worker * len(load.requests) // num_workers, due=times[worker::num_workers])
        for worker in range(num_workers)
    ]
    return _run(tasks, on_progress)


def run_closed(
    load: LoadConfig, concurrency: int, duration_s: float, on_progress: OnProgress = lambda _: None
) -> StageOutcome:
    """Run a closed loop: so many callers, each waiting for its answer before it calls again.

    Raises:
        Unavailable: no server answers.
    """
    tasks = [
        Task(
            load=load,
            first_request=worker * len(load.requests) // load.num_workers,
            concurrency=concurrency // load.num_workers + (worker < concurrency % load.num_workers),
            duration_s=duration_s,
        )
        for worker in range(min(concurrency, load.num_workers))
    ]
    return _run(tasks, on_progress)


def _run(tasks: Sequence[Task], on_progress: OnProgress) -> StageOutcome:
    with worker_processes(len(tasks)) as workers:
        for worker, task in zip(workers, tasks, strict=True):
            _tell(worker, task)
        start(workers, tasks[0].load.timeout_s + _BOOT_S)
        ended = _collect(workers, on_progress)
    return StageOutcome(Records.joined(part.records for part in ended), sum(part.cpu_s for part in ended))


@contextmanager
def worker_processes(number: int) -> Iterator[Sequence[Connection]]:
    """Yield connections to so many processes, which end with the block."""
    spawn = multiprocessing.get_context("spawn")  # gRPC does not survive a fork
    pipes = [spawn.Pipe() for _ in range(number)]
    processes = [spawn.Process(target=_serve, args=(theirs,), daemon=True) for _, theirs in pipes]
    try:
        resource_tracker.ensure_running()  # or the start of the first process would start it, which lifts the mask
        # A terminal sends Ctrl-C to all processes; these never see it, and end when this one ends them.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            for process, (_, theirs) in zip(processes, pipes, strict=True):
                process.start()
                theirs.close()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        yield [ours for ours, _ in pipes]
    finally:
        for process in processes:
            if process.pid is not None:
                process.terminate()
                process.join()
        for ours, _ in pipes:
            ours.close()


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
            assert isinstance(_received(worker), Connected)
            waiting.remove(worker)
    start_at = time.monotonic() + _START_S
    for worker in workers:
        _tell(worker, start_at)


def _collect(workers: Sequence[Connection], on_progress: OnProgress) -> list[StageOutcome]:
    latest: dict[Connection, SendProgress] = {}
    ended: dict[Connection, StageOutcome] = {}
    while len(ended) < len(workers):
        for ready in wait([worker for worker in workers if worker not in ended]):
            assert isinstance(ready, Connection)
            message = _received(ready)
            if isinstance(message, StageOutcome):
                ended[ready] = message
            elif isinstance(message, SendProgress):
                latest[ready] = message
                on_progress(SendProgress(*map(sum, zip(*latest.values(), strict=True))))
    return list(ended.values())


def _received(worker: Connection) -> Connected | SendProgress | StageOutcome:
    with _death_is_unavailable():
        message: Connected | Unavailable | SendProgress | StageOutcome = worker.recv()
    if isinstance(message, Unavailable):
        raise message
    return message


def _tell(worker: Connection, message: Task | float) -> None:
    with _death_is_unavailable():
        worker.send(message)


@contextmanager
def _death_is_unavailable() -> Iterator[None]:
    try:
        yield
    except (EOFError, ConnectionError):
        raise Unavailable("a process that sends calls has died; its last words are above, if it had any") from None


def _serve(parent: Connection) -> None:
    """Do the task that comes through the pipe; the kernel ends this process if its parent is killed."""
    end_with_parent()
    with parent, suppress(EOFError, ConnectionError):  # the parent is gone: nobody wants the calls
        asyncio.run(send_calls(parent.recv(), parent))


async def send_calls(task: Task, parent: Connection) -> None:
    """Connect, report that, and send the calls from the start that the parent names."""
    load = task.load
    async with open_aio_channel(load.address, load.client) as channel:
        call = _translate_of(channel)
        try:
            await asyncio.wait_for(channel.channel_ready(), load.timeout_s)
        except TimeoutError:
            way = proxy_on_the_way(load.address)
            why = f" ({way})" if way else ""
            parent.send(Unavailable(f"no server answers at {load.address} within {load.timeout_s:g} s{why}"))
            return
        parent.send(Connected())
        sender = _Sender(task, call, start_at=await asyncio.to_thread(parent.recv))  # the end of the parent ends it
        used_s = time.process_time()
        telling = asyncio.create_task(_tell_progress(sender, parent))
        await (sender.closed_loop() if task.due is None else sender.open_loop(task.due))
        telling.cancel()
    parent.send(StageOutcome(sender.records(), time.process_time() - used_s))


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
        self._load = task.load
        self._call = call
        self._start_at = start_at
        self._metadata = call_metadata(task.load.client)
        self.ended: list[_EndedCall] = []
        self.num_sent = 0
        self.num_failed = 0

    async def open_loop(self, due_times: Seconds) -> None:
        pending: set[asyncio.Task[None]] = set()
        for index, due in enumerate(due_times.tolist()):
            wait_s = self._start_at + due - time.monotonic()
            if wait_s > _SLEEP_LEAST_S:
                await asyncio.sleep(wait_s)
            sending = asyncio.create_task(self._send(due, index))
            pending.add(sending)
            sending.add_done_callback(pending.discard)
            if wait_s <= _SLEEP_LEAST_S and index % 16 == 0:
                await asyncio.sleep(0)  # what was sent must also get onto the wire
        await asyncio.gather(*pending)

    async def closed_loop(self) -> None:
        async def caller(number: int) -> None:
            while (now := time.monotonic() - self._start_at) < self._task.duration_s:
                await self._send(now, number + self.num_sent)

        await asyncio.sleep(max(0.0, self._start_at - time.monotonic()))
        await asyncio.gather(*(caller(number) for number in range(self._task.concurrency)))

    async def _send(self, due: float, index: int) -> None:
        requests = self._load.requests
        request = requests[(self._task.first_request + index) % len(requests)]
        self.num_sent += 1
        sent = time.monotonic()
        code, texts = OK, 0
        try:
            response = await self._call(request, timeout=self._load.timeout_s, metadata=self._metadata)
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
