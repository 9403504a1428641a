"""Dragoman against CTranslate2: the same weights, text, beam and threads, in one process, in turns.

    python bench/bench_race.py                                    # the usual programme, about ten minutes
    python bench/bench_race.py --texts SENTENCES.en --texts OTHER.en.gz
    python bench/bench_race.py --shape default --precision int8 --beam 4 --regime closed --texts SENTENCES.en

Regimes: one sentence at a time (`single`), a batch that is there at once (`closed`), and sentences at random times
(`stream`).  Settings of each side are chosen on the first half of the text, which is then timed on the other half;
tokenisation and loading are outside the clock.  Prints a table and, last, one line of JSON with what was tried and the
raw times; writes race.json into --out.

The files in race/: text.py, shapes.py and models.py have what is run, dragoman.py and peer_ctranslate2.py who runs it
and with which settings, regimes.py how it is timed.
"""

import json
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import chain, product
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import machine
from bench.race.dragoman import OurSide
from bench.race.models import PRECISIONS, RaceModel, prepare
from bench.race.peer_ctranslate2 import TheirSide
from bench.race.regimes import Clock, Contestant, Stream, closed, one_at_a_time, took
from bench.race.shapes import MAKERS
from bench.race.text import RaceText, Sentence, batches, load_text
from model.bundle import Bundle, default_bundle_dir
from model.tokenizer import Tokenizer
from service.engine.wire import Runtime, SearchParams
from service.threads import available_threads
from tests.parity.ctranslate2_model import pieces

Row = dict[str, Any]
USUAL_SHAPES = ("default", "base", "opus")  # NLLB's takes half an hour
REGIMES = ("single", "closed", "stream")
SHORTLISTS = {"none": (False, False), "ours": (True, False), "both": (True, True)}  # (Dragoman's, CTranslate2's vmap)
CALIBRATION_SENTENCES = 128
LARGE_SIZE, GPU_SIZES = 256, (32, 256, 1_024)  # CTranslate2 batches by itself: this is what it can choose from
SWEEP_RUNS, SWEEP_SINGLES = 2, 8  # for each setting: runs of a closed batch, and sentences one at a time
GUESS_SENTENCES = 64  # of the closed batch that says which rates of a stream to try
BOUND_OF_P50 = 10.0  # a stream's p95 latency may be so many times CTranslate2's median latency of a sentence alone
BOUNDS_OF_DURATION = 5.0  # arrivals go on for so many bounds: a queue that grows must have the time to show
# Of each side's throughput of that batch: where its settings for a stream are compared.  A stream sustains less than a
# batch that is there at once, and beyond what is sustained settings differ by chance.
TUNING_LOAD = 0.7

console = Console(width=150, highlight=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """What is raced: one model, text, precision, beam and regime."""

    text: str
    shape: str = "default"
    precision: str = "int8"
    beam_size: int = 4
    regime: str = "closed"
    size: int = 32  # sentences of a closed batch
    shortlist: str = "none"

    def __str__(self) -> str:
        regime = f"closed {self.size}" if self.regime == "closed" else self.regime
        shortlist = "" if self.shortlist == "none" else f", shortlist {self.shortlist}"
        return f"{self.shape} {self.precision} beam {self.beam_size}, {regime}{shortlist}, {self.text}"


def usual_cells(text: str, shape: str, *, has_shortlist: bool) -> list[Cell]:
    """Return everything at beam 4, other beams in a closed batch only, streams in int8 only.

    Large batches with the default model only: with the larger one each takes minutes and says no more.  OPUS-MT's shape
    has the first four cells.
    """
    int8, fp32 = (Cell(text=text, shape=shape, precision=precision) for precision in ("int8", "fp32"))
    lists = [("ours", regime) for regime in ("single", "closed")] + [
        ("both", regime) for regime in ("single", "closed")
    ]
    usual = [replace(cell, regime=regime) for cell in (int8, fp32) for regime in ("single", "closed")]
    if shape == "opus":
        return usual
    return [
        *usual,
        *(replace(int8, beam_size=beam_size) for beam_size in (1, 5)),
        replace(int8, regime="stream"),
        *(replace(int8, regime=regime, shortlist=who) for who, regime in lists if has_shortlist),
        *([replace(int8, size=LARGE_SIZE)] if shape == "default" else []),
    ]


def main(
    texts: Annotated[list[Path] | None, typer.Option(help="Sentences, one a line, plain or .gz; default: own.")] = None,
    shape: Annotated[
        list[str] | None, typer.Option(help=f"{', '.join(MAKERS)} (not by default); may be repeated, as the next.")
    ] = None,
    precision: Annotated[list[str] | None, typer.Option(help=", ".join(PRECISIONS))] = None,
    beam: Annotated[list[int] | None, typer.Option(min=1)] = None,
    regime: Annotated[list[str] | None, typer.Option(help=", ".join(REGIMES))] = None,
    size: Annotated[list[int] | None, typer.Option(min=1, help="Sentences of a closed batch.")] = None,
    shortlist: Annotated[list[str] | None, typer.Option(help=f"Who has one: {', '.join(SHORTLISTS)}.")] = None,
    device: Annotated[str, typer.Option(help="cpu, or cuda: both sides on a GPU in half precision.")] = "cpu",
    runtime: Annotated[Runtime, typer.Option(help="Of our side on a CPU.")] = "auto",
    cpus: Annotated[int | None, typer.Option(min=1, help="Threads of each side; default: all available.")] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Of each engine or batch; default: the best.")] = None,
    cpu_time: Annotated[
        bool, typer.Option(help="Measure CPU time: on one CPU, no streams, for a machine that does other things, too.")
    ] = False,
    turns: Annotated[int, typer.Option(min=1, help="Of a closed batch, each with other sentences.")] = 7,
    singles: Annotated[int, typer.Option(min=1, help="Sentences timed one at a time.")] = 30,
    stream_seconds: Annotated[float, typer.Option(help="Of arrivals at each rate, at least.")] = 4.0,
    seeds: Annotated[int, typer.Option(min=1, help="Of arrivals; rates are climbed with each.")] = 1,
    bundle: Annotated[Path | None, typer.Option(help="A bundle with its weights; default: en-de.")] = None,
    cache: Annotated[Path | None, typer.Option(help="Where converted models are kept; default: nowhere.")] = None,
    out: Annotated[Path, typer.Option(help="Where race.json goes.")] = Path("build/bench"),
) -> None:
    """Race Dragoman's engine against CTranslate2."""
    if cpu_time and (cpus != 1 or "stream" in (regime or ["stream"])):
        raise typer.BadParameter("--cpu-time goes with --cpus 1 and --regime single or closed")
    num_cpus = cpus or available_threads()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:num_cpus])
    about = machine.describe(num_cpus)
    source = Bundle.load(bundle or default_bundle_dir())
    loaded = _load_texts(texts, source)
    chosen: dict[str, list[Any]] = {
        "precision": _known(precision, PRECISIONS),
        "beam_size": beam or [],
        "regime": _known(regime, REGIMES),
        "size": size or [],
        "shortlist": _known(shortlist, SHORTLISTS),
    }
    if _known([device], ("cpu", "cuda")) == ["cuda"]:
        chosen |= {"precision": ["fp16"], "size": size or list(GPU_SIZES)}
    starts = list(product(loaded, _known(shape, MAKERS) or USUAL_SHAPES))
    if any(chosen.values()):
        planned = [cell for text, shape in starts for cell in _combinations(Cell(text=text, shape=shape), chosen)]
    else:
        has_shortlist = bool(source.manifest.shortlist)
        planned = [cell for start in starts for cell in usual_cells(*start, has_shortlist=has_shortlist)]
    layouts = [(num_cpus // each, each) for each in range(1, num_cpus + 1) if num_cpus % each == 0]
    track = Track(
        models={},
        texts=loaded,
        max_target_tokens=source.manifest.decoding.max_target_tokens,
        layouts=[layout for layout in layouts if threads in (None, layout[1])],
        turns=turns,
        singles=singles,
        stream_s=stream_seconds,
        seeds=range(1, seeds + 1),
        runtime=runtime,
        clock=time.process_time if cpu_time else time.perf_counter,
    )
    halves = [text.tuning for text in loaded.values()]
    calibration = list(chain.from_iterable(half[: -(-CALIBRATION_SENTENCES // len(halves))] for half in halves))
    with nullcontext(cache) if cache else tempfile.TemporaryDirectory() as directory:
        for name in dict.fromkeys(cell.shape for cell in planned):
            precisions = list(dict.fromkeys(cell.precision for cell in planned if cell.shape == name))
            console.print(f"preparing {name} {', '.join(precisions)}")
            track.models[name] = prepare(name, precisions, source, calibration, Path(directory))
        rows, failed = _race(planned, track)
    print_table(rows)
    line = json.dumps({"bench": "race", **about, "rows": rows, "failed": failed})
    out.mkdir(parents=True, exist_ok=True)
    (out / "race.json").write_text(f"{line}\n", encoding="utf-8")
    print(line)
    raise typer.Exit(1 if failed else 0)


def _known(chosen: Sequence[str] | None, known: Iterable[str]) -> list[str]:
    for name in chosen or ():
        if name not in known:
            raise typer.BadParameter(f"{name!r} is none of {', '.join(known)}")
    return list(chosen or ())


def _combinations(start: Cell, chosen: dict[str, list[Any]]) -> list[Cell]:
    """Return all of what was chosen; sizes matter to closed batches only."""
    chosen = {
        **chosen,
        "precision": chosen["precision"] or ["int8", "fp32"],
        "regime": chosen["regime"] or list(REGIMES),
    }
    values = [chosen[name] or [getattr(start, name)] for name in chosen]
    found = [replace(start, **dict(zip(chosen, combination, strict=True))) for combination in product(*values)]
    return list(dict.fromkeys(cell if cell.regime == "closed" else replace(cell, size=start.size) for cell in found))


def _load_texts(paths: Sequence[Path] | None, source: Bundle) -> dict[str, RaceText]:
    tokenizer, names = Tokenizer.load(source.tokenizer_path), pieces(source.tokenizer_path)
    limit = source.manifest.decoding.max_source_tokens
    wanted: Sequence[Path | None] = paths or [None]
    loaded = [load_text(path, tokenizer, names, limit) for path in wanted]
    return {text.name: text for text in loaded}


def _race(planned: Sequence[Cell], track: "Track") -> tuple[list[Row], list[str]]:
    """Return the rows of all cells, and the cells that failed: the others' figures do not go down with one."""
    rows, failed = [], []
    for number, cell in enumerate(planned, start=1):
        console.print(f"{number} of {len(planned)}: {cell}")
        try:
            rows.append({**asdict(cell), **track.run(cell)})
        except Exception:  # noqa: BLE001 - printed, listed, and the exit status is 1
            console.print(traceback.format_exc(), markup=False)
            failed.append(str(cell))
        else:
            console.print(f"  {rows[-1]['speedup']:.2f} times as fast")
    return rows, failed


@dataclass(slots=True, kw_only=True)
class Track:
    """What cells share."""

    models: dict[str, RaceModel]  # by shape
    texts: dict[str, RaceText]  # by name
    max_target_tokens: int
    layouts: Sequence[tuple[int, int]]  # ways to cut the CPUs into equal parts: how many, and threads of each
    turns: int
    singles: int
    stream_s: float
    seeds: Sequence[int]
    runtime: Runtime
    clock: Clock

    def run(self, cell: Cell) -> Row:
        """Choose both sides' settings on the tuning text, then race on the other."""
        model, text = self.models[cell.shape], self.texts[cell.text]
        ours_params, their_params = (
            SearchParams(beam_size=cell.beam_size, max_target_tokens=self.max_target_tokens, use_shortlist=has_list)
            for has_list in SHORTLISTS[cell.shortlist]
        )
        sides: dict[str, Any] = {
            "dragoman": OurSide(model.bundles[cell.precision], cell.precision, ours_params, self.layouts, self.runtime),
            "peer": TheirSide(model.ctranslate2_dir, model.ids, cell.precision, their_params, self.layouts),
        }
        if cell.regime == "stream":
            return self._stream(text, sides)
        is_single = cell.regime == "single"
        tuning = text.tuning[:SWEEP_SINGLES] if is_single else batches(text.tuning, cell.size, 1)[0]
        cost = partial(median_latency if is_single else fastest, tuning, clock=self.clock)
        costs = {name: sweep(side, cell.regime, tuning, side.open, cost) for name, side in sides.items()}
        opened = (side.open(cheapest(costs[name])) for name, side in sides.items())
        with closing(next(opened)) as ours, closing(next(opened)) as theirs:
            if is_single:
                one_at_a_time(ours, theirs, tuning)
                turns = one_at_a_time(ours, theirs, text.timed[: self.singles], self.clock)
            else:
                closed(ours, theirs, [tuning])
                turns = closed(ours, theirs, batches(text.timed, cell.size, self.turns), self.clock)
        return {**turns.record(), "tried": _as_json(costs)}

    def _stream(self, text: RaceText, sides: dict[str, Any]) -> Row:
        """Find the highest rates that both sides sustain."""
        batch, singles = batches(text.tuning, GUESS_SENTENCES, 1)[0], text.tuning[:SWEEP_SINGLES]
        alone = sweep(sides["peer"], "single", singles, sides["peer"].open, partial(median_latency, singles))
        bound_s = BOUND_OF_P50 * min(alone.values())
        tuning = Stream(text.tuning, duration_s=max(self.stream_s, BOUNDS_OF_DURATION * bound_s), bound_s=bound_s)
        timed = replace(tuning, sentences=text.timed)
        costs, rates = {}, {}
        for name, side in sides.items():
            with closing(side.open(side.usual)) as usual:
                load = TUNING_LOAD * len(batch) / fastest(batch, usual)
            cost = partial(tuning.cost_s, load, self.seeds[0])
            costs[name] = sweep(side, "stream", batch, side.open_streaming, cost)
            with closing(side.open_streaming(cheapest(costs[name]))) as server:
                rates[name] = [timed.highest_rate(server, load, seed) for seed in self.seeds]
        ratios = [mine / their for mine, their in zip(*rates.values(), strict=True)]
        medians = {f"{name}_rate": round(median(of_side), 2) for name, of_side in rates.items()}
        found = {"bound_ms": round(bound_s * 1e3, 1), "speedup": round(median(ratios), 3), "rates": rates}
        return {**found, **medians, "tried": _as_json(costs)}


def sweep(
    side: Any,
    regime: str,
    tuning: Sequence[Sentence],
    opened: Callable[[Any], Any],
    cost: Callable[[Any], float],
) -> dict[Any, float]:
    """Try the values of one choice after the other, each from the best setting so far; return what each cost."""
    costs: dict[Any, float] = {}
    for values in [[{}], *side.choices(regime, tuning)]:
        base = cheapest(costs) if costs else side.usual
        for value in values:
            setting = replace(base, **value)
            if setting not in costs:
                with closing(opened(setting)) as contestant:
                    costs[setting] = cost(contestant)
    return costs


def cheapest(costs: dict[Any, float]) -> Any:
    """Return the setting that cost least."""
    return min(costs, key=costs.__getitem__)


def _as_json(costs: dict[str, dict[Any, float]]) -> Row:
    return {
        name: {str(setting): round(seconds, 5) for setting, seconds in of_side.items()}
        for name, of_side in costs.items()
    }


def fastest(batch: Sequence[Sentence], contestant: Contestant, clock: Clock = time.perf_counter) -> float:
    """Return the seconds of the fastest run over a batch, after one over a part of it that is not timed."""
    seconds: list[float] = []
    contestant.translate(batch[: max(1, len(batch) // 4)])
    for _ in range(SWEEP_RUNS):
        took(contestant, batch, seconds, clock)
    return min(seconds)


def median_latency(sentences: Sequence[Sentence], contestant: Contestant, clock: Clock = time.perf_counter) -> float:
    """Return the median seconds of one sentence at a time, after one that is not timed."""
    seconds: list[float] = []
    contestant.translate(sentences[:1])
    for sentence in sentences:
        took(contestant, [sentence], seconds, clock)
    return median(seconds)


def print_table(rows: Sequence[Row]) -> None:
    """Print a row for each cell."""
    table = Table("cell", "Dragoman", "CTranslate2", "times as fast", "identical", title_justify="left")
    for row in rows:
        name = str(Cell(**{field: row[field] for field in Cell.__slots__}))
        if row["regime"] == "stream":
            speeds = (f"{row[f'{side}_rate']:.1f}/s" for side in ("dragoman", "peer"))
            table.add_row(name, *speeds, f"{row['speedup']:.2f}", f"p95 within {row['bound_ms']:.0f} ms")
            continue
        if row["regime"] == "single":
            speeds = (f"{row[f'{side}_p50_ms']:.1f} / {row[f'{side}_p95_ms']:.1f} ms" for side in ("dragoman", "peer"))
        else:
            speeds = (f"{row[f'{side}_per_s']:.1f}/s" for side in ("dragoman", "peer"))
        spread = f"{row['speedup']:.2f} ({row['speedup_min']:.2f} - {row['speedup_max']:.2f})"
        table.add_row(name, *speeds, spread, f"{row['identical']:.1%} of {row['sentences']}")
    console.print(table)


if __name__ == "__main__":
    typer.run(main)
