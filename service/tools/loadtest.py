"""A load test: calls that become due at a rate, the processes that send them, and what became of them.

Arrivals are open-loop: calls are due at a rate, whatever the server does.  A caller that waits for answers before it
sends slows down with the server and hides its queue.  Latency counts from when a call was due, not from when it was
sent: one that a slow sender held up was late for its user all the same (no coordinated omission).

Each sender is a process of its own so that several CPUs can send.
"""

import asyncio
import multiprocessing
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import resource_tracker
from queue import Empty
from typing import Any, NamedTuple, Self, TypeAlias

import grpc
import grpc.aio
import numpy as np
import numpy.typing as npt
from grpc_health.v1.health_pb2_grpc import HealthStub

from protos import translation_pb2 as pb
from service.child_process import end_with_parent
from service.client.channel import ClientConfig, call_metadata, open_aio_channel, proxy_on_the_way
from service.client.failures import domain_error, wait_until_ready
from service.errors import DeadlineExceeded, InternalError, Overloaded, Unavailable

TranslateCall: TypeAlias = "grpc.aio.UnaryUnaryMultiCallable[bytes, pb.TranslateResponse]"
Seconds = npt.NDArray[np.float64]

ARRIVALS = ("poisson", "constant")
OK = "OK"
_PERCENTILES = (10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.9)
_PROGRESS_PERIOD_S = 0.25
_SLEEP_LEAST_S = 0.0005  # what is due sooner is sent now: the event loop wakes no more precisely
_START_S = 0.1  # from the moment at which all processes are connected until calls are due
_BY_OVERLOAD = {"RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED"}
_MAX_FAILED_RATIO = 0.001


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadConfig:
    """Who sends what to whom."""

    address: str
    requests: Sequence[bytes]  # serialised TranslateRequest messages, taken in turn
    # Without retries, or refusals would not be seen.
    client: ClientConfig = field(default_factory=lambda: ClientConfig(retries=False))
    arrivals: str = "poisson"  # one of `ARRIVALS`
    timeout_s: float = 60.0
    num_workers: int = 1  # processes that send
    seed: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Task:
    """What one process is to do."""

    load: LoadConfig
    first_request: int = 0
    due: Seconds | None = None  # of its calls; None in a closed loop
    concurrency: int = 0  # callers of the closed loop
    duration_s: float = 0.0  # of the closed loop


class SendProgress(NamedTuple):
    """Calls since the start."""

    sent: int
    done: int
    failed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """One entry a call in each array; times in seconds from the start of the stage."""

    due: Seconds
    sent: Seconds
    done: Seconds
    codes: npt.NDArray[np.str_]
    texts: npt.NDArray[np.int64]

    @classmethod
    def joined(cls, parts: Iterable["Records"]) -> Self:
        """Return the calls of several workers in the order in which they were due."""
        every = list(parts)
        columns = {name: np.concatenate([getattr(part, name) for part in every]) for name in cls.__slots__}
        order = np.argsort(columns["due"], kind="stable")
        return cls(**{name: column[order] for name, column in columns.items()})

    def __len__(self) -> int:
        return len(self.due)

    @property
    def latency_s(self) -> Seconds:
        """From due to done."""
        return self.done - self.due

    @property
    def is_ok(self) -> npt.NDArray[np.bool_]:
        """Which calls were answered."""
        return np.asarray(self.codes == OK)

    def where(self, is_wanted: npt.NDArray[np.bool_]) -> "Records":
        """Return some of the calls."""
        return Records(**{name: getattr(self, name)[is_wanted] for name in self.__slots__})


@dataclass(frozen=True, slots=True)
class StageOutcome:
    """The calls of a stage, those of one process or of all; all of them have ended."""

    records: Records
    cpu_s: float  # that the processes used from the stage's start on


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
        _Task(load=load, first_request=worker * len(load.requests) // num_workers, due=times[worker::num_workers])
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
        _Task(
            load=load,
            first_request=worker * len(load.requests) // load.num_workers,
            concurrency=concurrency // load.num_workers + (worker < concurrency % load.num_workers),
            duration_s=duration_s,
        )
        for worker in range(min(concurrency, load.num_workers))
    ]
    return _run(tasks, on_progress)


def due_times(rate: float, duration_s: float, rng: np.random.Generator | None) -> Seconds:
    """Return when each call is due, in seconds from the beginning, ascending.

    Args:
        rate: calls a second.
        rng: draws the times of a Poisson process; None stands for constant gaps.
    """
    num = round(rate * duration_s)
    if rng is None:
        return np.arange(num) / rate
    # Given their number, the points of a Poisson process are uniform.  The number is the rate's own and not drawn: a
    # draw for 30 s at 100 a second is off by 2 %, and a search would then find 2 % too much or too little.
    return np.sort(rng.uniform(0.0, duration_s, num))


def _run(tasks: Sequence[_Task], on_progress: OnProgress) -> StageOutcome:
    spawn = multiprocessing.get_context("spawn")  # gRPC does not survive a fork
    begin, outcomes = spawn.Barrier(len(tasks)), spawn.Queue()
    counts = [spawn.RawArray("q", len(SendProgress._fields)) for _ in tasks]
    processes = [
        spawn.Process(target=_serve, args=(task, begin, own_counts, outcomes), daemon=True)
        for task, own_counts in zip(tasks, counts, strict=True)
    ]
    ended: list[StageOutcome] = []
    with _running(processes):
        while len(ended) < len(tasks):
            if any(process.exitcode for process in processes):
                raise Unavailable("a process that sends calls has died; its last words are above, if it had any")
            with suppress(Empty):
                outcome = outcomes.get(timeout=_PROGRESS_PERIOD_S)
                if isinstance(outcome, Unavailable):
                    raise outcome
                ended.append(outcome)
            on_progress(SendProgress(*(sum(column) for column in zip(*counts, strict=True))))
    return StageOutcome(Records.joined(part.records for part in ended), sum(part.cpu_s for part in ended))


@contextmanager
def _running(processes: Sequence[Any]) -> Iterator[None]:
    """Start these processes, and end them with the block."""
    try:
        resource_tracker.ensure_running()  # or the start of the first process would start it, which lifts the mask
        # A terminal sends Ctrl-C to all processes; these never see it, and end when this one ends them.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            for process in processes:
                process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        yield
    finally:
        for process in processes:
            if process.pid is not None:
                process.terminate()
                process.join()


def _serve(task: _Task, begin: Any, counts: Any, outcomes: Any) -> None:
    """Do the task in this process, which the kernel ends if its parent is killed."""
    end_with_parent()
    try:
        outcomes.put(asyncio.run(_send_calls(task, begin, counts)))
    except Unavailable as error:
        outcomes.put(error)


async def _send_calls(task: _Task, begin: Any, counts: Any) -> StageOutcome:
    """Connect, wait until all processes have, and send the calls."""
    load = task.load
    async with open_aio_channel(load.address, load.client) as channel:
        call = _translate_of(channel)
        try:
            await asyncio.wait_for(channel.channel_ready(), load.timeout_s)
        except TimeoutError:
            way = proxy_on_the_way(load.address)
            why = f" ({way})" if way else ""
            raise Unavailable(f"no server answers at {load.address} within {load.timeout_s:g} s{why}") from None
        await asyncio.to_thread(begin.wait)
        sender = _Sender(task, call, counts, start_at=time.monotonic() + _START_S)
        used_s = time.process_time()
        await (sender.closed_loop() if task.due is None else sender.open_loop(task.due))
    return StageOutcome(sender.records(), time.process_time() - used_s)


class _EndedCall(NamedTuple):
    due: float
    sent: float
    done: float
    code: str
    texts: int


class _Sender:
    def __init__(self, task: _Task, call: TranslateCall, counts: Any, start_at: float) -> None:
        self._task = task
        self._load = task.load
        self._call = call
        self._start_at = start_at
        self._metadata = call_metadata(task.load.client)
        self._counts = counts  # that the parent sees, in the order of `SendProgress`
        self._ended: list[_EndedCall] = []

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
                await self._send(now, number + self._counts[0])

        await asyncio.sleep(max(0.0, self._start_at - time.monotonic()))
        await asyncio.gather(*(caller(number) for number in range(self._task.concurrency)))

    async def _send(self, due: float, index: int) -> None:
        requests = self._load.requests
        request = requests[(self._task.first_request + index) % len(requests)]
        self._counts[0] += 1
        sent = time.monotonic()
        code, texts = OK, 0
        try:
            response = await self._call(request, timeout=self._load.timeout_s, metadata=self._metadata)
            texts = len(response.translations)
        except grpc.aio.AioRpcError as error:
            code = error.code().name
            self._counts[2] += 1
        done = time.monotonic()
        self._counts[1] += 1
        self._ended.append(_EndedCall(due, sent - self._start_at, done - self._start_at, code, texts))

    def records(self) -> Records:
        due, sent, done, codes, texts = zip(*self._ended, strict=True) if self._ended else ((),) * 5
        return Records(
            due=np.array(due, dtype=np.float64),
            sent=np.array(sent, dtype=np.float64),
            done=np.array(done, dtype=np.float64),
            codes=np.array(codes, dtype=np.str_),
            texts=np.array(texts, dtype=np.int64),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The figures of one stage, warm-up left out."""

    offered_rate: float  # calls due a second
    done_rate: float  # calls answered a second while the stage lasted: under overload, what the server can do
    done_texts_rate: float  # texts of those
    ok_rate: float  # of the calls due, those that were answered at some time, also long after the stage
    texts_rate: float  # texts of those
    calls: int
    codes: dict[str, int]
    latency_ms: dict[str, float]  # of answered calls, by percentile ("p50"); empty without any
    refusal_ms_p99: float | None  # how long a refusal took; None without any
    send_delay_ms_p99: float  # how late the load generator itself was
    duration_s: float


def summarize(records: Records, duration_s: float, *, warm_up_s: float = 0.0) -> Summary:
    """Return the figures of a stage's calls.

    Args:
        records: of all calls: what was due in the warm-up may be answered after it.
        duration_s: of the stretch in which they were due, warm-up included.
    """
    counted, counted_s = records.where(records.due >= warm_up_s), duration_s - warm_up_s
    answered = counted.where(counted.is_ok)
    refused = counted.where(counted.codes == "RESOURCE_EXHAUSTED")
    done = records.where(records.is_ok & (records.done >= warm_up_s) & (records.done < duration_s))
    names, counts = np.unique(counted.codes, return_counts=True)
    return Summary(
        offered_rate=len(counted) / counted_s,
        done_rate=len(done) / counted_s,
        done_texts_rate=float(done.texts.sum()) / counted_s,
        ok_rate=len(answered) / counted_s,
        texts_rate=float(answered.texts.sum()) / counted_s,
        calls=len(counted),
        codes={str(name): int(count) for name, count in zip(names, counts, strict=True)},
        latency_ms=percentiles_ms(answered.latency_s),
        refusal_ms_p99=percentiles_ms(refused.done - refused.sent, [99.0]).get("p99"),
        send_delay_ms_p99=percentiles_ms(counted.sent - counted.due, [99.0]).get("p99", 0.0),
        duration_s=counted_s,
    )


def percentiles_ms(seconds: Seconds, wanted: Sequence[float] = _PERCENTILES) -> dict[str, float]:
    """Return `{"p50": ...}` in milliseconds; nothing without calls."""
    return {f"p{name:g}": float(np.percentile(seconds, name) * 1e3) for name in wanted} if len(seconds) else {}


def highest_rate(
    try_rate: Callable[[float], Summary], *, p99_ms: float, first: float, precision: float = 0.03
) -> tuple[float, list[tuple[float, Summary]]]:
    """Return the highest rate tried that held, 0.0 if none did, and every stage in the order of trying.

    The rate doubles until it breaks, then the gap is halved.  A moment without a CPU breaks any rate, also one far
    below the capacity: the break that ends a search is tried again.  A stage without a single answer ends the search at
    once, unless overload is why: at a lower rate there may be one.

    Args:
        try_rate: runs a stage at this many calls a second.
        p99_ms: a rate holds if its p99 is within this and next to no call failed.
        first: the rate of the first stage.
        precision: the search ends when the next rate to try differs by less than this part.
    """
    tried: list[tuple[float, Summary]] = []
    held, broken = 0.0, Counter[float]()
    rate: float | None = first
    while rate is not None:
        summary = try_rate(rate)
        tried.append((rate, summary))
        answered = summary.codes.get(OK, 0)
        is_answered = answered > 0 and summary.calls - answered <= _MAX_FAILED_RATIO * summary.calls
        if is_answered and summary.latency_ms["p99"] <= p99_ms:
            held = max(held, rate)
        else:
            broken[rate] += 1
        is_overload = bool(summary.codes) and summary.codes.keys() <= _BY_OVERLOAD
        lowest = min((other for other in broken if other > held), default=None)
        if not (OK in summary.codes or is_overload):
            rate = None
        elif lowest is None:
            rate = 2 * held
        elif lowest - held > max(precision * held, precision * precision * first):
            rate = (held + lowest) / 2
        else:
            rate = lowest if broken[lowest] == 1 else None
    return held, tried
