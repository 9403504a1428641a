"""Runs a stage: several workers, one clock, their records joined."""

import multiprocessing
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait

import psutil

from service.client.channel import ClientConfig, RetryPolicy
from service.loadtest.records import Records, joined
from service.loadtest.schedule import Arrivals, Stage, due_times, share
from service.loadtest.worker import Progress, Task, run

_START_S = 1.5  # for workers to start and connect before the first call is due


class LoadTestError(Exception):
    """The load could not be made; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Who sends what to whom."""

    address: str
    requests: Sequence[bytes]  # serialised TranslateRequest messages, taken in turn
    client: ClientConfig = ClientConfig(retry=RetryPolicy(max_attempts=1))  # a retry would hide a refusal
    arrivals: Arrivals = "poisson"
    timeout_s: float = 60.0
    num_workers: int = 1
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a stage gave."""

    records: Records
    cpu_s: float  # that the workers used, all together


OnProgress = Callable[[Progress], None]


def run_stage(load: Load, stage: Stage, on_progress: OnProgress = lambda _: None) -> Outcome:
    """An open loop at the stage's rate.

    Raises:
        LoadTestError: a worker ended early, for instance because no server answers.
    """
    times = due_times(stage, load.arrivals, load.seed)
    start_at = time.monotonic() + _START_S
    tasks = [
        Task(
            address=load.address,
            config=load.client,
            start_at=start_at,
            due=share(times, worker, load.num_workers),
            requests=load.requests,
            first_request=worker * (len(load.requests) // load.num_workers),
            timeout_s=load.timeout_s,
        )
        for worker in range(load.num_workers)
    ]
    return _run(tasks, on_progress)


def run_closed(load: Load, concurrency: int, duration_s: float, on_progress: OnProgress = lambda _: None) -> Outcome:
    """A closed loop: so many callers, each waiting for its answer before it calls again."""
    start_at = time.monotonic() + _START_S
    base = Task(
        address=load.address,
        config=load.client,
        start_at=start_at,
        due=due_times(Stage(rate=1.0, duration_s=1.0), "constant", 0),
        requests=load.requests,
        timeout_s=load.timeout_s,
        duration_s=duration_s,
    )
    shares = [concurrency // load.num_workers + (index < concurrency % load.num_workers) for index in range(load.num_workers)]
    tasks = [
        replace(base, concurrency=callers, first_request=index * len(load.requests) // load.num_workers)
        for index, callers in enumerate(shares)
        if callers
    ]
    return _run(tasks, on_progress)


def _run(tasks: Sequence[Task], on_progress: OnProgress) -> Outcome:
    spawn = multiprocessing.get_context("spawn")  # gRPC does not survive a fork
    pipes = [spawn.Pipe(duplex=False) for _ in tasks]
    workers = [
        spawn.Process(target=run, args=(task, sender), daemon=True) for task, (_, sender) in zip(tasks, pipes, strict=True)
    ]
    for worker, (_, sender) in zip(workers, pipes, strict=True):
        worker.start()
        sender.close()
    try:
        used = _CpuMeter([worker.pid for worker in workers if worker.pid])
        records = _collect([receiver for receiver, _ in pipes], on_progress, used)
    finally:
        for worker in workers:
            worker.terminate()
            worker.join()
    return Outcome(joined(records), used.seconds)


class _CpuMeter:
    """CPU time of processes, as last read while they lived."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._processes = [psutil.Process(pid) for pid in pids]
        self._used = dict.fromkeys(pids, 0.0)

    def read(self) -> None:
        for process in self._processes:
            try:
                times = process.cpu_times()
            except psutil.NoSuchProcess:
                continue
            self._used[process.pid] = times.user + times.system

    @property
    def seconds(self) -> float:
        return sum(self._used.values())


def _collect(receivers: Sequence[Connection], on_progress: OnProgress, used: _CpuMeter) -> list[Records]:
    latest: dict[Connection, Progress] = {}
    records: dict[Connection, Records] = {}
    while len(records) < len(receivers):
        for ready in wait([receiver for receiver in receivers if receiver not in records]):
            assert isinstance(ready, Connection)
            used.read()
            try:
                message = ready.recv()
            except EOFError:
                raise LoadTestError("a load generator ended early: is the server there?") from None
            if isinstance(message, Records):
                records[ready] = message
            else:
                latest[ready] = message
                on_progress(_sum(latest.values()))
    return list(records.values())


def _sum(parts: "Sequence[Progress] | object") -> Progress:
    every = list(parts)  # type: ignore[call-overload]
    return Progress(*(sum(getattr(part, name) for part in every) for name in ("sent", "done", "failed")))
