"""Loads on the counted GPU, and what they cost a step."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar
from unittest.mock import patch

import numpy as np

from bench.gpu_counted.counters import Count, Counts, Measured, total
from bench.gpu_counted.scripted import ScriptedRunner
from bench.gpu_counted.twin import TwinRunner
from model.bundle import Bundle
from model.tokenizer import Tokenizer
from service.engine.cpu.runner import open_session
from service.engine.cuda.runner import CudaRunner, graph_paths
from service.engine.loop import EngineLoop
from service.engine.runner import Runner
from service.engine.wire import GPU_BUDGETS, EngineSpec, Job, JobResult, SearchParams
from tests.fakes.host_device import HostDevice
from tests.fakes.own_text import own_sentences

MAX_ROWS = 1_024
# What the host pays, in microseconds: modelled for an H100 (PCIe 5) by the audit that found what the first engine cost.
_LAUNCH_US, _BLOCKING_COPY_US, _COPY_US, _WAIT_US = 2.2, 8.5, 2.2, 4.0
_GRAPH_US, _GRAPH_KERNEL_US = 5.0, 0.02

RunnerT = TypeVar("RunnerT", bound=CudaRunner)


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What some decoder steps cost, with the sentences that joined and left between them."""

    steps: int
    rows: float  # on average
    host_s: float  # of the CPU, in all
    new_bindings: int
    encoder_runs: int = 0
    counts: Counts

    def each(self, beginning: str) -> float:
        """Return how often events of these names happen a step."""
        return total(self.counts, beginning).number / self.steps

    def number(self, name: str) -> int:
        """Return how often this happened in all."""
        return self.counts.get(name, Count()).number

    @property
    def modelled_ms(self) -> float:
        """A step on an H100, good to a factor of two: the host's work, then that of the GPU, which it waits for.

        The GPU's kernels and products have their times where they are counted (`native/`).  Launches and copies cost
        the host what the audit of the first engine measured; a graph's launch grows with its kernels.
        """
        us = _LAUNCH_US * self.number("launch") + _BLOCKING_COPY_US * total(self.counts, "blocking copy").number
        us += _COPY_US * total(self.counts, "copy").number + _WAIT_US * self.number("synchronise")
        graphs = self.counts.get("graph launch", Count())
        us += _GRAPH_US * graphs.number + _GRAPH_KERNEL_US * graphs.amount
        return (1e3 * self.host_s + us / 1e3 + total(self.counts, "busy ns").amount / 1e6) / self.steps

    def is_clean(self) -> bool:
        """Return whether no kernel was launched and no graph was recorded in a way that a real GPU refuses."""
        return not [name for name in self.counts if name.startswith(("FORBIDDEN", "INVALID"))]

    def line(self) -> str:
        """Return the figures for people."""
        names = ("launch", "graph launch", "blocking copy", "copy pinned", "copy device to pinned", "synchronise")
        each = ", ".join(f"{name} {self.each(name):.2f}" for name in names)
        on_device = total(self.counts, "copy device to device")
        return (
            f"{self.steps} steps of {self.rows:.0f} rows: {self.number('plan')} plans,"
            f" {self.new_bindings} new bindings; a step: {each}, copies on the device"
            f" {on_device.number / self.steps:.2f} ({on_device.amount / self.steps / 1e6:.2f} MB)"
        )


def twin(bundle: Bundle, **spec: Any) -> TwinRunner:
    """The bundle on the counted GPU, with tokens from the CPU."""
    sessions = {name: open_session(path, 1) for name, path in graph_paths(bundle).items()}
    here = CudaRunner(bundle, sessions, HostDevice())
    return TwinRunner(here, opened(CudaRunner, bundle, **spec))


def opened(kind: type[RunnerT], bundle: Bundle, *, max_rows: int = MAX_ROWS, **spec: Any) -> RunnerT:
    """A runner as an engine process opens it, ready to serve."""
    runner = kind.open(EngineSpec(bundle_dir=bundle.directory, device="cuda", **spec))
    runner.record(runner.budgets(replace(GPU_BUDGETS, max_rows=max_rows)))
    return runner


def sources(bundle: Bundle, number: int) -> list[tuple[int, ...]]:
    tokenizer = Tokenizer.load(bundle.tokenizer_path)
    return [tuple(tokenizer.encode(line)) for line in own_sentences(number, seed=1)]


def made_up_sources(number: int) -> list[tuple[int, ...]]:
    """Sentences of 3 to 45 tokens of any vocabulary."""
    random = np.random.default_rng(2)
    return [(*random.integers(5, 1_000, length).tolist(), 3) for length in random.integers(3, 45, number).tolist()]


def loop_of(runner: Runner, max_rows: int = MAX_ROWS) -> EngineLoop:
    return EngineLoop(runner, runner.budgets(replace(GPU_BUDGETS, max_rows=max_rows)))


def stream(
    loop: EngineLoop,
    runner: TwinRunner | ScriptedRunner,
    texts: Sequence[tuple[int, ...]],
    beam_size: int,
    arrivals: int,
) -> Cost:
    """Let so many sentences join at each step, and all of them finish."""
    params = SearchParams(beam_size=beam_size, max_target_tokens=256)
    waiting = [Job(id=number, source_ids=ids, params=params) for number, ids in enumerate(texts)]
    waiting = [waiting[place] for place in np.random.default_rng(0).permutation(len(waiting))]
    loop.take_stats()
    measured, before, began = Measured(), runner.num_steps, time.process_time()
    with counted_bindings(runner.there if isinstance(runner, TwinRunner) else runner) as new_bindings:
        while waiting or not loop.is_idle:
            for job in waiting[:arrivals]:
                loop.submit(job)
            del waiting[:arrivals]
            for outcome in loop.step():
                assert isinstance(outcome, JobResult), outcome
    host_s, stats = time.process_time() - began, loop.take_stats()
    return Cost(
        steps=runner.num_steps - before,
        rows=stats.rows / stats.steps,
        host_s=host_s,
        new_bindings=len(new_bindings),
        encoder_runs=len(stats.encode_s),
        counts=measured.since(),
    )


def settled(runner: CudaRunner, num_sentences: int, beam_size: int, steps: int = 10) -> Cost:
    """Sentences that neither join nor leave, after a warm-up over the same columns."""
    shape, width = (num_sentences, beam_size), 2 * beam_size
    parents = np.tile(np.arange(beam_size), (num_sentences, 1))

    def decode(steps: int) -> None:
        for _ in range(steps):
            runner.decode_step(np.full(shape, 7), np.zeros(shape, np.float32), state, num_candidates=width)
            state.advance(parents)

    for _ in range(3):  # the last finds everything known
        state = runner.new_state(beam_size)
        state.append(runner.encode([(*range(5, 28), 3)] * num_sentences), range(num_sentences))
        decode(2)
        measured, began = Measured(), time.process_time()
        with counted_bindings(runner) as new_bindings:
            decode(steps)
        host_s, counts = time.process_time() - began, measured.since()
    rows = num_sentences * beam_size
    return Cost(steps=steps, rows=rows, host_s=host_s, new_bindings=len(new_bindings), counts=counts)


@contextmanager
def counted_bindings(runner: CudaRunner) -> Iterator[list[object]]:
    """Collect the steps that this runner binds anew."""
    made: list[object] = []
    bind = runner._steps._bind

    def make(*args: Any) -> Any:
        made.append(bind(*args))
        return made[-1]

    with patch.object(runner._steps, "_bind", make):
        yield made
