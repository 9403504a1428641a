"""All that is to be known of the engine on a GPU, within ten minutes, whether its tokens are right first.

    python bench/bench_gpu.py --bundle BUNDLE         # with fp32 and fp16 graphs
    python bench/bench_gpu.py                         # exports en-de first, which needs PyTorch
    python bench/bench_gpu.py --device cpu --sentences 20 --at-once 4    # a rehearsal without a GPU

In this order: tokens against the CPU's in a batch and in a stream, with recorded steps and without; memory under load;
tokens a second over sentences at once; how long a step of a stream takes; the tests that need a GPU; CTranslate2 in
half precision on the same sentences (`bench_race.py`).  gpu.json in --out is written after every part, so that a run
that is cut off leaves what it has; a part that fails says so and the next one begins.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import machine
from model.bundle import Bundle, default_bundle_dir
from model.corpus import read_lines
from model.manifest import GPU_PRECISION
from model.tokenizer import Tokenizer
from service.engine.cpu.runner import CpuRunner, open_session
from service.engine.cuda import cudart
from service.engine.cuda.memory import HostDevice
from service.engine.cuda.runner import CudaRunner, graph_paths
from service.engine.loop import EngineLoop
from service.engine.runner import Runner
from service.engine.wire import GPU_BUDGETS, EngineSpec, Hypothesis, Job, JobResult, SchedulerConfig, SearchParams
from service.threads import available_threads
from tests.fakes.own_text import own_sentences

ROOT = Path(__file__).resolve().parents[1]
AT_ONCE = (1, 16, 64, 256, 1_024)
TESTS = (sys.executable, "-m", "pytest", "-q", "tests/gpu")
RACE = (sys.executable, "bench/bench_race.py", "--device", "cuda")
WAVES = 3  # of sentences that fill the rows, so that most steps are full

Sources = Sequence[tuple[int, ...]]
Figures = dict[str, Any]

console = Console(width=120, highlight=False)


@dataclass(slots=True)
class Run:
    """The best hypothesis of each sentence, and the seconds that each step took."""

    found: dict[int, Hypothesis] = field(default_factory=dict)
    steps: list[float] = field(default_factory=list)

    @property
    def num_tokens(self) -> int:
        """Tokens of all hypotheses, end-of-sentence counted."""
        return sum(len(hypothesis.token_ids) + 1 for hypothesis in self.found.values())


@dataclass(slots=True)
class Day:
    """The parts of the run: what they find, where it is kept, and the time that is left."""

    out: Path
    ends_at: float
    found: Figures

    @property
    def seconds_left(self) -> float:
        return self.ends_at - time.monotonic()

    def part(self, name: str, measure: Callable[[], Any]) -> None:
        """Run a part if there is time, and keep what it finds or what went wrong."""
        if self.seconds_left <= 0:
            self.found[name] = "there was no time left"
        else:
            try:
                self.found[name] = measure()
            except Exception as error:  # noqa: BLE001 - the next part may work
                self.found[name] = f"failed: {type(error).__name__}: {error}"
        console.print(f"{name}: {self.found[name]}", markup=False)
        self.out.mkdir(parents=True, exist_ok=True)
        (self.out / "gpu.json").write_text(json.dumps(self.found) + "\n", encoding="utf-8")


def main(
    texts: Annotated[Path | None, typer.Option(help="Sentences, one a line, plain or .gz; default: our own.")] = None,
    bundle: Annotated[Path | None, typer.Option(help="With fp32 and fp16 graphs; default: en-de, exported.")] = None,
    device: Annotated[str, typer.Option(help="cuda, or cpu to rehearse.")] = "cuda",
    sentences: Annotated[int, typer.Option(min=1, help="That are compared with the CPU's.")] = 300,
    at_once: Annotated[list[int] | None, typer.Option(min=1, help="Sentences; may be repeated.")] = None,
    beam_size: Annotated[int, typer.Option(min=1)] = 4,
    minutes: Annotated[float, typer.Option(help="After which no part begins.")] = 10.0,
    out: Annotated[Path, typer.Option(help="Where gpu.json goes.")] = Path("build/bench/gpu"),
) -> None:
    """Check and measure the engine on a GPU."""
    found: Figures = {"bench": "gpu", "device": device, **machine.describe(available_threads())}
    day = Day(out, time.monotonic() + 60 * minutes, found)
    if device == "cuda":
        day.part("gpu", describe_gpu)
    with tempfile.TemporaryDirectory() as directory:
        model = with_gpu_graphs(Bundle.load(bundle or default_bundle_dir()), Path(directory))
        sources = load_sources(model, texts)
        params = SearchParams(beam_size=beam_size, max_target_tokens=model.manifest.decoding.max_target_tokens)
        compared = sources[:sentences]
        expected = translate(EngineLoop(CpuRunner(model, precision="fp32"), SchedulerConfig()), compared, params)
        for recorded in (False, True) if device == "cuda" else (False,):
            how = "recorded" if recorded else "launched"
            runner = open_runner(model, device, recorded=recorded)
            for name, arrivals in (("batch", 0), ("stream", 3)):
                check = partial(compare, runner, compared, params, expected, arrivals)
                day.part(f"tokens, {name}, {how}", check)
            if device == "cuda":
                day.part(f"memory, {how}", partial(memory_under_load, runner, sources, params))
            rows = [number * beam_size for number in at_once or AT_ONCE]
            day.part(f"speed, {how}", partial(speeds, runner, sources, rows, params))
            day.part(f"steps of a stream, {how}", partial(stream_steps, runner, sources, params))
            del runner
    if device == "cuda":
        day.part("tests", lambda: run(TESTS, day.seconds_left))
        given = ("--texts", str(texts)) if texts else ()
        day.part("race", lambda: run((*RACE, "--out", str(out), *given), day.seconds_left))
    console.print(table_of(day.found))
    print(json.dumps(day.found))


def describe_gpu() -> Figures:
    """Return the card, its driver and its memory."""
    free, total = cudart.memory()
    driver = cudart.driver_version()
    name, architecture = cudart.card_name(), cudart.compute_capability()
    return {"name": name, "sm": architecture, "driver_cuda": driver, "total_gb": total / 1e9, "free_gb": free / 1e9}


def with_gpu_graphs(bundle: Bundle, directory: Path) -> Bundle:
    """Return the bundle, or one that is exported from its weights."""
    if {GPU_PRECISION, "fp32"} <= set(bundle.manifest.variants):
        return bundle
    from export.onnx_export import ExportOptions, Samples, export_bundle
    from export.source import ExportSource

    options = ExportOptions(precisions=("fp32", GPU_PRECISION), keep_weights=False)
    return export_bundle(ExportSource.load(bundle.directory), directory / "bundle", options, Samples())


def load_sources(bundle: Bundle, texts: Path | None) -> Sources:
    """Return the token ids of the sentences that the model takes."""
    tokenizer, limit = Tokenizer.load(bundle.tokenizer_path), bundle.manifest.decoding.max_source_tokens
    lines = read_lines(texts) if texts else own_sentences(1_000, seed=1)
    return [tuple(ids) for ids in map(tokenizer.encode, lines) if 0 < len(ids) <= limit]


def open_runner(bundle: Bundle, device: str, *, recorded: bool) -> CudaRunner:
    """Open the GPU's graphs, on a GPU or, to rehearse, on the CPU."""
    if device == "cpu":
        sessions = {name: open_session(path, 1) for name, path in graph_paths(bundle).items()}
        return CudaRunner(bundle, sessions, HostDevice())
    return CudaRunner.open(EngineSpec(bundle_dir=bundle.directory, device="cuda", cuda_graphs=recorded))


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


def gpu_loop(runner: Runner, rows: int) -> EngineLoop:
    return EngineLoop(runner, replace(GPU_BUDGETS, max_rows=rows))


def compare(runner: Runner, sources: Sources, params: SearchParams, expected: Run, arrivals: int) -> Figures:
    """Return how many sentences get the tokens that the CPU gives them, and how far the scores are apart."""
    found = translate(gpu_loop(runner, 1_024), sources, params, arrivals).found
    same = [number for number in found if found[number].token_ids == expected.found[number].token_ids]
    gaps = [abs(found[number].score - expected.found[number].score) for number in found]
    return {"same": len(same), "of": len(found), "largest_score_gap": round(max(gaps), 5)}


def memory_under_load(runner: Runner, sources: Sources, params: SearchParams) -> Figures:
    """Return what three equal loads leave free, in GB: the last two should be equal."""
    free = []
    for _ in range(3):
        translate(gpu_loop(runner, 1_024), sources, params)
        free.append(round(cudart.memory()[0] / 1e9, 3))
    return {"free_gb_after_each": free}


def speeds(runner: Runner, sources: Sources, rows: Sequence[int], params: SearchParams) -> list[Figures]:
    return [speed(runner, sources, number, params) for number in rows]


def speed(runner: Runner, sources: Sources, rows: int, params: SearchParams) -> Figures:
    """Time the second of two runs over the same sentences, longest first."""
    loop = gpu_loop(runner, rows)
    wanted = max(WAVES * rows // params.beam_size, 8)
    batch = sorted((sources[number % len(sources)] for number in range(wanted)), key=len, reverse=True)
    translate(loop, batch, params)
    loop.take_stats()
    result, stats = translate(loop, batch, params), loop.take_stats()
    return {
        "sentences": rows // params.beam_size,
        "mean_rows": round(stats.rows / stats.steps, 1),
        "tokens_per_s": round(result.num_tokens / sum(result.steps)),
        "step_ms": round(1e3 * (stats.busy_s - sum(stats.encode_s)) / stats.steps, 4),
        "graph_ms": round(1e3 * sum(stats.step_decode_s) / stats.steps, 4),
        "search_ms": round(1e3 * sum(stats.step_beam_s) / stats.steps, 4),
        "encoder_share": round(sum(stats.encode_s) / stats.busy_s, 3),
    }


def stream_steps(runner: Runner, sources: Sources, params: SearchParams) -> Figures:
    """Return the milliseconds of a step where 6 sentences join at each, when all shapes are known."""
    loop = gpu_loop(runner, 1_024)
    for _ in range(2):
        translate(loop, sources, params, 6)
    result = translate(loop, sources, params, 6)
    p50, p99 = np.percentile(result.steps, [50, 99])
    seconds = sum(result.steps)
    milliseconds = {
        "p50_ms": round(1e3 * p50, 3),
        "p99_ms": round(1e3 * p99, 3),
        "max_ms": round(1e3 * max(result.steps), 3),
    }
    return {**milliseconds, "tokens_per_s": round(result.num_tokens / seconds), "steps": len(result.steps)}


def run(command: Sequence[str], seconds: float) -> Figures:
    """Run a command for so long at most, and return its exit status and the end of what it prints."""
    try:
        done = subprocess.run(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired as error:
        return {"command": " ".join(command[1:]), "status": "cut off", "end": str(error.stdout or "")[-1_000:]}
    return {"command": " ".join(command[1:]), "status": done.returncode, "end": done.stdout.splitlines()[-12:]}


def table_of(found: Figures) -> Table:
    """Return the speeds as people read them."""
    table = Table("sentences at once", "steps", "mean rows", "tokens/s", "step ms", "graph ms", "search ms")
    for how in ("launched", "recorded"):
        speeds = found.get(f"speed, {how}")
        for one in speeds if isinstance(speeds, list) else ():
            names = ("mean_rows", "tokens_per_s", "step_ms", "graph_ms", "search_ms")
            table.add_row(str(one["sentences"]), how, *(f"{one[name]:,}" for name in names))
    return table


if __name__ == "__main__":
    typer.run(main)
