"""What a second, safer try is worth: chrF of the translations that have an issue, before and after.

    python bench/quality/retries.py --data DATA

Every sentence of the sets that the included models are reliable for is translated; those with a loop or an unusual
length are translated again without repeated sequences, and in pieces (`service/text/quality.py`).
"""

import json
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Annotated

import sacrebleu
import typer
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from model.bundle import PRETRAINED_DIR
from model.corpus import Pair, read_dev_set
from model.recipe import Languages
from model.tokenizer import Tokenizer
from service.local import LocalTranslator
from service.records import Segmentation, TranslateOptions, WarningKind
from service.text.quality import issues
from service.text.segmentation import cut

SETS = ("tatoeba_dev", "flores-dev", "wmt13")
KINDS = (WarningKind.REPETITION, WarningKind.LENGTH_RATIO)
WHOLE = TranslateOptions(segmentation=Segmentation.NONE)
NO_REPEAT = TranslateOptions(segmentation=Segmentation.NONE, no_repeat_ngram_size=3)


class Model:
    """An included model without the pipeline's own retries."""

    def __init__(self, name: str) -> None:
        directory = PRETRAINED_DIR / name
        self.translator = LocalTranslator.open(directory, threads=1)
        info = self.translator.info
        self.languages = Languages(source=info.source_language, target=info.target_language)
        self.longest = info.reliable_source_tokens or info.max_source_tokens
        self._tokenizer = Tokenizer.load(directory / "shared.spm")

    def count_tokens(self, text: str) -> int:
        return len(self._tokenizer.encode(text))

    def translate(self, texts: Sequence[str], options: TranslateOptions = WHOLE) -> list[str]:
        return [answer.text for answer in self.translator.translate_all(texts, options)]

    def in_pieces(self, text: str) -> str:
        limit = self.count_tokens(text) // 2
        return " ".join(self.translate([piece.strip() for piece in cut(text, self.count_tokens, limit)]))

    def issues(self, source: str, target: str) -> set[WarningKind]:
        languages = self.languages
        found = issues(source, target, source_language=languages.source, target_language=languages.target)
        return {kind for kind, _ in found}


def main(data: Annotated[Path, typer.Option(help="Directory with dev/NAME.LANG.gz.")]) -> None:
    """Translate what has an issue again."""
    columns = ("", "sentences", "chrF", "no repeats: chrF", "still faulty", "pieces: chrF", "still faulty")
    table = Table(*columns, title="second tries", title_justify="left")
    found = {}
    for name in ("en-de", "de-en"):
        model = Model(name)
        pairs = [pair for of_set in SETS for pair in read_dev_set(data, of_set, model.languages)]
        pairs = [pair for pair in pairs if model.count_tokens(pair.source) <= model.longest]
        by_kind: dict[WarningKind, list[tuple[Pair, str]]] = defaultdict(list)
        for pair, first in zip(pairs, model.translate([pair.source for pair in pairs]), strict=True):
            kinds = model.issues(pair.source, first)
            for kind in [kind for kind in KINDS if kind in kinds][:1]:
                by_kind[kind].append((pair, first))
        for kind, faulty in by_kind.items():
            chosen, firsts = [pair for pair, _ in faulty], [first for _, first in faulty]
            row = [len(chosen), _chrf(firsts, chosen)]
            for again in (
                model.translate([pair.source for pair in chosen], NO_REPEAT),
                [model.in_pieces(pair.source) for pair in chosen],
            ):
                still = sum(bool(model.issues(pair.source, text)) for pair, text in zip(chosen, again, strict=True))
                row += [_chrf(again, chosen), still]
            found[f"{name}, {kind.value}"] = row
            table.add_row(f"{name}, {kind.value}", *map(str, row))
    Console().print(table)
    print(json.dumps(found))


def _chrf(translations: Sequence[str], pairs: Sequence[Pair]) -> float:
    """Return the mean of the sentences' chrF."""
    scores = [
        float(sacrebleu.sentence_chrf(text, [pair.target]).score)
        for text, pair in zip(translations, pairs, strict=True)
    ]
    return round(mean(scores), 1)


if __name__ == "__main__":
    typer.run(main)
