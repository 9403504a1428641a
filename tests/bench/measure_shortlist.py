"""How many target tokens a lexical shortlist leaves, and how much of a translation it allows.

    python tests/bench/measure_shortlist.py --data DATA --recipe model/recipes/en-de.toml
    python tests/bench/measure_shortlist.py --data DATA --recipe model/recipes/en-de.toml \
        --source said.en --target said.de --candidates 20 --always 1000

Coverage is the share of target tokens, end-of-sentence included, that a sentence's own shortlist allows: of what the
model says without a shortlist (at the bundle's beam) and of the references.  `union` is what a decoder step scores
when 24 random sentences are live.  Learning takes some minutes and about 5 bytes of memory for each pair of tokens.
"""

import json
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, product
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from model.bundle import Bundle, default_bundle_dir
from model.config import EOS_ID
from model.data import encode_pairs, read_dev_set
from model.recipe import Languages
from model.shortlist import Shortlist
from model.tokenizer import Tokenizer
from model.tools.learn_shortlist import FILTER, Lexicon, coverage, read_file_pairs, read_recipe_pairs, show_progress
from service.engine.cpu.runner import OnnxRunner
from service.engine.job import Job, JobResult, SearchParams
from service.engine.loop import EngineLoop

LIVE_SENTENCES = 24
Tokens = list[list[int]]
Row = dict[str, float | str]


@dataclass(frozen=True, slots=True)
class TextSet:
    """A development set as token ids, each sentence with end-of-sentence."""

    name: str
    sources: Tokens
    references: Tokens
    translations: Tokens  # of the model, without a shortlist


def main(
    data: Annotated[Path, typer.Option(help="Directory with train/NAME/NAME.LANG.gz and dev/NAME.LANG.gz.")],
    recipe: Annotated[Path, typer.Option(help="Recipe of the model: it names the corpora and the direction.")],
    bundle: Annotated[Path | None, typer.Option(help="Default: en-de.")] = None,
    source: Annotated[list[Path] | None, typer.Option(help="More text to learn from; may be repeated.")] = None,
    target: Annotated[list[Path] | None, typer.Option(help="Translations of the same lines.")] = None,
    sets: Annotated[list[str], typer.Option("--set")] = ["tatoeba_dev", "flores-dev"],  # noqa: B006  # typer copies it
    limit: Annotated[int, typer.Option(min=1, help="First sentences of each set only.")] = 2_000,
    candidates: Annotated[list[int], typer.Option(help="For each source token.")] = [10, 20, 30, 50],  # noqa: B006
    always: Annotated[list[int], typer.Option(help="For every sentence.")] = [100, 200, 500, 1_000, 1_500, 2_000],  # noqa: B006
) -> None:
    """Measure shortlists of several sizes on development sets."""
    loaded = Bundle.load(bundle or default_bundle_dir())
    tokenizer = Tokenizer.load(loaded.tokenizer_path)
    texts = [text_set(loaded, tokenizer, data, name, limit) for name in sets]
    pairs = read_file_pairs(source or [], target or []) + read_recipe_pairs(recipe, data)
    examples = encode_pairs(pairs, tokenizer, FILTER)
    lexicon = Lexicon.learn(examples, tokenizer, show_progress)
    rows: list[Row] = []
    for num_candidates, num_always in product(candidates, always):
        shortlist = lexicon.shortlist(candidates=num_candidates, always=num_always)
        sizes: Row = {"candidates": num_candidates, "always": num_always, "entries": len(shortlist.entries)}
        rows += [sizes | measure(shortlist, text) for text in texts]
    print_table(f"{len(examples):,} sentence pairs", rows)
    print(json.dumps({"model": loaded.manifest.name, "pairs": len(examples), "rows": rows}))


def text_set(bundle: Bundle, tokenizer: Tokenizer, data: Path, name: str, limit: int) -> TextSet:
    """A development set and the model's translations of it."""
    languages = Languages(source=bundle.manifest.source_language, target=bundle.manifest.target_language)
    pairs = read_dev_set(data, name, languages)[:limit]
    kept = [(tokenizer.encode(pair.source), tokenizer.encode(pair.target)) for pair in pairs if pair.source.strip()]
    sources, references = ([pair[side] for pair in kept] for side in (0, 1))
    return TextSet(name, sources, references, translate(bundle, sources))


def translate(bundle: Bundle, sources: Tokens) -> Tokens:
    """Token ids of the best hypothesis of each source, with end-of-sentence."""
    loop = EngineLoop(OnnxRunner(bundle))
    params = SearchParams(beam_size=bundle.manifest.decoding.beam_size)
    for number in sorted(range(len(sources)), key=lambda number: -len(sources[number])):
        loop.submit(Job(id=number, source_ids=tuple(sources[number]), params=params))
    found: dict[int, list[int]] = {}
    while not loop.is_idle:
        for outcome in loop.step():
            if not isinstance(outcome, JobResult):
                raise TypeError(f"sentence {outcome.job_id} failed: {outcome.message}")
            found[outcome.job_id] = [*outcome.hypotheses[0].token_ids, EOS_ID]
    return [found[number] for number in range(len(sources))]


def measure(shortlist: Shortlist, text: TextSet) -> Row:
    """Sizes and coverage on one development set."""
    said = coverage(shortlist, zip(text.sources, text.translations, strict=True))
    reference = coverage(shortlist, zip(text.sources, text.references, strict=True))
    return {
        "text": text.name,
        "mean": round(said.candidates),
        "union": round(union_size(shortlist, text.sources)),
        "model %": round(100 * said.tokens, 2),
        "reference %": round(100 * reference.tokens, 2),
    }


def union_size(shortlist: Shortlist, sources: Sequence[Sequence[int]]) -> float:
    """Mean number of candidates of groups of random sentences."""
    shuffled = random.Random(1).sample(sources, len(sources))
    starts = range(0, max(len(shuffled) - LIVE_SENTENCES, 1), LIVE_SENTENCES)
    groups = [list(chain(*shuffled[start : start + LIVE_SENTENCES])) for start in starts]
    return float(np.mean([len(shortlist.candidates(group)) for group in groups]))


def print_table(title: str, rows: Sequence[Row]) -> None:
    """A row for each size of shortlist and text."""
    table = Table(*rows[0], title=title, title_justify="left")
    for row in rows:
        table.add_row(*(f"{cell:.2f}" if isinstance(cell, float) else str(cell) for cell in row.values()))
    Console(width=100).print(table)


if __name__ == "__main__":
    typer.run(main)
