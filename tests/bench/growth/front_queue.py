"""What one sentence costs in the front process's queue, by how many wait: it comes, has its turn, or is given up."""

import time
from collections.abc import Sequence

from matplotlib.axes import Axes

from service.engine.job import JobResult, SearchParams, StepStats
from service.queue.callers import Caller, Priority
from service.queue.fair_queue import Entry
from service.queue.job_queue import EngineLoad, JobQueue

WAITING = (100, 1_000, 10_000, 100_000)
CLIENTS = (1, 50, 1_000)
TURNS = 2_000  # at each point
PARAMS = SearchParams()
SOURCE_TOKENS = 24
FULL = EngineLoad(num_engines=1, rows=128, max_rows=128)

Row = dict[str, int | float | str]


def measure() -> list[Row]:
    """CPU microseconds; a forecast is what a refusal costs beside the call itself."""
    return [_measure(waiting, clients) for clients in CLIENTS for waiting in WAITING if waiting >= clients]


def _measure(waiting: int, num_clients: int) -> Row:
    backlog, clients = _measured_backlog(), [Caller(name=str(number)) for number in range(num_clients)]
    began = time.process_time()
    entries = [_add(backlog, clients[number % num_clients]) for number in range(waiting)]
    added = time.process_time()
    for _ in range(TURNS):
        entry = backlog.peek(0.0)
        assert entry is not None
        backlog.serve(entry, PARAMS.beam_size)
        entries.append(_add(backlog, entry.caller))
    served = time.process_time()
    for number in range(TURNS):
        _forecast(backlog, clients[number % num_clients])
    told = time.process_time()
    removed = sum(backlog.remove(entry) for entry in entries)
    ended = time.process_time()
    return {
        "clients": num_clients,
        "waiting": waiting,
        "us_arrival": 1e6 * (added - began) / waiting,
        "us_turn_and_arrival": 1e6 * (served - added) / TURNS,
        "us_forecast": 1e6 * (told - served) / TURNS,
        "us_removal": 1e6 * (ended - told) / removed,
    }


def _measured_backlog() -> JobQueue[int]:
    backlog: JobQueue[int] = JobQueue(aging_s=10.0, max_lookahead_jobs=8)
    result = JobResult(job_id=0, hypotheses=(), queue_s=0.0, encode_s=0.0, decode_s=0.1, num_steps=SOURCE_TOKENS)
    for _ in range(32):
        backlog.finished(SOURCE_TOKENS, PARAMS, result)
    backlog.reported(StepStats(steps=10, rows=1_280, busy_s=0.05, waiting_jobs=1))
    return backlog


def _add(backlog: JobQueue[int], caller: Caller) -> Entry[int]:
    return backlog.add(0, SOURCE_TOKENS, PARAMS, caller=caller, priority=Priority.INTERACTIVE, now=0.0)


def _forecast(backlog: JobQueue[int], caller: Caller) -> None:
    backlog.forecast([SOURCE_TOKENS], PARAMS, caller=caller, priority=Priority.INTERACTIVE, load=FULL)


def draw(axes: Axes, rows: Sequence[Row]) -> None:
    """A line for each number of clients."""
    for clients in CLIENTS:
        chosen = [row for row in rows if row["clients"] == clients]
        waiting = [float(row["waiting"]) for row in chosen]
        for name, style in (("us_turn_and_arrival", "-"), ("us_forecast", ":")):
            label = f"{clients} clients, {name[3:].replace('_', ' ')}"
            axes.plot(waiting, [float(row[name]) for row in chosen], marker=".", linestyle=style, label=label)
    axes.set_xscale("log")
    axes.set(xlabel="waiting sentences", ylabel="us")
