"""Checkpoints of different architectures beside each other: BLEU, BLEU by length of the source, sentences a second.

    python bench/bench_architectures.py RUN-A/average RUN-B/average --data DATA

Each checkpoint is exported in float32 and translates the same sentences, all of them waiting, in the engine with its
usual budgets: what is timed is a server's engine on one core, without the server.  The checkpoints take turns.
`bench_training.py --recipe RECIPE` has the speed of training.
"""

import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import machine
from export.onnx_export import ExportOptions, Samples, export_bundle
from export.source import ExportSource
from model.corpus import Pair, read_dev_set
from model.evaluate import score_translations
from model.recipe import Languages
from model.tokenizer import Tokenizer
from service.engine.cpu.runner import CpuRunner
from service.engine.loop import EngineLoop
from service.engine.wire import Job, SearchParams
from tests.fakes.engine_runs import hypotheses, run

SET = "multi30k-tok/test_2016_flickr.lc.norm.tok"
BOUNDS = (8, 12, 16, 20)  # words of a source: a bucket ends below each, and the last one has the rest


class Contestant:
    """A checkpoint with its engine."""

    def __init__(self, checkpoint: Path, directory: Path) -> None:
        """Export the checkpoint into the directory."""
        source = ExportSource.load(checkpoint)
        options = ExportOptions(precisions=("fp32",), keep_weights=False)
        self.bundle = export_bundle(source, directory, options, Samples())
        self.name = source.name
        self.languages = Languages(source=source.source_language, target=source.target_language)
        self.tokenizer = Tokenizer.load(self.bundle.tokenizer_path)
        self._runner = CpuRunner(self.bundle)

    def translate(self, texts: list[str], params: SearchParams) -> tuple[list[str], float]:
        """Return translations in the order of the texts, and the seconds they took."""
        sources = [tuple(self.tokenizer.encode(text)) for text in texts]
        jobs = [Job(id=number, source_ids=source, params=params) for number, source in enumerate(sources)]
        began = time.perf_counter()
        outcomes = run(EngineLoop(self._runner), jobs)
        seconds = time.perf_counter() - began
        best = [hypotheses(outcomes[number])[0].token_ids for number in range(len(jobs))]
        return [self.tokenizer.decode(ids) for ids in best], seconds


def main(
    checkpoints: Annotated[list[Path], typer.Argument(help="Checkpoints, for instance RUN/average.")],
    data: Annotated[Path, typer.Option(help="Directory with the development set.")],
    name: Annotated[str, typer.Option("--set", help="Development set.")] = SET,
    beam_size: Annotated[int, typer.Option(min=1)] = 4,
    rounds: Annotated[int, typer.Option(min=1, help="Times that each translates everything; the median counts.")] = 3,
    bleu_tokenizer: Annotated[str, typer.Option(help="sacrebleu's; none where the set is tokenised.")] = "none",
) -> None:
    """Print a table and one JSON line."""
    facts = machine.describe(cpus=1)
    with tempfile.TemporaryDirectory() as directory:
        contestants = [Contestant(path, Path(directory) / str(number)) for number, path in enumerate(checkpoints)]
        pairs = read_dev_set(data, name, contestants[0].languages)
        params = SearchParams(beam_size=beam_size)
        runs = [[one.translate([pair.source for pair in pairs], params) for one in contestants] for _ in range(rounds)]
    rows, names = [], [one.name for one in contestants]
    for found in zip(*runs, strict=True):
        translations = found[0][0]
        rows.append(
            {
                "bleu": _bleu(translations, [pair.target for pair in pairs], bleu_tokenizer),
                **_by_length(pairs, translations, bleu_tokenizer),
                "sentences_per_s": round(len(pairs) / median(seconds for _, seconds in found), 1),
            }
        )
    table = Table("", *names, title=f"{name}, beam {beam_size}")
    for measure in rows[0]:
        table.add_row(measure, *(str(row[measure]) for row in rows))
    Console().print(table)
    print(json.dumps({"bench": "architectures", **facts, "models": dict(zip(names, rows, strict=True))}))


def _by_length(pairs: Sequence[Pair], translations: list[str], bleu_tokenizer: str) -> dict[str, float]:
    """Return the BLEU of the sentences in each bucket, by its name."""
    found = {}
    for low, high in zip((0, *BOUNDS), (*BOUNDS, 10**6), strict=True):
        chosen = [number for number, pair in enumerate(pairs) if low <= len(pair[0].split()) < high]
        label = f"{low}-{high - 1} words" if high in BOUNDS else f"{low} or more"
        references = [pairs[number][1] for number in chosen]
        found[f"{label} ({len(chosen)})"] = _bleu(
            [translations[number] for number in chosen], references, bleu_tokenizer
        )
    return found


def _bleu(translations: list[str], references: list[str], bleu_tokenizer: str) -> float:
    return round(score_translations(translations, references, bleu_tokenizer).bleu, 1)


if __name__ == "__main__":
    typer.run(main)
