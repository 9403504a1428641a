"""The engine beside CTranslate2: same weights, sentences and beam, one thread each, token ids to token ids.

    python tests/bench/bench_decode.py
    python tests/bench/bench_decode.py --bundle BUNDLE --texts SENTENCES.en --sentences 1000

Two regimes, each measured in turns, so that whatever else the machine does meets both:
    closed batch    all sentences are there at once; throughput
    one at a time   the next sentence comes when the last is done; latency
A ratio is the median over the turns, above 1 where the engine is faster: by the clock, and by CPU time, which says more
on a machine that has other work.
Needs a bundle that kept its weights: CTranslate2's model is made from them, int8 by its own quantisation.
"""

import json
import platform
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Annotated, Protocol

import ctranslate2
import numpy as np
import onnxruntime
import typer
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from export.source import ExportSource
from model.bundle import Bundle, default_bundle_dir
from model.corpus import read_lines
from model.tokenizer import Tokenizer
from service.engine.job import Job, JobResult, SearchParams
from service.engine.loop import EngineLoop
from service.engine.runner import OnnxRunner
from tests.fakes.own_text import own_sentences
from tests.parity.ctranslate2_model import pieces, write_ctranslate2_model

ROOT = Path(__file__).resolve().parents[2]
COMPUTE_TYPES = {"int8": "int8", "fp32": "float32"}  # precision of a bundle -> CTranslate2's name
THREADS = 1
WARM_UP = 3

Tokens = list[list[int]]
Row = dict[str, float | str]


class Contestant(Protocol):
    """Something that translates token ids."""

    def translate(self, sources: Sequence[Sequence[int]]) -> Tokens:
        """The best hypothesis of each source, which ends with end-of-sentence; its own end is not in it."""
        ...


class Engine:
    """Ours, in this process."""

    def __init__(self, bundle: Bundle, precision: str, params: SearchParams) -> None:
        self._loop = EngineLoop(OnnxRunner(bundle, precision=precision, num_threads=THREADS))
        self._params = params

    def translate(self, sources: Sequence[Sequence[int]]) -> Tokens:
        """See `Contestant.translate`; longest sentences first, as `dragoman translate --bundle` does."""
        for number in sorted(range(len(sources)), key=lambda number: -len(sources[number])):
            self._loop.submit(Job(id=number, source_ids=tuple(sources[number]), params=self._params))
        found: dict[int, list[int]] = {}
        while not self._loop.is_idle:
            for outcome in self._loop.step():
                if not isinstance(outcome, JobResult):
                    raise TypeError(f"sentence {outcome.job_id} failed: {outcome.message}")
                found[outcome.job_id] = list(outcome.hypotheses[0].token_ids)
        return [found[number] for number in range(len(sources))]


class Neighbour:
    """CTranslate2, which sorts by length and cuts into batches itself."""

    def __init__(self, directory: Path, names: list[str], compute_type: str, params: SearchParams, batch: int) -> None:
        self._translator = ctranslate2.Translator(
            str(directory), device="cpu", compute_type=compute_type, inter_threads=1, intra_threads=THREADS
        )
        self._names = names
        self._ids = {piece: token for token, piece in enumerate(names)}
        self._options = {
            "beam_size": params.beam_size,
            "length_penalty": params.length_penalty,
            "patience": params.patience,
            "max_decoding_length": params.max_target_tokens,
            "min_decoding_length": 0,
            "max_batch_size": batch,
        }

    def translate(self, sources: Sequence[Sequence[int]]) -> Tokens:
        """See `Contestant.translate`."""
        tokens = [[self._names[token] for token in source] for source in sources]
        results = self._translator.translate_batch(tokens, **self._options)
        return [[self._ids[piece] for piece in result.hypotheses[0]] for result in results]


@dataclass(frozen=True, slots=True)
class Cost:
    """What one turn took, in seconds."""

    clock_s: float
    cpu_s: float


@dataclass(frozen=True, slots=True)
class Turns:
    """What the same work cost both, turn by turn."""

    ours: list[Cost]
    theirs: list[Cost]

    def ratios(self) -> Row:
        """Medians of how many times faster the engine was within a turn."""
        pairs = list(zip(self.ours, self.theirs, strict=True))
        by_clock = [theirs.clock_s / ours.clock_s for ours, theirs in pairs]
        by_cpu = [theirs.cpu_s / ours.cpu_s for ours, theirs in pairs]
        low, high = min(by_clock), max(by_clock)
        return {
            "ratio": round(median(by_clock), 2),
            "ratio_min": round(low, 2),
            "ratio_max": round(high, 2),
            "ratio_cpu": round(median(by_cpu), 2),
        }


def cost(contestant: Contestant, work: Sequence[Sequence[int]]) -> Cost:
    """What translating these sources takes."""
    clock, cpu = time.perf_counter(), time.process_time()  # of all threads
    contestant.translate(work)
    return Cost(time.perf_counter() - clock, time.process_time() - cpu)


def take_turns(ours: Contestant, theirs: Contestant, works: Sequence[Tokens]) -> Turns:
    """Both translate each work once; who begins changes with every turn."""
    turns = Turns([], [])
    for number, work in enumerate(works):
        sides = [(ours, turns.ours), (theirs, turns.theirs)]
        for contestant, costs in sides if number % 2 == 0 else reversed(sides):
            costs.append(cost(contestant, work))
    return turns


def closed_batch(ours: Contestant, theirs: Contestant, sources: Tokens, repeats: int) -> Row:
    """Sentences per second of both, median over the repeats."""
    answers = ours.translate(sources), theirs.translate(sources)  # the warm-up
    same = sum(our == their for our, their in zip(*answers, strict=True)) / len(sources)
    turns = take_turns(ours, theirs, [sources] * repeats)
    speeds = [len(sources) / median(turn.clock_s for turn in costs) for costs in (turns.ours, turns.theirs)]
    named: Row = {"engine_per_s": round(speeds[0], 1), "ctranslate2_per_s": round(speeds[1], 1)}
    return named | turns.ratios() | {"same_tokens": round(same, 3)}


def one_at_a_time(ours: Contestant, theirs: Contestant, sources: Tokens) -> Row:
    """Latencies of both in milliseconds, after a warm-up with the first sentences."""
    take_turns(ours, theirs, [[source] for source in sources[:WARM_UP]])
    turns = take_turns(ours, theirs, [[source] for source in sources])
    row: Row = {}
    for name, costs in (("engine", turns.ours), ("ctranslate2", turns.theirs)):
        for percent in (50, 95):
            milliseconds = float(np.percentile([turn.clock_s for turn in costs], percent)) * 1e3
            row[f"{name}_p{percent}_ms"] = round(milliseconds, 1)
    return row | turns.ratios()


def machine() -> dict[str, str]:
    """What the figures are worth nothing without."""
    git = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.exists() else []
    cpu = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
    return {
        "cpu": cpu,
        "commit": git.stdout.strip() or "unknown",
        "onnxruntime": onnxruntime.__version__,
        "ctranslate2": ctranslate2.__version__,
    }


def print_table(title: str, rows: Sequence[Row]) -> None:
    """One regime, a row per precision."""
    table = Table(*(name.replace("_", " ") for name in rows[0]), title=title, title_justify="left")
    for row in rows:
        table.add_row(*(str(cell) for cell in row.values()))
    Console(width=120).print(table)


def sample(texts: Path | None, count: int, seed: int, tokenizer: Tokenizer) -> Tokens:
    """Source ids of some sentences of a file, or of our own; blank ones are left out."""
    lines = read_lines(texts) if texts else own_sentences(count, seed)
    encoded = (tokenizer.encode(line) for line in random.Random(seed).sample(lines, len(lines)))
    return [ids for ids in encoded if ids][:count]


def main(
    bundle: Annotated[Path | None, typer.Option(help="A bundle with its weights; default: the embedded one.")] = None,
    texts: Annotated[Path | None, typer.Option(help="Sentences, one a line, plain or .gz; default: our own.")] = None,
    sentences: Annotated[int, typer.Option(min=1, help="In the closed batch.")] = 64,
    singles: Annotated[int, typer.Option(min=1, help="One at a time.")] = 40,
    repeats: Annotated[int, typer.Option(min=1, help="Of the closed batch.")] = 5,
    beam_size: Annotated[int, typer.Option(min=1)] = 4,
    batch: Annotated[int, typer.Option(min=1, help="Sentences in a batch of CTranslate2's.")] = 32,
    seed: Annotated[int, typer.Option(help="Of the choice of sentences.")] = 1,
) -> None:
    """Compare the engine's speed with CTranslate2's."""
    loaded = Bundle.load(bundle or default_bundle_dir())
    manifest, weights = loaded.manifest, ExportSource.load(loaded.directory)
    sources = sample(texts, max(sentences, singles), seed, Tokenizer.load(loaded.tokenizer_path))
    params = SearchParams(beam_size=beam_size, max_target_tokens=manifest.decoding.max_target_tokens)
    closed, single = list[Row](), list[Row]()
    with tempfile.TemporaryDirectory() as scratch:
        model = write_ctranslate2_model(weights.config, weights.state, loaded.tokenizer_path, Path(scratch) / "ct2")
        for precision in sorted(set(manifest.variants) & set(COMPUTE_TYPES)):
            ours = Engine(loaded, precision, params)
            theirs = Neighbour(model, pieces(loaded.tokenizer_path), COMPUTE_TYPES[precision], params, batch)
            head: Row = {"precision": precision}
            closed.append(head | closed_batch(ours, theirs, sources[:sentences], repeats))
            single.append(head | one_at_a_time(ours, theirs, sources[:singles]))
    about = f"{manifest.name} {manifest.version}, beam {beam_size}, {THREADS} thread each"
    print_table(f"closed batch: {len(sources[:sentences])} sentences at once, median of {repeats} ({about})", closed)
    print_table(f"one at a time: {len(sources[:singles])} sentences ({about})", single)
    setup = {"model": f"{manifest.name} {manifest.version}", "beam_size": beam_size, "threads": THREADS, "seed": seed}
    print(json.dumps({"bench": "decode", **machine(), **setup, "closed_batch": closed, "one_at_a_time": single}))


if __name__ == "__main__":
    typer.run(main)
