"""Where the engine's time goes: its phases, and the operators of both graphs as they run in a full batch.

    python bench/bench_profile.py
    python bench/bench_profile.py --bundle BUNDLE --texts SENTENCES.en --sentences 400 --shortlist

Operators are timed by ONNX Runtime's own profiler, which adds about 3 us to each; phases are timed in a run without it.
"""

import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import onnxruntime as ort
import typer
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from model.bundle import Bundle, default_bundle_dir
from model.corpus import read_lines
from model.tokenizer import Tokenizer
from service.engine.cpu import runner
from service.engine.cpu.runner import CpuRunner, session_options
from service.engine.loop import EngineLoop
from service.engine.wire import Job, SchedulerConfig, SearchParams, StepStats
from tests.fakes.own_text import own_sentences

Sources = Sequence[Sequence[int]]


def translate(engine: EngineLoop, sources: Sources, params: SearchParams) -> StepStats:
    """Translate all at once, longest first."""
    for number, source in enumerate(sorted(sources, key=len, reverse=True)):
        engine.submit(Job(id=number, source_ids=tuple(source), params=params))
    while not engine.is_idle:
        engine.step()
    return engine.take_stats()


def open_engine(bundle: Bundle, precision: str | None, max_rows: int, profile_dir: Path | None = None) -> EngineLoop:
    """Open an engine of one thread; with a directory, each session writes a profile there when it is deleted."""

    def profiled(num_threads: int, flags: frozenset[str]) -> ort.SessionOptions:
        options = session_options(num_threads, flags)
        options.enable_profiling = True
        options.profile_file_prefix = str(profile_dir / "session")  # type: ignore[operator]
        return options

    runner.session_options = profiled if profile_dir else session_options
    return EngineLoop(CpuRunner(bundle, precision=precision), SchedulerConfig(max_rows=max_rows))


def operator_times(profile: Path) -> Counter[str]:
    """Return microseconds by operator, over all runs of one session."""
    events = json.loads(profile.read_text(encoding="utf-8"))
    times: Counter[str] = Counter()
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
            times[event["args"]["op_name"]] += event["dur"]
    return times


def print_phases(stats: StepStats, num_sentences: int) -> dict[str, float]:
    """Print and return the milliseconds of each phase."""
    phases = {
        "decoder graph": sum(stats.step_decode_s),
        "search and caches": sum(stats.step_beam_s),
        "encoder graph": sum(stats.encode_s),
    }
    phases["everything else"] = stats.busy_s - sum(phases.values())
    title = f"{num_sentences} sentences, {stats.steps} steps of {stats.rows / stats.steps:.0f} rows"
    print_shares(title, {name: seconds * 1e3 for name, seconds in phases.items()}, "ms")
    return {name: round(seconds * 1e3, 1) for name, seconds in phases.items()}


def print_shares(title: str, amounts: dict[str, float], unit: str) -> None:
    """Print a table of amounts, largest first."""
    table = Table("what", unit, "share", title=title, title_justify="left")
    total = sum(amounts.values())
    for name, amount in sorted(amounts.items(), key=lambda item: -item[1]):
        table.add_row(name, f"{amount:,.1f}", f"{amount / total:.1%}")
    Console(width=100).print(table)


def main(
    bundle: Annotated[Path | None, typer.Option(help="Default: en-de.")] = None,
    texts: Annotated[Path | None, typer.Option(help="Sentences, one a line, plain or .gz; default: our own.")] = None,
    precision: Annotated[str | None, typer.Option(help="Default: the bundle's best.")] = None,
    sentences: Annotated[int, typer.Option(min=1)] = 400,
    beam_size: Annotated[int, typer.Option(min=1)] = 4,
    max_rows: Annotated[int, typer.Option(min=1)] = 128,
    shortlist: Annotated[bool, typer.Option(help="Only the target tokens of the shortlist.")] = False,
) -> None:
    """Profile the engine."""
    loaded = Bundle.load(bundle or default_bundle_dir())
    tokenizer = Tokenizer.load(loaded.tokenizer_path)
    lines = read_lines(texts) if texts else own_sentences(sentences, seed=1)
    sources = [ids for ids in map(tokenizer.encode, lines) if ids][:sentences]
    params = SearchParams(
        beam_size=beam_size, max_target_tokens=loaded.manifest.decoding.max_target_tokens, use_shortlist=shortlist
    )
    engine = open_engine(loaded, precision, max_rows)
    translate(engine, sources[:32], params)
    result: dict[str, object] = {"phases_ms": print_phases(translate(engine, sources, params), len(sources))}
    with TemporaryDirectory() as directory:
        profiled = open_engine(loaded, precision, max_rows, Path(directory))
        stats = translate(profiled, sources, params)
        del profiled  # sessions write their profiles when they go
        runs = {"encoder": len(stats.encode_s), "decoder step": stats.steps}
        for path in sorted(Path(directory).iterdir()):
            times = operator_times(path)
            if not times:
                continue
            graph = "decoder step" if "TopK" in times else "encoder"
            per_run = {name: microseconds / runs[graph] for name, microseconds in times.items()}
            print_shares(f"{graph}: {runs[graph]} runs, {sum(per_run.values()):,.0f} us each", per_run, "us a run")
            result[graph] = {name: round(amount, 1) for name, amount in per_run.items()}
    print(json.dumps({"bench": "profile", "model": loaded.manifest.name, "beam_size": beam_size, **result}))


if __name__ == "__main__":
    typer.run(main)
