"""What the engine costs as its work grows: length, rows, beam, queue, memory.

    python bench/bench_growth.py                              # about two minutes
    python bench/bench_growth.py --panel waiting --panel memory
    python bench/bench_growth.py --bundle BUNDLE --turns 9

In this process, one thread, CPU time, which other work does not lengthen.  Sentences are cut from our own text to a
wanted length and go on to a wanted number of steps, whatever the model says.  A row-step is one hypothesis in one
decoder step.  Prints a table a panel and, last, one line of JSON.
"""

import gc
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, cycle, islice
from pathlib import Path
from statistics import median
from typing import Annotated, Any, cast

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.machine import describe
from model.bundle import Bundle, default_bundle_dir
from model.config import EOS_ID, UNK_ID
from model.tokenizer import Tokenizer
from service.call import Caller
from service.engine.loop import EngineLoop
from service.engine.runner import Runner
from service.engine.wire import EngineSpec, Job, JobResult, Runtime, SchedulerConfig, SearchParams, StepStats
from service.engine.worker import create_runner, return_freed_memory
from service.records import Priority
from service.scheduler.fair_queue import Entry
from service.scheduler.job_queue import EngineLoad, JobQueue
from tests.fakes.own_text import own_sentences

USUAL_STEPS = tuple(12 + 7 * number % 25 for number in range(25))  # 12 to 36 in no order: 24 on average
WARM_UP_STEPS = 48  # until sentences of these lengths come and go evenly, and caches have grown
UNBOUNDED = SchedulerConfig(max_rows=1 << 16, max_source_tokens=1 << 24)  # a load keeps to its own number of sentences
SHORT, LONG, LONG_STEPS = 24, 512, 256  # source tokens, and steps of a long sentence
PARAMS = SearchParams()

Row = dict[str, int | float | str]
_job_ids = count()


def endless_runner(bundle: Bundle, precision: str | None, runtime: Runtime) -> Runner:
    """Return the engine of a model of which no sentence ends before its limit."""
    runner: Any = create_runner(EngineSpec(bundle_dir=bundle.directory, precision=precision, runtime=runtime))
    runner.profile = runner.profile._replace(end=-1)  # no token
    return cast(Runner, runner)


class Load:
    """A loop that always holds the same number of sentences: whenever one ends, the next one comes."""

    def __init__(self, runner: Runner, jobs: Iterator[Job], num_held: int, config: SchedulerConfig = UNBOUNDED):
        self._loop = EngineLoop(runner, config, clock=time.process_time)
        self._jobs = jobs
        self._num_held = num_held
        self.submit_us = 0.0  # per sentence, of those at the beginning

    def fill(self) -> None:
        """Submit what is to be held, and warm up."""
        began = time.process_time()
        for job in islice(self._jobs, self._num_held):
            self._loop.submit(job)
        self.submit_us = 1e6 * (time.process_time() - began) / self._num_held
        for _ in range(WARM_UP_STEPS):
            self._step()

    def turn(self, seconds: float) -> dict[str, float]:
        """Run for so long; return the costs of a step, and of a row-step."""
        self._loop.take_stats()
        began, num_steps = time.process_time(), 0
        while time.process_time() - began < seconds:
            self._step()
            num_steps += 1
        stats = self._loop.take_stats()
        per_row = 1e6 / stats.rows
        return {
            "ms_step": 1e3 * stats.busy_s / num_steps,
            "us_row_step": per_row * stats.busy_s,
            "of_that_graph_us": per_row * sum(stats.step_decode_s),
            "of_that_search_us": per_row * sum(stats.step_beam_s),
            "encoder_us_token": 1e6 * sum(stats.encode_s) / max(1, stats.source_tokens),
        }

    def _step(self) -> None:
        for outcome in self._loop.step():
            if not isinstance(outcome, JobResult):
                raise TypeError(f"sentence {outcome.job_id} failed: {outcome.message}")
            self._loop.submit(next(self._jobs))


@dataclass(slots=True)
class Setup:
    """What all panels measure with."""

    runner: Runner
    ids: list[int]  # our own sentences, one behind the other, without ends
    turn_s: float
    turns: int
    offset: int = 0

    def jobs(self, source_tokens: int, *, steps: Iterable[int] = USUAL_STEPS, beam_size: int = 4) -> Iterator[Job]:
        """Return an endless stream of sentences of one length.

        Args:
            steps: how long they are decoded, again and again; different numbers, so that they do not all end at once.
        """
        for max_target_tokens in cycle(steps):
            begin = self.offset % (len(self.ids) - source_tokens)
            self.offset += 7 * source_tokens + 3  # another beginning each time, for a long while
            params = SearchParams(beam_size=beam_size, max_target_tokens=max_target_tokens)
            source = (*self.ids[begin : begin + source_tokens - 1], EOS_ID)
            yield Job(id=next(_job_ids), source_ids=source, params=params)

    def measured(self, loads: Sequence[Load]) -> list[dict[str, float]]:
        """Return what each load costs, in turns, so that a slow moment meets all: medians of microseconds."""
        for load in loads:
            load.fill()
        rounds = [[load.turn(self.turn_s) for load in loads] for _ in range(self.turns)]
        by_load = zip(*rounds, strict=True)
        return [{name: median(turn[name] for turn in turns) for name in turns[0]} for turns in by_load]


def measure_source(setup: Setup) -> list[Row]:
    """Eight sentences of one length, beam 4."""
    lengths = (8, 16, 32, 64, 128, 256, 512)
    found = setup.measured([Load(setup.runner, setup.jobs(length), 8) for length in lengths])
    return [{"source_tokens": length, **costs} for length, costs in zip(lengths, found, strict=True)]


def measure_rows(setup: Setup) -> list[Row]:
    """Sentences of 24 tokens in greedy search and with beam 4."""
    points = [(beam, rows) for beam in (1, 4) for rows in (1, 2, 4, 8, 16, 32, 64, 128, 256) if rows >= beam]
    loads = [Load(setup.runner, setup.jobs(SHORT, beam_size=beam), rows // beam) for beam, rows in points]
    found = zip(points, setup.measured(loads), strict=True)
    return [{"beam": beam, "rows": rows, **costs} for (beam, rows), costs in found]


def measure_waiting(setup: Setup) -> list[Row]:
    """A full batch of the default size, and more sentences than it holds."""
    numbers, config = (0, 100, 1_000, 10_000, 100_000), SchedulerConfig()
    running = config.max_rows // 4
    loads = [Load(setup.runner, setup.jobs(SHORT), running + number, config) for number in numbers]
    costs = setup.measured(loads)
    found = zip(numbers, loads, costs, strict=True)
    return [
        {"waiting": number, "ms_step": cost["ms_step"], "us_submit": load.submit_us} for number, load, cost in found
    ]


def measure_memory(setup: Setup) -> list[Row]:
    """One loop with the default budgets, one load after the other; memory while each runs, and after it."""
    config = SchedulerConfig()
    loop, room = EngineLoop(setup.runner, config), config.max_source_tokens // LONG
    stages = [
        ("200 short", 200, SHORT, USUAL_STEPS),
        (f"{2 * room} long", 2 * room, LONG, [LONG_STEPS // 2]),
        ("200 short again", 200, SHORT, USUAL_STEPS),
    ]
    rows: list[Row] = [{"load": "loaded", "highest_mb": resident_mb(), "afterwards_mb": resident_mb()}]
    for name, number, source_tokens, steps in stages:
        for job in islice(setup.jobs(source_tokens, steps=steps), number):
            loop.submit(job)
        highest_mb = 0.0
        while not loop.is_idle:
            for _ in range(16):
                loop.step()
            highest_mb = max(highest_mb, resident_mb())
        loop.take_stats()
        return_freed_memory()  # as an engine does after a heartbeat without work
        rows.append({"load": name, "highest_mb": highest_mb, "afterwards_mb": resident_mb()})
    return rows


def resident_mb() -> float:
    """Return the memory of this process that is in RAM."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def measure_queue(_: Setup) -> list[Row]:
    """One sentence in the core's queue: it comes, has its turn, is forecast or given up."""
    points = [(callers, waiting) for callers in (1, 50, 1_000) for waiting in (100, 1_000, 10_000, 100_000)]
    return [_queue(waiting, callers) for callers, waiting in points if waiting >= callers]


def _queue(waiting: int, num_callers: int, turns: int = 2_000) -> Row:
    queue: JobQueue[Entry[Job]] = JobQueue(aging_s=10.0, max_lookahead_jobs=8)
    callers = [Caller(name=str(number)) for number in range(num_callers)]
    ids, source_ids = count(), (UNK_ID,) * SHORT

    def add(caller: Caller) -> None:
        job = Job(id=next(ids), source_ids=source_ids, params=PARAMS)
        queue.add(Entry(job, caller, Priority.INTERACTIVE, 0.0))

    result = JobResult(job_id=0, hypotheses=(), queue_s=0.0, encode_s=0.0, decode_s=0.1, num_steps=SHORT)
    for _ in range(32):
        queue.cost_model.finished(Job(id=0, source_ids=source_ids, params=PARAMS), result)
    queue.cost_model.reported(StepStats(steps=10, rows=1_280, busy_s=0.05, waiting_jobs=1))
    times = [time.process_time()]
    for number in range(waiting):
        add(callers[number % num_callers])
    times.append(time.process_time())
    served = 0
    while served < turns:
        for entry, _ in queue.hand_out([EngineLoad(128, 16_384)], 0.0):
            add(entry.caller)
            served += 1
    times.append(time.process_time())
    loads = [EngineLoad(128, 16_384, rows=128)]
    for number in range(turns):
        caller = callers[number % num_callers]
        queue.forecast([SHORT], PARAMS, caller=caller, priority=Priority.INTERACTIVE, loads=loads)
    times.append(time.process_time())
    jobs = list(queue)
    for job in jobs:
        queue.remove(job)
    times.append(time.process_time())
    spent = 1e6 * np.diff(times) / [waiting, served, turns, len(jobs)]
    names = ("us_arrival", "us_turn_and_arrival", "us_forecast", "us_removal")
    return {"callers": num_callers, "waiting": waiting, **dict(zip(names, spent.tolist(), strict=True))}


PANELS: dict[str, tuple[str, Callable[[Setup], list[Row]]]] = {
    "memory": ("Memory", measure_memory),  # first: others leave some behind
    "source": ("Source length (8 sentences, beam 4)", measure_source),
    "rows": ("Rows (24 source tokens)", measure_rows),
    "waiting": ("Waiting sentences (128 rows run)", measure_waiting),
    "queue": ("The core's queue", measure_queue),
}


def main(
    panel: Annotated[list[str] | None, typer.Option(help=f"{', '.join(PANELS)}; may be repeated.")] = None,
    bundle: Annotated[Path | None, typer.Option(help="Default: en-de.")] = None,
    precision: Annotated[str | None, typer.Option(help="int8 or fp32.")] = None,
    runtime: Annotated[Runtime, typer.Option(help="What computes.")] = "auto",
    turns: Annotated[int, typer.Option(min=1, help="Of each point; the median counts.")] = 5,
    turn_s: Annotated[float, typer.Option(min=0.01, help="CPU seconds of a turn.")] = 0.25,
) -> None:
    """Measure and print."""
    if unknown := set(panel or []) - set(PANELS):
        raise typer.BadParameter(f"there is no panel {', '.join(unknown)}; there are {', '.join(PANELS)}")
    loaded = Bundle.load(bundle or default_bundle_dir())
    tokenizer = Tokenizer.load(loaded.tokenizer_path)
    ids = [token for sentence in own_sentences(400) for token in tokenizer.encode(sentence)[:-1]]
    setup = Setup(endless_runner(loaded, precision, runtime), ids, turn_s, turns)
    found: dict[str, list[Row]] = {}
    for name in [name for name in PANELS if name in (panel or PANELS)]:
        title, measure = PANELS[name]
        found[name] = [
            {key: float(f"{value:.4g}") if isinstance(value, float) else value for key, value in row.items()}
            for row in measure(setup)
        ]
        table = Table(*(key.replace("_", " ") for key in found[name][0]), title=title, title_justify="left")
        for row in found[name]:
            table.add_row(*map(str, row.values()))
        Console(width=120).print(table)
    about = f"{loaded.manifest.name} {loaded.manifest.version}, {precision or 'best precision'}, {runtime}"
    print(json.dumps({"bench": "growth", "model": about, "turns": turns, **describe(cpus=1), **found}))


if __name__ == "__main__":
    typer.run(main)
