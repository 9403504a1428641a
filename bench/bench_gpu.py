"""All that is to be known of the engine on a GPU, within ten minutes, whether its tokens are right first.

    python bench/bench_gpu.py --bundle BUNDLE         # with fp32 and fp16 graphs, and for the race its weights
    python bench/bench_gpu.py                         # exports en-de first, which needs PyTorch
    python bench/bench_gpu.py --only tokens --only speed
    python bench/bench_gpu.py --shape base            # the model widened to it (bench/race/shapes.py)
    python bench/bench_gpu.py --device cpu --sentences 20 --at-once 4    # a rehearsal without a GPU

In this order: tokens against the CPU's in a batch, a stream and with other beams, with recorded steps and without; how
long a step of a stream takes, tokens a second over sentences at once, memory under load; where the time of a step goes;
the tests that need a GPU; CTranslate2 in half precision on the same sentences (`bench_race.py`).

Each group of parts is a process of its own with a time of its own (`bench/gpu/`), since a CUDA error stays for as long
as a process lives.  gpu.json in --out is written after every part: a run that is cut off leaves what it has, and a part
that fails leaves the end of its traceback.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import machine
from bench.gpu.findings import Figures, Findings, console, last_lines
from bench.race.shapes import MAKERS
from model.bundle import Bundle, default_bundle_dir
from model.manifest import GPU_PRECISION
from service.threads import available_threads

ROOT = Path(__file__).resolve().parents[1]
AT_ONCE = (1, 16, 64, 256, 1_024)
RACED_AT_ONCE = (16, 64, 256, 1_024)
# Seconds after which a process is ended and the next one begins, by its kind.
LIMITS = {"gpu": 60, "expected": 90, "tokens": 90, "speed": 120, "profile": 60, "tests": 150, "race": 170}


@dataclass(frozen=True, slots=True)
class Day:
    """The groups of the run, and the time that is left."""

    findings: Findings
    ends_at: float
    only: Sequence[str]

    def seconds(self, kind: str) -> float:
        """Return how long a group of this kind may take."""
        return max(0.0, min(LIMITS[kind], self.ends_at - time.monotonic()))

    def run(self, name: str, command: Sequence[str]) -> None:
        """Run a group, whose name begins with its kind, and keep the end of what it prints if it fails."""
        kind = name.partition(" ")[0]
        seconds = self.seconds(kind)
        if self.only and kind not in self.only:
            return
        if not seconds:
            self.findings.keep(name, "there was no time left")
            return
        began = time.monotonic()
        with tempfile.TemporaryFile("w+", encoding="utf-8") as output:
            try:
                done = subprocess.run(
                    [sys.executable, *command],
                    cwd=ROOT,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, "PYTHONUNBUFFERED": "1", "TYPER_STANDARD_TRACEBACK": "1"},
                    timeout=seconds + 10.0,  # most end by themselves and say where they were
                    check=False,
                )
                status: int | str = done.returncode
            except subprocess.TimeoutExpired:
                status = "cut off"
            output.seek(0)
            printed = output.read()
        console.print(printed, markup=False)
        took = round(time.monotonic() - began, 1)
        ended: Figures = {"status": status, "seconds": took}
        if status != 0 or kind in ("tests", "race"):
            ended["end"] = last_lines(printed)
        self.findings.keep(f"process, {name}", ended)


def main(
    texts: Annotated[Path | None, typer.Option(help="Sentences, one a line, plain or .gz; default: our own.")] = None,
    bundle: Annotated[Path | None, typer.Option(help="With fp32 and fp16 graphs; default: en-de, exported.")] = None,
    shape: Annotated[str, typer.Option(help=f"That the bundle is widened to: {', '.join(MAKERS)}.")] = "default",
    device: Annotated[str, typer.Option(help="cuda, or cpu to rehearse.")] = "cuda",
    sentences: Annotated[int, typer.Option(min=1, help="That are compared with the CPU's.")] = 300,
    at_once: Annotated[list[int] | None, typer.Option(min=1, help="Sentences; may be repeated.")] = None,
    beam_size: Annotated[int, typer.Option(min=1)] = 4,
    only: Annotated[list[str] | None, typer.Option(help=f"{', '.join(LIMITS)}; may be repeated.")] = None,
    minutes: Annotated[float, typer.Option(help="After which nothing begins.")] = 10.0,
    out: Annotated[Path, typer.Option(help="Where gpu.json goes.")] = Path("build/bench/gpu"),
) -> None:
    """Check and measure the engine on a GPU."""
    out = out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    findings = Findings(out / "gpu.json")
    findings.path.unlink(missing_ok=True)
    for name, value in {"bench": "gpu", "device": device, **machine.describe(available_threads())}.items():
        findings.keep(name, value)
    day = Day(findings, time.monotonic() + 60 * minutes, only or ())
    with tempfile.TemporaryDirectory() as directory:
        given_model = Bundle.load(bundle or default_bundle_dir())
        model = with_gpu_graphs(given_model, shape, Path(directory)).directory.resolve()
        given = ["--texts", str(texts.resolve())] if texts else []
        options = ["--bundle", str(model), "--out", str(out), "--device", device, *given]
        options += ["--sentences", str(sentences), "--beam-size", str(beam_size)]
        options += [word for number in at_once or AT_ONCE for word in ("--at-once", str(number))]

        def group(kind: str, how: str = "") -> None:
            recorded = ["--recorded"] if how == "recorded" else []
            limit = ["--seconds", str(max(1.0, day.seconds(kind)))]
            day.run(f"{kind} {how}".strip(), ["-m", "bench.gpu", kind, *recorded, *limit, *options])

        on_gpu = device == "cuda"
        if on_gpu:
            group("gpu")
        group("expected")
        for kind in ("tokens", "speed", "profile"):
            if on_gpu:
                group(kind, "recorded")
            if kind == "tokens":
                group(kind, "launched")
        if on_gpu:
            os.environ["GPU_BUNDLE"] = str(model)
            day.run("tests", ["-m", "pytest", "-q", "-m", "gpu", "tests/gpu"])
        for kind in ("speed", "profile"):
            group(kind, "launched")
        if on_gpu:
            race(day, model if shape == "default" else given_model.directory.resolve(), shape, given, out)
    found = findings.read()
    console.print(table_of(found))
    print(json.dumps(found))


def with_gpu_graphs(bundle: Bundle, shape: str, directory: Path) -> Bundle:
    """Return the bundle, or one of this shape that is exported from its weights."""
    if shape == "default" and {GPU_PRECISION, "fp32"} <= set(bundle.manifest.variants):
        return bundle
    from export.onnx_export import ExportOptions, Samples, export_bundle
    from export.source import ExportSource

    weights = ExportSource.load(bundle.directory)
    made = MAKERS[shape](weights.config, weights.state)
    model = replace(weights, config=made.config, state=made.state)
    options = ExportOptions(precisions=("fp32", GPU_PRECISION), keep_weights=shape == "default")
    return export_bundle(model, directory / "bundle", options, Samples())


def race(day: Day, bundle: Path, shape: str, given: Sequence[str], out: Path) -> None:
    """Race CTranslate2, each regime in a process of its own, and keep the rows."""
    sizes = [word for number in RACED_AT_ONCE for word in ("--size", str(number))]
    cache = out.parent / "gpu-race-models"
    for regime, more in (("closed", sizes), ("single", []), ("stream", ["--stream-seconds", "2"])):
        name, place = f"race {regime}", cache / regime
        command = ["bench/bench_race.py", "--device", "cuda", "--shape", shape, "--regime", regime, *more, *given]
        day.run(name, [*command, "--bundle", str(bundle), "--cache", str(cache), "--out", str(place)])
        if (place / "race.json").exists():
            day.findings.keep(name, json.loads((place / "race.json").read_text(encoding="utf-8"))["rows"])


def table_of(found: Figures) -> Table:
    """Return the speeds as people read them."""
    table = Table("sentences at once", "steps", "mean rows", "tokens/s", "step ms", "graph ms", "search ms")
    for name, one in found.items():
        if name.startswith("speed, ") and "sentences" in one:
            numbers = (one[figure] for figure in ("mean_rows", "tokens_per_s", "step_ms", "graph_ms", "search_ms"))
            table.add_row(str(one["sentences"]), name.split(", ")[-1], *(f"{number:,}" for number in numbers))
    return table


if __name__ == "__main__":
    typer.run(main)
