"""Runs a stage: several workers, one clock, their records joined."""

import multiprocessing
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait

from service.client.channel import ClientConfig
from service.client.retry import RetryPolicy
from service.errors import Unavailable
from service.loadtest.records import Records, joined
from service.loadtest.schedule import Stage, due_times, share
from service.loadtest.worker import Ended, Progress, Task, Unreachable, run

_START_S = 1.5  # for workers to start and connect before the first call is due


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Who sends what to whom."""

    address: str
    requests: Sequence[bytes]  # serialised TranslateRequest messages, taken in turn
    client: ClientConfig = field(
        default_factory=lambda: ClientConfig(retry=RetryPolicy(max_attempts=1))
    )  # see refusals
    arrivals: str = "poisson"  # one of `schedule.ARRIVALS`
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
        Unavailable: no server answers.
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
    return _run(load, tasks, on_progress)


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
    shares = [
        concurrency // load.num_workers + (index < concurrency % load.num_workers) for index in range(load.num_workers)
    ]
    tasks = [
        replace(base, concurrency=callers, first_request=index * len(load.requests) // load.num_workers)
        for index, callers in enumerate(shares)
        if callers
    ]
    return _run(load, tasks, on_progress)


def _run(load: Load, tasks: Sequence[Task], on_progress: OnProgress) -> Outcome:
    spawn = multiprocessing.get_context("spawn")  # gRPC does not survive a fork
    pipes = [spawn.Pipe(duplex=False) for _ in tasks]
    workers = [
        spawn.Process(target=run, args=(task, sender), daemon=True)
        for task, (_, sender) in zip(tasks, pipes, strict=True)
    ]
    for worker, (_, sender) in zip(workers, pipes, strict=True):
        worker.start()
        sender.close()
    try:
        ended = _collect(load, [receiver for receiver, _ in pipes], on_progress)
    finally:
        for worker in workers:
            worker.terminate()
            worker.join()
    return Outcome(joined([part.records for part in ended]), sum(part.cpu_s for part in ended))


def _collect(load: Load, receivers: Sequence[Connection], on_progress: OnProgress) -> list[Ended]:
    latest: dict[Connection, Progress] = {}
    ended: dict[Connection, Ended] = {}
    while len(ended) < len(receivers):
        for ready in wait([receiver for receiver in receivers if receiver not in ended]):
            assert isinstance(ready, Connection)
            message = _received(ready)
            if isinstance(message, Unreachable):
                raise Unavailable(f"no server answers at {load.address} within {load.timeout_s:g} s")
            if isinstance(message, Ended):
                ended[ready] = message
            else:
                latest[ready] = message
                on_progress(_sum(latest.values()))
    return list(ended.values())


def _received(receiver: Connection) -> Progress | Ended | Unreachable:
    try:
        message: Progress | Ended | Unreachable = receiver.recv()
    except EOFError:
        raise Unavailable("a process that sends calls has died; its last words are above, if it had any") from None
    return message


def _sum(parts: Iterable[Progress]) -> Progress:
    every = list(parts)
    return Progress(
        sent=sum(part.sent for part in every),
        done=sum(part.done for part in every),
        failed=sum(part.failed for part in every),
    )
