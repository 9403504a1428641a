"""All that is to be known of the engine on a GPU, in one run; to rehearse without one, `--device cpu`.

    python tests/bench/bench_gpu.py --texts SENTENCES.en             # tests, figures, the race; half an hour at most
    python tests/bench/bench_gpu.py --device cpu --rows 4 --rows 16  # the same code on this machine's CPU

Runs the tests that need a GPU, then: tokens a second over rows, with steps launched one by one and replayed as CUDA
graphs; operators and kernels a step; the share of the time that reading the weights, keys and values would take at the
speed of the memory; last the race in half precision (`bench_race.py --device cuda`).  Writes gpu.json, gpu.png and the
race's files into --out, after every part, so that a run that is cut off leaves what it has.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

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
from service.engine.job import SearchParams
from service.threads import available_threads
from tests.bench.gpu.speed import Sources, Speed, measure, open_runner
from tests.bench.gpu.step import bandwidth, floor_bytes, launches, mean
from tests.bench.race import machine
from tests.fakes.own_text import own_sentences

ROOT = Path(__file__).resolve().parents[2]
ROWS = (1, 4, 16, 64, 128, 256, 512, 1_024)
PROFILED_ROWS = 256
TESTS = (sys.executable, "-m", "pytest", "-q", "tests/gpu")
RACE = (sys.executable, "tests/bench/bench_race.py", "--device", "cuda")

console = Console(width=120, highlight=False)


def main(
    texts: Annotated[Path | None, typer.Option(help="Sentences, one a line, plain or .gz; default: our own.")] = None,
    bundle: Annotated[Path | None, typer.Option(help="With its weights; default: en-de.")] = None,
    device: Annotated[str, typer.Option(help="cuda, or cpu to rehearse.")] = "cuda",
    rows: Annotated[list[int] | None, typer.Option(min=1, help="Live hypotheses; may be repeated.")] = None,
    beam_size: Annotated[int, typer.Option(min=1)] = 4,
    tests: Annotated[bool, typer.Option(help="Run the tests that need a GPU first.")] = True,
    race: Annotated[bool, typer.Option(help="Race the peers in half precision last.")] = True,
    out: Annotated[Path, typer.Option(help="Where gpu.json and gpu.png go.")] = Path("build/bench/gpu"),
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
    draw(speeds, found["floor"], found["gpu"] or "rehearsal on a CPU", out / "gpu.png")
    save(found, out)
    if race:
        found["race"] = run([*RACE, "--out", str(out), *(("--texts", str(texts)) if texts else ())])
        save(found, out)
    print(json.dumps(found))


def gpu_name() -> str:
    """As nvidia-smi has it; empty without."""
    try:
        query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
        return subprocess.run(query, capture_output=True, text=True, check=True, timeout=60).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def run(command: Sequence[str]) -> dict[str, Any]:
    """A command's exit status and the end of what it printed; it is shown as it comes."""
    lines: list[str] = []
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        for line in process.stdout or ():
            console.print(line.rstrip(), markup=False)
            lines.append(line.rstrip())
    return {"command": " ".join(command[1:]), "status": process.returncode, "end": lines[-12:]}


def with_gpu_graphs(bundle: Bundle, directory: Path) -> Bundle:
    """The bundle, or one that is exported from its weights."""
    if GPU_PRECISION in bundle.manifest.variants:
        return bundle
    options = ExportOptions(precisions=(GPU_PRECISION,), keep_weights=False)
    return export_bundle(ExportSource.load(bundle.directory), directory / "bundle", options, Samples())


def load_sources(bundle: Bundle, texts: Path | None) -> Sources:
    """Token ids of the sentences that are no longer than the model takes."""
    tokenizer, limit = Tokenizer.load(bundle.tokenizer_path), bundle.manifest.decoding.max_source_tokens
    lines = read_lines(texts) if texts else own_sentences(1_000, seed=1)
    return [tuple(ids) for ids in map(tokenizer.encode, lines) if 0 < len(ids) <= limit]


def sweep(bundle: Bundle, sources: Sources, params: SearchParams, device: str, rows: Sequence[int]) -> list[Speed]:
    """All numbers of rows, launched and, on a GPU, recorded; shown as they come."""
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
    """Operators and kernels of a step in a full batch; only on a GPU."""
    if device != "cuda":
        return {}
    from service.engine.cuda.runner import CudaRunner, graph_paths
    from service.engine.cuda.session import open_on_cuda
    from service.engine.loop import EngineLoop
    from service.engine.scheduler import SchedulerConfig
    from tests.bench.gpu.speed import translate

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
    """What reading weights, keys and values would take, over what a step takes."""
    speed_of_memory = bandwidth(device)
    source_tokens = mean([len(source) for source in sources])
    shares = []
    for speed in speeds:
        needed = floor_bytes(bundle, round(speed.mean_rows), beam, source_tokens, source_tokens)
        share = needed / speed_of_memory / (speed.graph_ms / 1e3)
        shares.append({"rows": speed.rows, "recorded": speed.recorded, "bytes": needed, "share": round(share, 4)})
    console.print(f"memory: {speed_of_memory / 1e9:,.0f} GB/s; share of a step: {[entry['share'] for entry in shares]}")
    return {"bytes_per_s": round(speed_of_memory), "mean_source_tokens": round(source_tokens, 1), "shares": shares}


def draw(speeds: Sequence[Speed], floor: dict[str, Any], title: str, path: Path) -> None:
    """Tokens a second and the share of the floor, over rows."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4))
    for recorded in (False, True):
        label = "replayed (CUDA graphs)" if recorded else "launched one by one"
        of_kind = [speed for speed in speeds if speed.recorded is recorded]
        shares = [entry["share"] for entry in floor["shares"] if entry["recorded"] is recorded]
        if of_kind:
            left.plot([speed.rows for speed in of_kind], [speed.tokens_per_s for speed in of_kind], "o-", label=label)
            right.plot([speed.rows for speed in of_kind], [100 * share for share in shares], "o-", label=label)
    left.set(xscale="log", yscale="log", xlabel="rows", ylabel="tokens/s of the best hypotheses", title=title)
    right.set(xscale="log", xlabel="rows", ylabel="% of a step", title="reading weights, keys and values")
    for axes in (left, right):
        axes.grid(alpha=0.3)
        axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)


def save(found: dict[str, Any], out: Path) -> None:
    """What there is by now."""
    (out / "gpu.json").write_text(json.dumps(found) + "\n", encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
