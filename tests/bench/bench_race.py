"""Dragoman against CTranslate2 and Hugging Face: the same weights, text, beam and threads, in one process, in turns.

    python tests/bench/bench_race.py                                    # the usual programme, about ten minutes
    python tests/bench/bench_race.py --texts SENTENCES.en --texts OTHER.en.gz
    python tests/bench/bench_race.py --shape default --precision int8 --beam 4 --regime closed --texts SENTENCES.en

Regimes: one sentence at a time (`single`), a batch that is there at once (`closed`), and sentences at random times
(`stream`).  Settings of each side are chosen on the first half of the text, which is then timed on the other half;
tokenisation and loading are outside the clock.  Prints what was tried, a table for each regime and, last, one line of
JSON with the raw times; writes race.png and race.json into --out.

The files in race/ each have one subject:
    shapes.py models.py texts.py                      what is run
    contestants.py dragoman.py peer_*.py sides.py     who runs it, and with which settings
    regimes.py stream.py ceiling.py                   how it is timed; what the machine could do
    sweep.py plan.py cells.py                         what is tried, in which order, and what is kept of it
    report.py chart.py machine.py                     what is shown
"""

import json
import os
import sys
import tempfile
import traceback
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from model.bundle import Bundle, default_bundle_dir
from model.tokenizer import Tokenizer
from service.threads import available_threads
from tests.bench.race import machine, report
from tests.bench.race.cells import CTRANSLATE2, PEERS, REGIMES, SHORTLISTS, Cell, Effort, Record, Track, run_cell
from tests.bench.race.chart import draw
from tests.bench.race.contestants import Sentence
from tests.bench.race.models import (
    CALIBRATION_SENTENCES,
    MAKERS,
    PRECISIONS,
    Ingredients,
    RaceModel,
    prepare,
    same_translations,
)
from tests.bench.race.peer_huggingface import is_installed
from tests.bench.race.plan import Choice, cells
from tests.bench.race.sides import layouts
from tests.bench.race.texts import Text, load_text
from tests.parity.ctranslate2_model import pieces

CHECKED_SENTENCES = 48  # that every shape must translate as the default does
USUAL = Effort()
DEVICES = ("cpu", "cuda")

console = Console(width=report.WIDTH, highlight=False)


def main(
    texts: Annotated[list[Path] | None, typer.Option(help="Sentences, one a line, plain or .gz; default: own.")] = None,
    shape: Annotated[list[str] | None, typer.Option(help=f"{', '.join(MAKERS)}; may be repeated, as the next.")] = None,
    precision: Annotated[list[str] | None, typer.Option(help=", ".join(PRECISIONS))] = None,
    beam: Annotated[list[int] | None, typer.Option(min=1)] = None,
    regime: Annotated[list[str] | None, typer.Option(help=", ".join(REGIMES))] = None,
    size: Annotated[list[int] | None, typer.Option(min=1, help="Sentences of a closed batch.")] = None,
    shortlist: Annotated[list[str] | None, typer.Option(help=f"Who has one: {', '.join(SHORTLISTS)}.")] = None,
    peer: Annotated[list[str] | None, typer.Option(help=f"{', '.join(PEERS)}; default: all there are.")] = None,
    device: Annotated[str, typer.Option(help="cpu, or cuda: all sides on a GPU in half precision.")] = "cpu",
    cpus: Annotated[int | None, typer.Option(min=1, help="Threads of each side; default: all available.")] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Of each engine or batch; default: the best.")] = None,
    turns: Annotated[int, typer.Option(min=1, help="Of a closed batch.")] = USUAL.turns,
    singles: Annotated[int, typer.Option(min=1, help="Sentences timed one at a time.")] = USUAL.singles,
    stream_seconds: Annotated[float, typer.Option(help="Of arrivals at each rate, at least.")] = USUAL.stream_s,
    seeds: Annotated[int, typer.Option(min=1, help="Of arrivals; rates are climbed with each.")] = len(USUAL.seeds),
    bundle: Annotated[Path | None, typer.Option(help="A bundle with its weights; default: en-de.")] = None,
    shortlist_file: Annotated[Path | None, typer.Option(help="Default: the bundle's own, if it has one.")] = None,
    cache: Annotated[Path | None, typer.Option(help="Where converted models are kept; default: nowhere.")] = None,
    out: Annotated[Path, typer.Option(help="Where race.png and race.json go.")] = Path("build/bench"),
) -> None:
    """Race Dragoman's engine against CTranslate2 and, where it is installed, Hugging Face."""
    num_cpus = _stay_on(cpus or available_threads())
    about = machine.describe(num_cpus)
    source = Bundle.load(bundle or default_bundle_dir())
    lists = shortlist_file or (source.path(source.manifest.shortlist) if source.manifest.shortlist else None)
    loaded = _load_texts(texts, source)
    choice = Choice(
        texts=list(loaded),
        shapes=_known(shape, MAKERS),
        precisions=_known(precision, PRECISIONS),
        beams=beam or (),
        regimes=_known(regime, REGIMES),
        sizes=size or (),
        shortlists=_known(shortlist, SHORTLISTS),
        peers=_known(peer, PEERS) or _present_peers(),
        has_shortlist=lists is not None,
    )
    planned = cells(Choice.on_gpu(choice) if _known([device], DEVICES) == ["cuda"] else choice)
    ingredients = Ingredients(source=source, calibration=_calibration(loaded.values()), shortlist=lists)
    track = Track(
        models={},
        texts=loaded,
        layouts=layouts(num_cpus, threads),
        effort=Effort(turns=turns, singles=singles, stream_s=stream_seconds, seeds=tuple(range(1, seeds + 1))),
        show=lambda name, sweep: report.print_sweep(console, name, sweep),
    )
    with nullcontext(cache) if cache else tempfile.TemporaryDirectory() as directory:
        track.models |= _prepare(planned, ingredients, Path(directory))
        checks = _check_shapes(track)
        rows, failed = _race(planned, track)
    found = {"bench": "race", **about, "same_as_default": checks, **track.record(), "rows": rows, "failed": failed}
    _report(found, track, out)
    raise typer.Exit(1 if failed else 0)


def _stay_on(cpus: int) -> int:
    """Keep this process, and those it starts, on so many CPUs, where the system can."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cpus])
    return cpus


def _known(chosen: Sequence[str] | None, known: Iterable[str]) -> Sequence[str]:
    """What was chosen, if all of it is known."""
    for name in chosen or ():
        if name not in known:
            raise typer.BadParameter(f"{name!r} is none of {', '.join(known)}")
    return chosen or ()


def _present_peers() -> Sequence[str]:
    if is_installed():
        return PEERS
    console.print("Hugging Face does not take part: `pip install --group bench` brings it")
    return [CTRANSLATE2]


def _load_texts(paths: Sequence[Path] | None, source: Bundle) -> dict[str, Text]:
    """The texts by name; our own sentences if there are no paths."""
    tokenizer, names = Tokenizer.load(source.tokenizer_path), pieces(source.tokenizer_path)
    limit = source.manifest.decoding.max_source_tokens
    wanted: list[Path | None] = [*paths] if paths else [None]
    loaded = [load_text(path, tokenizer, names, limit) for path in wanted]
    return {text.name: text for text in loaded}


def _calibration(texts: Iterable[Text]) -> list[Sentence]:
    """Some tuning sentences of every text."""
    halves = [text.tuning for text in texts]
    return list(chain.from_iterable(half[: -(-CALIBRATION_SENTENCES // len(halves))] for half in halves))


def _prepare(planned: Sequence[Cell], ingredients: Ingredients, cache: Path) -> dict[str, RaceModel]:
    """The models of the cells; the default's always, which the others are compared with."""
    models = {}
    for shape in dict.fromkeys(("default", *(cell.shape for cell in planned))):
        precisions = dict.fromkeys(cell.precision for cell in planned if cell.shape == shape)
        console.print(f"preparing {shape} {', '.join(precisions)}")
        models[shape] = prepare(shape, list(precisions), ingredients, cache)
    return models


def _check_shapes(track: Track) -> dict[str, str]:
    """Do the other shapes give the default's translations?"""
    sentences, found = next(iter(track.texts.values())).timed[:CHECKED_SENTENCES], {}
    for name, model in track.models.items():
        if name != "default":
            same = same_translations(track.models["default"], model, sentences)
            found[name] = f"{same} of {len(sentences)}"
            console.print(f"{name} gives the default's translation, fp32, beam 4: {found[name]} sentences")
    return found


def _race(planned: Sequence[Cell], track: Track) -> tuple[list[Record], list[str]]:
    """The records of all cells, and the titles of those that failed: the others' figures do not go down with one."""
    rows, failed = [], []
    for number, cell in enumerate(planned, start=1):
        console.print(f"{number} of {len(planned)}: {cell.title}")
        try:
            rows.append(run_cell(cell, track))
        except Exception:  # noqa: BLE001 - printed, listed, and the exit status is 1
            console.print(traceback.format_exc(), markup=False)
            failed.append(cell.title)
        else:
            console.print(f"  {rows[-1]['speedup']:.2f} times as fast")
    return rows, failed


def _report(found: Record, track: Track, out: Path) -> None:
    """Tables, chart and the JSON line."""
    rows = found["rows"]
    report.print_tables(console, rows)
    report.print_ceilings(console, track.ceilings)
    report.print_checks(console, rows)
    line = json.dumps(found)
    if rows:
        title = f"{found['cpu']}, {found['cpus']} threads each, commit {found['commit']}"
        console.print(f"chart: {draw(rows, title, out / 'race.png')}")
        (out / "race.json").write_text(f"{line}\n", encoding="utf-8")
    print(line)


if __name__ == "__main__":
    typer.run(main)
