"""All that is to be known of the engine on a GPU, in one run; to rehearse without one, `--device cpu`.

    python tests/bench/bench_gpu.py --texts SENTENCES.en             # tests, figures, the race; half an hour at most
    python tests/bench/bench_gpu.py --device cpu --rows 4 --rows 16  # the same code on this machine's CPU

Runs the tests that need a GPU, then: tokens a second over rows, with steps launched one by one and replayed as CUDA
graphs; last the race in half precision (`bench_race.py --device cuda`).  Writes gpu.json and the race's file into
--out, after every part, so that a run that is cut off leaves what it has.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from export.onnx_export import ExportOptions, Samples, export_bundle
from export.source import ExportSource
from model.bundle import Bundle, default_bundle_dir
from model.corpus import read_lines
from model.manifest import GPU_PRECISION
from model.tokenizer import Tokenizer
from service.engine.cpu.session import open_session
from service.engine.cuda.memory import HostDevice
from service.engine.cuda.runner import CudaRunner, graph_paths
from service.engine.job import Job, JobResult, SearchParams
from service.engine.loop import EngineLoop
from service.engine.scheduler import GPU_BUDGETS
from service.engine.spec import EngineSpec
from service.threads import available_threads
from tests.bench import machine
from tests.fakes.own_text import own_sentences

ROOT = Path(__file__).resolve().parents[2]
ROWS = (1, 4, 16, 64, 128, 256, 512, 1_024)
TESTS = (sys.executable, "-m", "pytest", "-q", "tests/gpu")
RACE = (sys.executable, "tests/bench/bench_race.py", "--device", "cuda")

Sources = Sequence[tuple[int, ...]]
WAVES = 3  # of sentences that fill the rows, so that most steps are full

console = Console(width=120, highlight=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """Of one number of rows."""

    rows: int  # that may run at once
    mean_rows: float  # that did
    recorded: bool  # steps are replayed as CUDA graphs
    sentences_per_s: float
    tokens_per_s: float  # of the best hypotheses
    step_ms: float  # of which:
    graph_ms: float
    search_ms: float
    encoder_share: float  # of all the time

    def record(self) -> dict[str, float]:
        return {**{name: round(value, 4) for name, value in asdict(self).items()}, "recorded": self.recorded}


def main(
    texts: Annotated[Path | None, typer.Option(help="Sentences, one a line, plain or .gz; default: our own.")] = None,
    bundle: Annotated[Path | None, typer.Option(help="With its weights; default: en-de.")] = None,
    device: Annotated[str, typer.Option(help="cuda, or cpu to rehearse.")] = "cuda",
    rows: Annotated[list[int] | None, typer.Option(min=1, help="Live hypotheses; may be repeated.")] = None,
    beam_size: Annotated[int, typer.Option(min=1)] = 4,
    tests: Annotated[bool, typer.Option(help="Run the tests that need a GPU first.")] = True,
    race: Annotated[bool, typer.Option(help="Race CTranslate2 in half precision last.")] = True,
    out: Annotated[Path, typer.Option(help="Where gpu.json goes.")] = Path("build/bench/gpu"),
) -> None:
    """Measure the engine on a GPU."""
    out.mkdir(parents=True, exist_ok=True)
    found: dict[str, Any] = {
        "bench": "gpu",
        "device": device,
        "gpu": gpu_name(),
        **machine.describe(available_threads()),
    }
    if tests:
        found["tests"] = run(TESTS)
    with tempfile.TemporaryDirectory() as directory:
        model = with_gpu_graphs(Bundle.load(bundle or default_bundle_dir()), Path(directory))
        sources = load_sources(model, texts)
        params = SearchParams(beam_size=beam_size, max_target_tokens=model.manifest.decoding.max_target_tokens)
        found["speeds"] = [speed.record() for speed in sweep(model, sources, params, device, rows or ROWS)]
    save(found, out)
    if race:
        found["race"] = run([*RACE, "--out", str(out), *(("--texts", str(texts)) if texts else ())])
        save(found, out)
    print(json.dumps(found))


def gpu_name() -> str:
    """Return the GPU as nvidia-smi names it; empty without one."""
    try:
        query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
        return subprocess.run(query, capture_output=True, text=True, check=True, timeout=60).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def run(command: Sequence[str]) -> dict[str, Any]:
    """Run a command, show what it prints, and return its exit status and the end of that."""
    lines: list[str] = []
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        for line in process.stdout or ():
            console.print(line.rstrip(), markup=False)
            lines.append(line.rstrip())
    return {"command": " ".join(command[1:]), "status": process.returncode, "end": lines[-12:]}


def with_gpu_graphs(bundle: Bundle, directory: Path) -> Bundle:
    """Return the bundle, or one that is exported from its weights."""
    if GPU_PRECISION in bundle.manifest.variants:
        return bundle
    options = ExportOptions(precisions=(GPU_PRECISION,), keep_weights=False)
    return export_bundle(ExportSource.load(bundle.directory), directory / "bundle", options, Samples())


def load_sources(bundle: Bundle, texts: Path | None) -> Sources:
    """Return the token ids of the sentences that the model takes."""
    tokenizer, limit = Tokenizer.load(bundle.tokenizer_path), bundle.manifest.decoding.max_source_tokens
    lines = read_lines(texts) if texts else own_sentences(1_000, seed=1)
    return [tuple(ids) for ids in map(tokenizer.encode, lines) if 0 < len(ids) <= limit]


def sweep(bundle: Bundle, sources: Sources, params: SearchParams, device: str, rows: Sequence[int]) -> list[Speed]:
    """Measure all numbers of rows, with steps launched one by one and, on a GPU, recorded."""
    table = Table("rows", "mean rows", "recorded", "sentences/s", "tokens/s", "step ms", "graph ms", "search ms")
    speeds: list[Speed] = []
    for recorded in (False, True) if device == "cuda" else (False,):
        runner = open_runner(bundle, device, recorded=recorded)
        for number in rows:
            speed = measure(runner, sources, number, params, recorded=recorded)
            speeds.append(speed)
            amounts = (speed.sentences_per_s, speed.tokens_per_s, speed.step_ms, speed.graph_ms, speed.search_ms)
            table.add_row(
                str(number), f"{speed.mean_rows:.0f}", str(recorded), *(f"{amount:,.2f}" for amount in amounts)
            )
            console.print(f"{number} rows: {speed.tokens_per_s:,.0f} tokens/s")
    console.print(table)
    return speeds


def save(found: dict[str, Any], out: Path) -> None:
    """Write what there is by now."""
    (out / "gpu.json").write_text(json.dumps(found) + "\n", encoding="utf-8")


def open_runner(bundle: Bundle, device: str, *, recorded: bool = False) -> CudaRunner:
    """Open the GPU's graphs, on a GPU or, to rehearse, on the CPU."""
    paths = graph_paths(bundle)
    if device == "cpu":
        return CudaRunner(bundle, {name: open_session(path, 1) for name, path in paths.items()}, HostDevice())
    return CudaRunner.open(EngineSpec(bundle_dir=bundle.directory, device="cuda", cuda_graphs=recorded))


def measure(runner: CudaRunner, sources: Sources, rows: int, params: SearchParams, *, recorded: bool) -> Speed:
    """Time the second of two runs over the same sentences, longest first."""
    loop = EngineLoop(runner, replace(GPU_BUDGETS, max_rows=rows))
    wanted = max(WAVES * rows // params.beam_size, 8)
    batch = sorted((sources[number % len(sources)] for number in range(wanted)), key=len, reverse=True)
    translate(loop, batch, params)
    loop.take_stats()
    began = time.perf_counter()
    num_tokens = translate(loop, batch, params)
    seconds, stats = time.perf_counter() - began, loop.take_stats()
    return Speed(
        rows=rows,
        mean_rows=stats.rows / stats.steps,
        recorded=recorded,
        sentences_per_s=len(batch) / seconds,
        tokens_per_s=num_tokens / seconds,
        step_ms=1e3 * (stats.busy_s - sum(stats.encode_s)) / stats.steps,
        graph_ms=1e3 * sum(stats.step_decode_s) / stats.steps,
        search_ms=1e3 * sum(stats.step_beam_s) / stats.steps,
        encoder_share=sum(stats.encode_s) / stats.busy_s,
    )


def translate(loop: EngineLoop, sources: Sources, params: SearchParams) -> int:
    """Return the number of tokens of the best hypotheses, end-of-sentence counted."""
    for number, source in enumerate(sources):
        loop.submit(Job(id=number, source_ids=source, params=params))
    num_tokens = 0
    while not loop.is_idle:
        for outcome in loop.step():
            if not isinstance(outcome, JobResult):
                raise TypeError(f"sentence {outcome.job_id} failed: {outcome.message}")
            num_tokens += len(outcome.hypotheses[0].token_ids) + 1
    return num_tokens


if __name__ == "__main__":
    typer.run(main)
