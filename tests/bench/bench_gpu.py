"""All that is to be known of the engine on a GPU, in one run; to rehearse without one, `--device cpu`.

    python tests/bench/bench_gpu.py --texts SENTENCES.en             # tests, figures, the race; half an hour at most
    python tests/bench/bench_gpu.py --device cpu --rows 4 --rows 16  # the same code on this machine's CPU

Runs the tests that need a GPU, then: tokens a second over rows, with steps launched one by one and replayed as CUDA
graphs; operators and kernels a step; the share of the time that reading the weights, keys and values would take at the
speed of the memory; last the race in half precision (`bench_race.py --device cuda`).  Writes gpu.json and the
race's file into --out, after every part, so that a run that is cut off leaves what it has.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from export.onnx_export import ExportOptions, Samples, export_bundle
from export.source import ExportSource
from model.bundle import Bundle, default_bundle_dir
from model.data import read_lines
from model.manifest import GPU_PRECISION
from model.tokenizer import Tokenizer
from service.engine.cpu.session import open_session
from service.engine.cuda.runner import CudaRunner, graph_paths
from service.engine.job import Job, JobResult, SearchParams
from service.engine.loop import EngineLoop
from service.engine.scheduler import GPU_BUDGETS, SchedulerConfig
from service.threads import available_threads
from tests.bench import machine
from tests.fakes.own_text import own_sentences

ROOT = Path(__file__).resolve().parents[2]
ROWS = (1, 4, 16, 64, 128, 256, 512, 1_024)
PROFILED_ROWS = 256
TESTS = (sys.executable, "-m", "pytest", "-q", "tests/gpu")
RACE = (sys.executable, "tests/bench/bench_race.py", "--device", "cuda")

Sources = Sequence[tuple[int, ...]]
WAVES = 3  # of sentences that fill the rows, so that most steps are full
NO_KERNEL = frozenset({"Reshape", "Shape", "Identity", "Squeeze", "Unsqueeze"})  # they only say how memory is read
COPIED_BYTES, COPIES = 512 << 20, 20

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
        speeds = sweep(model, sources, params, device, rows or ROWS)
        found["speeds"] = [speed.record() for speed in speeds]
        save(found, out)
        found["step"] = profile(model, sources, params, device)
        save(found, out)
        found["floor"] = floors(model, sources, speeds, device, beam_size)
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


def profile(bundle: Bundle, sources: Sources, params: SearchParams, device: str) -> dict[str, object]:
    """Return the operators and kernels of a step in a full batch; only on a GPU."""
    if device != "cuda":
        return {}
    from service.engine.cuda.session import open_on_cuda

    with tempfile.TemporaryDirectory() as directory:
        sessions = {
            name: open_on_cuda(path, profile=Path(directory) / name) for name, path in graph_paths(bundle).items()
        }
        loop = EngineLoop(CudaRunner(bundle, sessions, "cuda"), SchedulerConfig(max_rows=PROFILED_ROWS))
        translate(loop, sources[: PROFILED_ROWS // params.beam_size], params)
        found = launches(Path(sessions["decoder_step"].end_profiling()), loop.take_stats().steps)
    console.print(f"a step: {sum(found.operators.values()):.0f} operators, {found.kernels or 'unknown'} kernels")
    return found.record()


def floors(bundle: Bundle, sources: Sources, speeds: Sequence[Speed], device: str, beam: int) -> dict[str, Any]:
    """Return the share of a step that reading weights, keys and values would take."""
    speed_of_memory = bandwidth(device)
    source_tokens = sum(map(len, sources)) / len(sources)
    shares = []
    for speed in speeds:
        needed = floor_bytes(bundle, round(speed.mean_rows), beam, source_tokens, source_tokens)
        share = needed / speed_of_memory / (speed.graph_ms / 1e3)
        shares.append({"rows": speed.rows, "recorded": speed.recorded, "bytes": needed, "share": round(share, 4)})
    console.print(f"memory: {speed_of_memory / 1e9:,.0f} GB/s; share of a step: {[entry['share'] for entry in shares]}")
    return {"bytes_per_s": round(speed_of_memory), "mean_source_tokens": round(source_tokens, 1), "shares": shares}


def save(found: dict[str, Any], out: Path) -> None:
    """Write what there is by now."""
    (out / "gpu.json").write_text(json.dumps(found) + "\n", encoding="utf-8")


def open_runner(bundle: Bundle, device: str, *, recorded: bool = False, profile: Path | None = None) -> CudaRunner:
    """Open the GPU's graphs, on a GPU or, to rehearse, on the CPU."""
    paths = graph_paths(bundle)
    if device == "cpu":
        return CudaRunner(bundle, {name: open_session(path, 1) for name, path in paths.items()}, "cpu")
    from service.engine.cuda.session import open_on_cuda

    sessions = {
        name: open_on_cuda(path, cuda_graphs=recorded and name == "decoder_step", profile=profile and profile / name)
        for name, path in paths.items()
    }
    return CudaRunner(bundle, sessions, "cuda", records=recorded)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Launches:
    """Of one step."""

    operators: dict[str, float]  # that launch at least one kernel
    microseconds: dict[str, float]  # by operator; on a GPU that of launching
    kernels: float | None  # as the profiler saw them on the device; None where it cannot

    def record(self) -> dict[str, object]:
        return {
            "operators_a_step": round(sum(self.operators.values()), 1),
            "kernels_a_step": self.kernels and round(self.kernels, 1),
            "by_operator": {name: round(count, 2) for name, count in self.operators.items()},
            "us_by_operator": {name: round(spent, 1) for name, spent in self.microseconds.items()},
        }


def launches(profile: Path, num_steps: int) -> Launches:
    """Read the profile of the decoder's session, which ran so many steps."""
    events = json.loads(profile.read_text(encoding="utf-8"))
    counts, times, kernels = Counter[str](), Counter[str](), 0
    for event in events:
        if event.get("cat") == "Kernel":
            kernels += 1
        elif event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
            operator = event["args"]["op_name"]
            times[operator] += event["dur"]
            counts[operator] += operator not in NO_KERNEL
    return Launches(
        operators={name: count / num_steps for name, count in counts.most_common() if count},
        microseconds={name: spent / num_steps for name, spent in times.most_common()},
        kernels=kernels / num_steps if kernels else None,
    )


def floor_bytes(bundle: Bundle, rows: int, beam_size: int, source_tokens: float, target_tokens: float) -> int:
    """Return the bytes that a step must read: the decoder's weights once, and keys and values of the live sentences.

    Hypotheses are counted as if nothing of their past were in common, and halfway through their translation.
    """
    config = bundle.manifest.config
    d, ff, layers = config.d_model, config.d_ff, config.num_decoder_layers
    weights = layers * (6 * d * d + 2 * d * ff) + config.vocab_size * d  # cross keys and values are the encoder's
    column = 2 * layers * d
    caches = rows * column * target_tokens / 2 + rows / beam_size * column * source_tokens
    return int(2 * (weights + caches))  # half precision


def bandwidth(device: str) -> float:
    """Return the bytes a second that the device's memory reads and writes: the best of some copies by PyTorch."""
    source = torch.ones(COPIED_BYTES, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    seconds: list[float] = []
    for _ in range(COPIES):
        _wait(device)
        began = time.perf_counter()
        target.copy_(source)
        _wait(device)
        seconds.append(time.perf_counter() - began)
    return 2 * COPIED_BYTES / min(seconds)


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    typer.run(main)
