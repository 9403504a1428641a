"""Paragraphs against their sentences: what it costs in quality that the server finds the sentences itself.

    python bench/bench_documents.py --data DATA [--set flores-dev] [--set wmt13]

Joins the sentences of a development set to paragraphs of five and has the included int8 models translate them over
gRPC, in four ways: whole paragraphs, as a user sends them; each sentence as a text of its own; and both without
segmentation, where what the model makes of a text is the answer.  BLEU and chrF are of paragraphs, whichever way they
came about, and so are compared with each other, not with those of sentences in the model cards.  No speed is measured.
"""

import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NamedTuple, TypeVar

import typer
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import machine
from model.corpus import Pair, read_dev_set
from model.evaluate import score_translations
from model.recipe import Languages
from service.records import Segmentation, TranslateOptions, Translation, TranslationRequest
from tests.text.judging import Translate
from tests.text.over_grpc import included_models

SETS = ["flores-dev", "wmt13"]
DIRECTIONS = [Languages(source="en", target="de"), Languages(source="de", target="en")]
SENTENCES = 5  # of a paragraph
TEXTS = 50  # of a call

Item = TypeVar("Item")


class Outcome(NamedTuple):
    """What became of a set."""

    texts: list[str]  # the paragraphs' translations
    segments: int
    warnings: int
    errors: int  # texts without a translation: they count as empty


def main(
    data: Annotated[Path, typer.Option(help="Directory with dev/NAME.LANG.gz.")],
    sets: Annotated[list[str], typer.Option("--set", help="Development set; may be repeated.")] = SETS,
    sentences: Annotated[int, typer.Option(min=1, help="Of each set, from its begin; all by default.")] = 1_000_000,
) -> None:
    """Compare paragraphs with their sentences."""
    console, rows = Console(width=120), []
    columns = ("languages", "set", "translated", "sentences", "segments", "warnings", "errors", "BLEU", "chrF")
    table = Table(*columns, title=f"Paragraphs of {SENTENCES} sentences, int8")
    with tempfile.TemporaryDirectory() as directory, included_models(Path(directory)) as translate:
        for languages in DIRECTIONS:
            for name in sets:
                pairs = read_dev_set(data, name, languages)[:sentences]
                for row in compare(translate, pairs, languages):
                    rows.append({"languages": f"{languages.source}-{languages.target}", "set": name, **row})
                    table.add_row(*(str(value) for value in rows[-1].values()))
    console.print(table)
    print(json.dumps({"sentences_of_a_paragraph": SENTENCES, "rows": rows, "machine": machine.describe(1)}))


def compare(translate: Translate, pairs: Sequence[Pair], languages: Languages) -> list[dict[str, object]]:
    """Return what became of a set, for each way to translate it."""
    groups = cut(pairs, SENTENCES)
    references = [" ".join(pair.target for pair in group) for group in groups]
    rows: list[dict[str, object]] = []
    for how, segmentation in (("", Segmentation.SENTENCE), (", NONE", Segmentation.NONE)):
        for unit in ("paragraphs", "sentences"):
            texts = [" ".join(pair.source for pair in group) for group in groups]
            if unit == "sentences":
                texts = [pair.source for pair in pairs]
            outcome = run(translate, texts, languages, segmentation, 1 if unit == "paragraphs" else SENTENCES)
            scores = score_translations(outcome.texts, references)
            rows.append(
                {
                    "translated": unit + how,
                    "sentences": len(pairs),
                    "segments": outcome.segments,
                    "warnings": outcome.warnings,
                    "errors": outcome.errors,
                    "bleu": round(scores.bleu, 2),
                    "chrf": round(scores.chrf, 2),
                }
            )
    return rows


def run(
    translate: Translate, texts: Sequence[str], languages: Languages, segmentation: Segmentation, joined: int
) -> Outcome:
    """Translate the texts; `joined` of them are a paragraph."""
    answers: list[Translation] = []
    for batch in cut(texts, TEXTS):
        request = TranslationRequest(
            texts=batch,
            source_language=languages.source,
            target_language=languages.target,
            options=TranslateOptions(segmentation=segmentation),
        )
        answers += translate(request)
    translations = [answer.text if answer.error is None else "" for answer in answers]
    return Outcome(
        [" ".join(group) for group in cut(translations, joined)],
        segments=sum(len(answer.segments) for answer in answers),
        warnings=sum(len(answer.warnings) for answer in answers),
        errors=sum(answer.error is not None for answer in answers),
    )


def cut(items: Sequence[Item], size: int) -> list[Sequence[Item]]:
    """Return the items in groups of so many; the last one may be smaller."""
    return [items[begin : begin + size] for begin in range(0, len(items), size)]


if __name__ == "__main__":
    typer.run(main)
