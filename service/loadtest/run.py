"""Runs a stage of a load test: several workers, one clock, their records joined."""

import multiprocessing
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait

import numpy as np

from service.client.channel import ClientConfig, RetryPolicy
from service.errors import Unavailable
from service.loadtest.records import Records
from service.loadtest.schedule import due_times
from service.loadtest.worker import Connected, Ended, Message, SendProgress, Task, run

_START_S = 0.1  # from the word to start until calls are due: it has reached every worker by then
_BOOT_S = 60.0  # for the processes to start, beside the time in which each may connect


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
    processes = [spawn.Process(target=run, args=(theirs,), daemon=True) for _, theirs in pipes]
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
