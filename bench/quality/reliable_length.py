"""How long a sentence may be before a model translates its parts better than the whole: `reliable_source_tokens`.

    python bench/quality/reliable_length.py --data DATA

Two tables for each bundle, both over texts of a certain length in source tokens.  In the first a text is up to six
sentences that follow each other, as one segment and one by one.  In the second a text is one sentence, whole and in
pieces of at most so many tokens, cut as the server cuts (`service/text/segmentation.py`).  chrF and BLEU against the
same references.
"""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated, NamedTuple

import sacrebleu
import typer
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from model.bundle import PRETRAINED_DIR, Bundle
from model.corpus import Pair, read_dev_set
from model.recipe import Languages
from model.tokenizer import Tokenizer
from service.local import LocalTranslator
from service.records import Segmentation, TranslateOptions
from service.text.segmentation import cut

SETS = ("flores-dev", "wmt13")
MAX_JOINED = 6
JOINED_BINS = (1, 20, 40, 60, 80, 100, 120, 160, 200, 10_000)
SENTENCE_BINS = (30, 40, 50, 60, 70, 80, 100, 10_000)
LIMITS = (30, 40, 50, 60, 80)


class Scores(NamedTuple):
    """Of a corpus."""

    chrf: float
    bleu: float

    def less(self, other: "Scores") -> str:
        return f"{self.chrf - other.chrf:+.1f} {self.bleu - other.bleu:+.1f}"

    def __str__(self) -> str:
        return f"{self.chrf:.1f} {self.bleu:.1f}"


@dataclass(frozen=True, slots=True)
class Text:
    """A text to translate in two ways: whole and in its parts."""

    parts: tuple[str, ...]
    reference: str
    num_tokens: int

    @property
    def whole(self) -> str:
        return " ".join(self.parts)


class Model:
    """A bundle that remembers what it has translated."""

    def __init__(self, directory: Path) -> None:
        bundle = Bundle.load(directory)
        self.name = directory.name
        self.languages = Languages(source=bundle.manifest.source_language, target=bundle.manifest.target_language)
        self._translator = LocalTranslator.open(directory, threads=1)
        self._tokenizer = Tokenizer.load(bundle.tokenizer_path)
        self._known: dict[str, str] = {}

    def count_tokens(self, text: str) -> int:
        return len(self._tokenizer.encode(text))

    def translate(self, texts: Sequence[str]) -> list[str]:
        new = list(dict.fromkeys(text for text in texts if text not in self._known))
        answers = self._translator.translate_all(new, TranslateOptions(segmentation=Segmentation.NONE))
        self._known |= {text: answer.text for text, answer in zip(new, answers, strict=True)}
        return [self._known[text] for text in texts]

    def cutter(self, limit: int) -> Callable[[Text], Sequence[str]]:
        """Return what cuts a text to so many tokens."""
        return lambda text: cut(text.whole, self.count_tokens, limit, language=self.languages.source)

    def score(self, texts: Sequence[Text], parts_of: Callable[[Text], Sequence[str]]) -> Scores:
        """Score the texts translated in these parts."""
        parts = [[part.strip() for part in parts_of(text)] for text in texts]
        self.translate([part for of_text in parts for part in of_text])
        translations = [" ".join(self.translate(of_text)) for of_text in parts]
        references = [[text.reference for text in texts]]
        return Scores(
            float(sacrebleu.corpus_chrf(translations, references).score),
            float(sacrebleu.corpus_bleu(translations, references).score),
        )


def main(
    data: Annotated[Path, typer.Option(help="Directory with dev/NAME.LANG.gz.")],
    bundle: Annotated[list[Path] | None, typer.Option(help="May be repeated. Default: the included ones.")] = None,
    sentences: Annotated[int, typer.Option(help="Of each set that are joined; single sentences are all taken.")] = 360,
) -> None:
    """Measure how long a sentence may be."""
    found = {}
    for directory in bundle or [PRETRAINED_DIR / name for name in ("en-de", "de-en")]:
        model = Model(directory)
        pairs = {name: read_dev_set(data, name, model.languages) for name in SETS}
        joined = [text for of_set in pairs.values() for text in _joined(model, of_set[:sentences])]
        single = [_text(model, [pair]) for of_set in pairs.values() for pair in of_set]
        found[model.name] = {
            "joined": _report_joined(model, joined),
            "sentences": _report_sentences(model, single),
        }
    print(json.dumps(found))


def _text(model: Model, pairs: Sequence[Pair]) -> Text:
    parts = tuple(pair.source for pair in pairs)
    return Text(parts, " ".join(pair.target for pair in pairs), model.count_tokens(" ".join(parts)))


def _joined(model: Model, pairs: Sequence[Pair]) -> Iterator[Text]:
    """Yield the sentences joined by one, two, three... of them."""
    for number in range(1, MAX_JOINED + 1):
        for begin in range(0, len(pairs) - number + 1, number):
            yield _text(model, pairs[begin : begin + number])


def _in_bins(texts: Sequence[Text], bins: Sequence[int]) -> Iterator[tuple[str, list[Text]]]:
    for low, high in pairwise(bins):
        chosen = [text for text in texts if low <= text.num_tokens < high]
        if chosen:
            yield f"{low} - {high - 1}" if high < bins[-1] else f"{low} or more", chosen


def _report_joined(model: Model, texts: Sequence[Text]) -> list[list[str]]:
    rows = []
    for label, chosen in _in_bins(texts, JOINED_BINS):
        whole = model.score(chosen, lambda text: [text.whole])
        apart = model.score(chosen, lambda text: text.parts)
        rows.append([label, str(len(chosen)), str(whole), str(apart), whole.less(apart)])
    title = f"{model.name}: 1 to {MAX_JOINED} sentences as one text, chrF and BLEU"
    _show(title, ["source tokens", "texts", "as one", "one by one", "difference"], rows)
    return rows


def _report_sentences(model: Model, texts: Sequence[Text]) -> list[list[str]]:
    rows = []
    for label, chosen in [*_in_bins(texts, SENTENCE_BINS), ("all", texts)]:
        whole = model.score(chosen, lambda text: [text.whole])
        gains = [model.score(chosen, model.cutter(limit)).less(whole) for limit in LIMITS]
        rows.append([label, str(len(chosen)), str(whole), *gains])
    title = f"{model.name}: sentences whole, chrF and BLEU, and what is gained by cutting them to so many tokens"
    _show(title, ["source tokens", "sentences", "whole", *map(str, LIMITS)], rows)
    return rows


def _show(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    table = Table(*columns, title=title, title_justify="left")
    for row in rows:
        table.add_row(*row)
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
