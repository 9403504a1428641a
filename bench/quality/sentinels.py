"""Text as people write it: what a model alone makes of prices, dates, names, addresses, placeholders, emoji, capitals.

    python bench/quality/sentinels.py model/pretrained/en-de RUN/average

Translates the 300 sentences of sentinels.tsv (kind, English, German; spans that have to come back are in ⟦ ⟧) as they
are, and with a sentinel in place of each span, or the words XA and XB where a model has no sentinels.  Says which
share of the spans came back, each once, and chrF.  Nothing of the server is in between.
"""

import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import sacrebleu
import typer
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from model.checkpoint import load_checkpoint
from model.evaluate import translate

STAND_INS = ("XA", "XB")
_SPAN = re.compile("⟦(.+?)⟧")


class Sentence(NamedTuple):
    """A sentence of ours."""

    kind: str
    source: str
    reference: str
    spans: tuple[str, ...]


class Row(NamedTuple):
    """What came out of the sentences of a kind."""

    kind: str
    sentences: int
    spans: int
    kept_as_is: int
    kept_marked: int
    chrf_as_is: float
    chrf_marked: float


def read_sentences(source_language: str) -> list[Sentence]:
    """Return the sentences with English or German as their source."""
    found = []
    for line in Path(__file__).with_suffix(".tsv").read_text("utf-8").splitlines():
        kind, english, german = line.split("\t")
        sides = _SPAN.sub(r"\1", english), german
        source, reference = sides if source_language == "en" else sides[::-1]
        found.append(Sentence(kind, source, reference, tuple(_SPAN.findall(english))))
    return found


def exchange(text: str, old: Sequence[str], new: Sequence[str]) -> str:
    """Return a text with each old part, where it stands first, in exchange for the new one."""
    for before, after in zip(old, new, strict=True):
        text = text.replace(before, after, 1)
    return text


def kept(parts: Sequence[str], translation: str) -> int:
    """Return how many of the parts stand in a translation exactly once."""
    return sum(translation.count(part) == 1 for part in parts)


def measure(directory: Path, beam_size: int) -> list[Row]:
    """Return a row for each kind, and one for all."""
    checkpoint = load_checkpoint(directory)
    model, tokenizer = checkpoint.model(), checkpoint.tokenizer()
    words = tokenizer.sentinels or STAND_INS
    sentences = read_sentences(checkpoint.meta.source_language)
    as_is = translate(model, [one.source for one in sentences], tokenizer, beam_size)
    marked_sources = [exchange(one.source, one.spans, words[: len(one.spans)]) for one in sentences]
    marked = translate(model, marked_sources, tokenizer.marked(), beam_size)
    return list(_rows(sentences, as_is, marked, words))


def _rows(
    sentences: Sequence[Sentence], as_is: Sequence[str], marked: Sequence[str], words: Sequence[str]
) -> Iterator[Row]:
    triples = list(zip(sentences, as_is, marked, strict=True))
    for kind in (*dict.fromkeys(one.kind for one in sentences), "all"):
        chosen = [triple for triple in triples if kind in (triple[0].kind, "all")]
        references = [[one.reference for one, _, _ in chosen]]
        restored = [exchange(target, words[: len(one.spans)], one.spans) for one, _, target in chosen]
        yield Row(
            kind,
            len(chosen),
            sum(len(one.spans) for one, _, _ in chosen),
            sum(kept(one.spans, target) for one, target, _ in chosen),
            sum(kept(words[: len(one.spans)], target) for one, _, target in chosen),
            float(sacrebleu.corpus_chrf([target for _, target, _ in chosen], references).score),
            float(sacrebleu.corpus_chrf(restored, references).score),
        )


def _share(count: int, spans: int) -> str:
    return f"{100 * count / spans:.0f} %" if spans else ""


def main(
    models: Annotated[list[Path], typer.Argument(help="Checkpoints, or bundles that kept their weights.")],
    beam_size: Annotated[int, typer.Option(min=1, help="1 is fast greedy search.")] = 1,
) -> None:
    """Measure models of English and German."""
    for directory in models:
        rows = measure(directory, beam_size)
        columns = ("kind", "sentences", "spans", "kept as they are", "kept marked", "chrF as they are", "chrF marked")
        table = Table(*columns, title=f"{directory}, beam {beam_size}")
        for row in rows:
            shares = _share(row.kept_as_is, row.spans), _share(row.kept_marked, row.spans)
            counts = str(row.sentences), str(row.spans)
            table.add_row(row.kind, *counts, *shares, f"{row.chrf_as_is:.1f}", f"{row.chrf_marked:.1f}")
        Console(width=120).print(table)
        print(json.dumps({"model": str(directory), "rows": [row._asdict() for row in rows]}))


if __name__ == "__main__":
    typer.run(main)
