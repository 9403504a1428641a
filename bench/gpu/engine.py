"""What `bench_gpu.py` checks and measures of one engine: tokens, times of a step, tokens a second, memory."""

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bench.gpu.findings import Figures
from model.bundle import Bundle
from model.corpus import read_lines
from model.tokenizer import Tokenizer
from service.engine.cpu.runner import open_session
from service.engine.cuda import cudart
from service.engine.cuda.memory import CudaDevice
from service.engine.cuda.runner import GRAPHS, CudaRunner, graph_paths
from service.engine.cuda.session import open_on_cuda, require_cuda
from service.engine.loop import EngineLoop
from service.engine.runner import Runner
from service.engine.wire import GPU_BUDGETS, Hypothesis, Job, JobResult, SearchParams
from tests.fakes.host_device import HostDevice
from tests.fakes.own_text import own_sentences

WAVES = 3  # of sentences that fill the rows, so that most steps are full
ARRIVALS = 6  # sentences that join a stream at each step
SETTLED = 64  # sentences of the batch whose steps are taken apart
EXAMPLES = 5  # of different translations
_PARTS = {"send": "copies", "fetch": "copies", "copy": "copies", "clear": "copies", "wait": "wait"}

Sources = Sequence[tuple[int, ...]]


@dataclass(slots=True)
class Run:
    """The best hypothesis of each sentence, and the seconds that each step took."""

    found: dict[int, Hypothesis] = field(default_factory=dict)
    steps: list[float] = field(default_factory=list)

    @property
    def num_tokens(self) -> int:
        """Tokens of all hypotheses, end-of-sentence counted."""
        return sum(len(hypothesis.token_ids) + 1 for hypothesis in self.found.values())


class Clocked:
    """Another object, some of whose methods add the seconds that they take to a sum with a name."""

    def __init__(self, other: Any, sums: Mapping[str, str], seconds: dict[str, float]) -> None:
        self._other, self._sums, self._seconds = other, sums, seconds

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._other, name)
        return partial(self._call, method, self._sums[name]) if name in self._sums else method

    def _call(self, method: Callable[..., Any], name: str, *arguments: Any) -> Any:
        began = time.perf_counter()
        try:
            return method(*arguments)
        finally:
            self._seconds[name] += time.perf_counter() - began


def load_sources(bundle: Bundle, texts: Path | None) -> Sources:
    """Return the token ids of the sentences that the model takes."""
    tokenizer, limit = Tokenizer.load(bundle.tokenizer_path), bundle.manifest.decoding.max_source_tokens
    lines = read_lines(texts) if texts else own_sentences(1_000, seed=1)
    return [tuple(ids) for ids in map(tokenizer.encode, lines) if 0 < len(ids) <= limit]


def open_runner(bundle: Bundle, device: str, *, recorded: bool, seconds: dict[str, float] | None = None) -> CudaRunner:
    """Open the GPU's graphs, on a GPU or, to rehearse, on the CPU; waits and launches add to `seconds`."""
    target: Any = HostDevice()
    if device == "cuda":
        require_cuda()
        target = CudaDevice()
    sessions: dict[str, Any] = {
        name: open_on_cuda(path, target.stream, cuda_graphs=recorded and name in GRAPHS)
        if device == "cuda"
        else open_session(path, 1)
        for name, path in graph_paths(bundle).items()
    }
    if seconds is not None:
        target = Clocked(target, _PARTS, seconds)
        sessions = {
            name: Clocked(session, {"run_with_iobinding": f"launch {name}"}, seconds)
            for name, session in sessions.items()
        }
    runner = CudaRunner(bundle, sessions, target, records=recorded)
    if recorded:
        runner.record(runner.budgets(GPU_BUDGETS))
    return runner


def gpu_loop(runner: Runner, rows: int) -> EngineLoop:
    return EngineLoop(runner, replace(GPU_BUDGETS, max_rows=rows))


def translate(loop: EngineLoop, sources: Sources, params: SearchParams, arrivals: int = 0) -> Run:
    """Translate all sentences, which come at once or so many at each step."""
    result, waiting = Run(), list(enumerate(sources))
    while waiting or not loop.is_idle:
        for number, source in waiting[: arrivals or len(waiting)]:
            loop.submit(Job(id=number, source_ids=source, params=params))
        del waiting[: arrivals or len(waiting)]
        began = time.perf_counter()
        outcomes = loop.step()
        result.steps.append(time.perf_counter() - began)
        for outcome in outcomes:
            if not isinstance(outcome, JobResult):
                raise TypeError(f"sentence {outcome.job_id} failed: {outcome.message}")
            result.found[outcome.job_id] = outcome.hypotheses[0]
    return result


def compare(
    runner: Runner, sources: Sources, params: SearchParams, expected: Sequence[Hypothesis], arrivals: int
) -> Figures:
    """Return how many sentences get the tokens that the CPU gives them, and those that differ most in their scores."""
    loop = gpu_loop(runner, 1_024)
    found = translate(loop, sources, params, arrivals).found
    gaps = {number: abs(found[number].score - wanted.score) for number, wanted in enumerate(expected)}
    different = [number for number in gaps if found[number].token_ids != expected[number].token_ids]
    examples = sorted(different, key=gaps.__getitem__, reverse=True)[:EXAMPLES]
    return {
        "same": len(found) - len(different),
        "of": len(found),
        "largest_score_gap": round(max(gaps.values()), 5),
        "unrecorded_steps": loop.take_stats().unrecorded_steps,
        "different": [
            {
                "sentence": number,
                "cpu": [*expected[number].token_ids],
                "gpu": [*found[number].token_ids][: len(expected[number].token_ids) + 5],
                "scores": [round(expected[number].score, 5), round(found[number].score, 5)],
            }
            for number in examples
        ],
    }


def memory_under_load(runner: Runner, sources: Sources, params: SearchParams) -> Figures:
    """Return what three equal loads leave free, in GB: the last two should be equal."""
    free = []
    for _ in range(3):
        translate(gpu_loop(runner, 1_024), sources, params)
        free.append(free_gb())
    return {"free_gb_after_each": free}


def free_gb() -> float:
    return round(cudart.memory()[0] / 1e9, 3)


def speed(runner: Runner, sources: Sources, sentences: int, params: SearchParams) -> Figures:
    """Time the second of two runs over the same sentences, longest first."""
    loop = gpu_loop(runner, sentences * params.beam_size)
    wanted = max(WAVES * sentences, 8)
    batch = sorted((sources[number % len(sources)] for number in range(wanted)), key=len, reverse=True)
    translate(loop, batch, params)
    loop.take_stats()
    result, stats = translate(loop, batch, params), loop.take_stats()
    return {
        "sentences": sentences,
        "mean_rows": round(stats.rows / stats.steps, 1),
        "tokens_per_s": round(result.num_tokens / sum(result.steps)),
        "step_ms": round(1e3 * (stats.busy_s - sum(stats.encode_s)) / stats.steps, 4),
        "graph_ms": round(1e3 * sum(stats.step_decode_s) / stats.steps, 4),
        "search_ms": round(1e3 * sum(stats.step_beam_s) / stats.steps, 4),
        "encoder_share": round(sum(stats.encode_s) / stats.busy_s, 3),
        "unrecorded_steps": stats.unrecorded_steps,
    }


def stream_steps(runner: Runner, sources: Sources, params: SearchParams) -> Figures:
    """Return the milliseconds of a step of a stream, when all shapes are known."""
    loop = gpu_loop(runner, 1_024)
    for _ in range(2):
        translate(loop, sources, params, ARRIVALS)
    result = translate(loop, sources, params, ARRIVALS)
    p50, p99 = map(float, np.percentile(result.steps, [50, 99]))
    seconds = sum(result.steps)
    milliseconds = {
        "p50_ms": round(1e3 * p50, 3),
        "p99_ms": round(1e3 * p99, 3),
        "max_ms": round(1e3 * max(result.steps), 3),
    }
    return {**milliseconds, "tokens_per_s": round(result.num_tokens / seconds), "steps": len(result.steps)}


def parts_of_a_step(bundle: Bundle, device: str, sources: Sources, params: SearchParams, *, recorded: bool) -> Figures:
    """Return where the milliseconds of a step go, in a batch in which no sentence ends and in a stream.

    A long wait says that the GPU bounds the step, a short one that Python and the launches do.
    """
    seconds: dict[str, float] = defaultdict(float)
    runner = open_runner(bundle, device, recorded=recorded, seconds=seconds)
    longest = sorted(sources, key=len, reverse=True)[:SETTLED]

    def settled() -> Figures:
        loop = gpu_loop(runner, SETTLED * params.beam_size)
        for number, source in enumerate(longest):
            loop.submit(Job(id=number, source_ids=source, params=params))
        found: list[dict[str, float]] = []
        while not (outcomes := _timed_step(loop, seconds, found)):
            pass
        while outcomes or not loop.is_idle:
            outcomes = loop.step()
        return _mean(found[2:-1])

    def stream() -> Figures:
        loop, found, waiting = gpu_loop(runner, 1_024), list[dict[str, float]](), list(enumerate(sources))
        while waiting or not loop.is_idle:
            for number, source in waiting[:ARRIVALS]:
                loop.submit(Job(id=number, source_ids=source, params=params))
            del waiting[:ARRIVALS]
            _timed_step(loop, seconds, found)
        return _mean(found)

    return {name: (measure(), measure())[-1] for name, measure in (("settled", settled), ("stream", stream))}


def _timed_step(loop: EngineLoop, seconds: dict[str, float], found: list[dict[str, float]]) -> list[Any]:
    """Take a step and note where its time went."""
    seconds.clear()
    began = time.perf_counter()
    outcomes = loop.step()
    whole = time.perf_counter() - began
    found.append({"step": whole, "python": whole - sum(seconds.values()), **seconds})
    return list(outcomes)


def _mean(steps: Sequence[dict[str, float]]) -> Figures:
    """Return the mean milliseconds of each part, what it takes in steps without it counted as none."""
    names = dict.fromkeys(name for step in steps for name in step)
    means = {f"{name}_ms": round(1e3 * sum(step.get(name, 0.0) for step in steps) / len(steps), 4) for name in names}
    return {"steps": len(steps), **means}
