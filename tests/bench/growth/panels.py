"""What may grow, one panel each: how it is measured, and how it is drawn."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from statistics import median
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from service.engine.job import Job
from service.engine.loop import EngineLoop
from service.engine.process import return_freed_memory
from service.engine.runner import Runner
from service.engine.scheduler import SchedulerConfig, source_width
from tests.bench.growth import front_queue
from tests.bench.growth.load import Load, Text, middle, resident_mb, slowdown, take_turns

Row = dict[str, int | float | str]

SHORT, LONG = 24, 512  # source tokens
LONG_STEPS = 256
SOURCE_TOKENS = (8, 16, 32, 64, 128, 256, 512)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
BEAMS = (1, 2, 4, 8, 16)
ROWS_OF_BEAMS = 64
WAITING = (0, 100, 1_000, 10_000, 100_000)
NEIGHBOURS = (3, 7, 15, 31, 63)
STEPS_A_POINT = 16  # in the panel over the target's length
FOREVER_S = 1e6
HALF_CANCELLED = "first half cancelled"


@dataclass(frozen=True, slots=True)
class Setup:
    """What all panels measure with."""

    runner: Runner
    text: Text
    turn_s: float
    turns: int


@dataclass(frozen=True, slots=True)
class Panel:
    """One question."""

    title: str
    measure: Callable[[Setup], list[Row]]
    draw: Callable[[Axes, Sequence[Row]], None]


def measure_source(setup: Setup) -> list[Row]:
    """8 sentences of one length, beam 4."""
    loads = [Load(setup.runner, (setup.text.jobs(source_tokens=length), 8)) for length in SOURCE_TOKENS]
    rows: list[Row] = []
    for length, turns in zip(SOURCE_TOKENS, take_turns(loads, setup.turn_s, setup.turns), strict=True):
        cost = middle(turns)
        step_us = cost.graph_us + cost.search_us
        rows.append({"source_tokens": length, "encoder_us_token": cost.source_token_us, "decoder_us_row_step": step_us})
    return rows


def draw_source(axes: Axes, rows: Sequence[Row]) -> None:
    """Encoder and decoder, each in its own unit of work."""
    _line(axes, rows, "source_tokens", "encoder_us_token", "encoder, per source token")
    _line(axes, rows, "source_tokens", "decoder_us_row_step", "decoder, per row-step")
    axes.set(xlabel="source tokens", ylabel="us")
    _powers(axes)


def measure_target(setup: Setup) -> list[Row]:
    """8 sentences that start together, beam 4: what a step costs as they grow."""
    rows: list[Row] = []
    for source_tokens in (SHORT, LONG):
        runs = np.array([_run_together(setup, source_tokens) for _ in range(3)])  # [run, step]
        points = np.median(runs, axis=0).reshape(-1, STEPS_A_POINT).mean(axis=1)
        rows += [
            {"source_tokens": source_tokens, "target_tokens": STEPS_A_POINT * (number + 1), "us_row_step": float(point)}
            for number, point in enumerate(points)
        ]
    return rows


def _run_together(setup: Setup, source_tokens: int) -> list[float]:
    """Microseconds per row-step of each step."""
    load = Load(setup.runner, (setup.text.jobs(source_tokens=source_tokens, steps=[LONG_STEPS + 8]), 8))
    load.fill()
    stats = load.run(LONG_STEPS)
    costs = zip(stats.step_decode_s, stats.step_beam_s, stats.step_rows, strict=True)
    return [1e6 * (decode_s + beam_s) / rows for decode_s, beam_s, rows in costs]


def draw_target(axes: Axes, rows: Sequence[Row]) -> None:
    """A line for each length of the source."""
    for source_tokens in (SHORT, LONG):
        chosen = [row for row in rows if row["source_tokens"] == source_tokens]
        _line(axes, chosen, "target_tokens", "us_row_step", f"{source_tokens} source tokens")
    axes.set(xlabel="target tokens so far", ylabel="us per row-step")


def measure_rows(setup: Setup) -> list[Row]:
    """Sentences of 24 tokens in greedy search and with beam 4."""
    points = [(beam, rows) for beam in (1, 4) for rows in ROWS if rows >= beam]
    loads = [
        Load(setup.runner, (setup.text.jobs(source_tokens=SHORT, beam_size=beam), rows // beam))
        for beam, rows in points
    ]
    found: list[Row] = []
    for (beam, rows), turns in zip(points, take_turns(loads, setup.turn_s, setup.turns), strict=True):
        cost = middle(turns)
        decoder_us = cost.graph_us + cost.search_us
        found.append({"beam": beam, "rows": rows, "us_row_step": cost.row_us, "of_that_decoder_us": decoder_us})
    return found


def draw_rows(axes: Axes, rows: Sequence[Row]) -> None:
    """Both beams, with and without the encoder."""
    for beam in (1, 4):
        chosen = [row for row in rows if row["beam"] == beam]
        _line(axes, chosen, "rows", "us_row_step", f"beam {beam}, all")
        _line(axes, chosen, "rows", "of_that_decoder_us", f"beam {beam}, decoder")
    axes.set(xlabel="rows", ylabel="us per row-step")
    _powers(axes)


def measure_beam(setup: Setup) -> list[Row]:
    """64 rows, in more or fewer sentences."""
    loads = [
        Load(setup.runner, (setup.text.jobs(source_tokens=SHORT, beam_size=beam), ROWS_OF_BEAMS // beam))
        for beam in BEAMS
    ]
    rows: list[Row] = []
    for beam, turns in zip(BEAMS, take_turns(loads, setup.turn_s, setup.turns), strict=True):
        cost = middle(turns)
        rows.append(
            {"beam": beam, "us_row_step": cost.row_us, "of_that_graph_us": cost.graph_us, "search_us": cost.search_us}
        )
    return rows


def draw_beam(axes: Axes, rows: Sequence[Row]) -> None:
    """Everything, the graph, and the search with its caches."""
    _line(axes, rows, "beam", "us_row_step", "all")
    _line(axes, rows, "beam", "of_that_graph_us", "decoder graph")
    _line(axes, rows, "beam", "search_us", "search and caches")
    axes.set(xlabel="beam", ylabel=f"us per row-step, {ROWS_OF_BEAMS} rows")
    _powers(axes)


def measure_waiting(setup: Setup) -> list[Row]:
    """A full batch of the default size, and more sentences than it holds."""
    return [
        row
        for queue, deadline_s in (("plain", None), ("with deadlines", FOREVER_S), (HALF_CANCELLED, None))
        for row in _measure_queue(setup, queue, deadline_s)
    ]


def _measure_queue(setup: Setup, queue: str, deadline_s: float | None) -> list[Row]:
    config = SchedulerConfig()
    running = config.max_rows // 4
    loads = [
        Load(
            setup.runner,
            (setup.text.jobs(source_tokens=SHORT, deadline_s=deadline_s), running + waiting),
            config=config,
            num_cancelled=waiting // 2 if queue == HALF_CANCELLED else 0,
        )
        for waiting in WAITING
    ]
    turns = take_turns(loads, setup.turn_s, setup.turns)
    return [
        {"waiting": waiting, "queue": queue, "ms_step": middle(found).step_ms, "us_submit": load.submit_us}
        for waiting, load, found in zip(WAITING, loads, turns, strict=True)
    ]


def draw_waiting(axes: Axes, rows: Sequence[Row]) -> None:
    """A line for each kind of queue."""
    for queue in dict.fromkeys(str(row["queue"]) for row in rows):
        chosen = [row for row in rows if row["queue"] == queue]
        _line(axes, chosen, "waiting", "ms_step", queue)
    axes.set_xscale("symlog", linthresh=100)
    axes.set(xlabel="waiting sentences", ylabel="ms per step", xlim=(0, None))


def measure_long(setup: Setup) -> list[Row]:
    """Sentences of 24 tokens alone, with one more of their kind, and with a long one that is decoded for long.

    Shares are those of the two budgets of the scheduler, relative to what the short ones have of them.
    """
    encoder_ms = median(_encoder_ms(setup) for _ in range(5))
    rows: list[Row] = []
    for neighbours in NEIGHBOURS:
        alone, with_another, with_long = take_turns(
            [
                Load(setup.runner, (setup.text.jobs(source_tokens=SHORT), neighbours)),
                Load(setup.runner, (setup.text.jobs(source_tokens=SHORT), neighbours + 1)),
                Load(setup.runner, (setup.text.jobs(source_tokens=SHORT), neighbours), _one_long(setup)),
            ],
            setup.turn_s,
            2 * setup.turns,
        )
        rows.append(
            {
                "short_sentences": neighbours,
                "ms_step": middle(alone).step_ms,
                "slower_by_another_%": 100 * slowdown(with_another, alone),
                "slower_by_long_%": 100 * slowdown(with_long, alone),
                "share_of_rows_%": 100 / neighbours,
                "share_of_tokens_%": 100 * source_width(LONG) / (source_width(SHORT) * neighbours),
                "ms_encoder_once": encoder_ms,
            }
        )
    return rows


def _encoder_ms(setup: Setup) -> float:
    """How long all others stand still when the long sentence comes."""
    source = setup.text.cut(LONG)
    began = time.process_time()
    setup.runner.encode([source])
    return 1e3 * (time.process_time() - began)


def _one_long(setup: Setup) -> tuple[Iterator[Job], int]:
    return setup.text.jobs(source_tokens=LONG, steps=[LONG_STEPS]), 1


def draw_long(axes: Axes, rows: Sequence[Row]) -> None:
    """What was measured, between the shares that could be called fair."""
    _line(axes, rows, "short_sentences", "slower_by_long_%", f"one long ({LONG} -> {LONG_STEPS} tokens)")
    _line(axes, rows, "short_sentences", "slower_by_another_%", "one more short")
    _line(axes, rows, "short_sentences", "share_of_rows_%", "its share of max_rows", linestyle="--", marker="")
    tokens = "share_of_tokens_%"
    _line(axes, rows, "short_sentences", tokens, "its share of max_source_tokens", linestyle=":", marker="")
    axes.set(xlabel="short sentences beside it", ylabel="short ones slower by, %", ylim=(-5, 120))
    _powers(axes)


def measure_memory(setup: Setup) -> list[Row]:
    """One loop with the default budgets, one load after the other; memory while each runs, and after it."""
    text, config = setup.text, SchedulerConfig()
    loop = EngineLoop(setup.runner, config)
    room = config.max_source_tokens // LONG

    def long_ones(number: int) -> Iterable[Job]:
        return islice(text.jobs(source_tokens=LONG, steps=[LONG_STEPS // 2]), number)

    def short_ones(number: int) -> Iterable[Job]:
        return islice(text.jobs(source_tokens=SHORT), number)

    stages: list[tuple[str, Iterable[Job], int | None]] = [
        ("200 short", short_ones(200), None),
        (f"{room} long", long_ones(room), None),
        (f"{2 * room} long", long_ones(2 * room), None),
        ("100,000 waiting", short_ones(100_000), 100),
        (f"{room} long again", long_ones(room), None),
        ("200 short again", short_ones(200), None),
    ]
    rows: list[Row] = [{"load": "loaded", "highest_mb": resident_mb(), "afterwards_mb": resident_mb()}]
    for name, jobs, num_steps in stages:
        highest_mb = _run(loop, jobs, num_steps)
        return_freed_memory()  # as an engine does after a heartbeat without work
        rows.append({"load": name, "highest_mb": highest_mb, "afterwards_mb": resident_mb()})
    return rows


def _run(loop: EngineLoop, jobs: Iterable[Job], num_steps: int | None) -> float:
    """Run jobs to their end, or for some steps and then cancel them; the most memory there was."""
    ids = []
    for job in jobs:
        ids.append(job.id)
        loop.submit(job)
    highest_mb, step = 0.0, 0
    while not loop.is_idle:
        if step == num_steps:
            for job_id in ids:
                loop.cancel(job_id)
        loop.step()
        step += 1
        if step % STEPS_A_POINT == 0:
            highest_mb = max(highest_mb, resident_mb())
    loop.take_stats()
    return highest_mb


def draw_memory(axes: Axes, rows: Sequence[Row]) -> None:
    """Two bars a load."""
    places = np.arange(len(rows))
    for offset, name, label in ((-0.2, "highest_mb", "while it runs"), (0.2, "afterwards_mb", "after it")):
        axes.bar(places + offset, [float(row[name]) for row in rows], width=0.4, label=label)
    axes.set_xticks(places, [str(row["load"]) for row in rows], rotation=20, ha="right")
    axes.set(ylabel="resident MB")


def _powers(axes: Axes) -> None:
    """Doublings are equally far apart, and are written as plain numbers."""
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")


def _line(axes: Axes, rows: Sequence[Row], x: str, y: str, label: str, **style: Any) -> None:
    axes.plot([float(row[x]) for row in rows], [float(row[y]) for row in rows], **{"marker": "."} | style, label=label)


PANELS = {
    "memory": Panel("Memory", measure_memory, draw_memory),  # first: others leave some behind
    "source": Panel("Source length (8 sentences, beam 4)", measure_source, draw_source),
    "target": Panel("Length so far (8 sentences, beam 4)", measure_target, draw_target),
    "rows": Panel("Rows (24 source tokens)", measure_rows, draw_rows),
    "beam": Panel("Beam", measure_beam, draw_beam),
    "waiting": Panel("Waiting sentences (128 rows run)", measure_waiting, draw_waiting),
    "queue": Panel("The front process's queue", lambda _: front_queue.measure(), front_queue.draw),
    "long": Panel("One long sentence among short ones", measure_long, draw_long),
}
