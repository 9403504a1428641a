"""chrF of a bundle on the project's own sentences, and the rows of its model card that say what it was.

    python bench/quality/score.py                      # of every bundle that ships
    python bench/quality/score.py --bundle BUNDLE      # of another one
    python bench/quality/score.py --write              # into the model cards; read the difference

`en-de.tsv` holds English sentences, a tab, and German translations that were written for this project; a bundle of the
other direction is scored on the same pairs.  No command tells whether a corpus that the model learnt from has one, too.
"""

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import sacrebleu
import typer

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from model.bundle import Bundle, default_bundle_dir
from service.engine.choice import native_problem
from service.engine.wire import Runtime
from service.local import LocalTranslator
from service.records import TranslateOptions

CARD_NAME = "MODEL_CARD.md"
# As the card names them.
SEARCHES = {
    "the bundle's defaults": TranslateOptions(),
    "with `--shortlist`": TranslateOptions(use_shortlist=True),
}


@dataclass(frozen=True, slots=True)
class OwnPairs:
    """Sentences and their translations, in the same order."""

    sources: list[str]
    references: list[str]

    @classmethod
    def of(cls, source_language: str, target_language: str) -> "OwnPairs":
        """The pairs of a direction.

        Raises:
            FileNotFoundError: there are none of these two languages.
        """
        here = Path(__file__).parent
        reverse = here / f"{target_language}-{source_language}.tsv"
        path = reverse if reverse.is_file() else here / f"{source_language}-{target_language}.tsv"
        lines = [line.split("\t") for line in path.read_text("utf-8").splitlines()]
        left, right = (list(column) for column in zip(*lines, strict=True))
        return cls(right, left) if path == reverse else cls(left, right)

    def chrf(self, translations: Sequence[str]) -> float:
        """Corpus chrF of translations of the sources, by sacrebleu's defaults as everywhere in the card."""
        return float(sacrebleu.corpus_chrf(list(translations), [self.references]).score)


def shipped_bundles() -> list[Path]:
    """The directories of the bundles that come with the package."""
    return sorted(path.parent for path in default_bundle_dir().parent.glob("*/manifest.json"))


def pairs_of(directory: Path) -> OwnPairs:
    """The pairs of a bundle's direction."""
    manifest = Bundle.load(directory, verify=False).manifest
    return OwnPairs.of(manifest.source_language, manifest.target_language)


def chrf_of(directory: Path, options: TranslateOptions | None = None, runtime: Runtime = "onnxruntime") -> float:
    """What a bundle reaches on them, translated as `dragoman translate --bundle` does."""
    pairs = pairs_of(directory)
    translator = LocalTranslator.open(directory, threads=1, runtime=runtime)
    return pairs.chrf([translation.text for translation in translator.translate_all(pairs.sources, options)])


def card_value(card: str, search: str) -> float:
    """What a model card says of a search.

    Raises:
        ValueError: it has no such row; the message says what writes one.
    """
    found = _row_pattern(search).search(card)
    if found is None:
        raise ValueError(f"the model card has no row {search!r}; copy the table of another card, then score.py --write")
    return float(found["chrf"])


def with_value(card: str, search: str, sentences: int, chrf: float) -> str:
    """The card with another value in that row.

    Raises:
        ValueError: it has no such row.
    """
    card_value(card, search)
    return _row_pattern(search).sub(lambda found: f"{found['search']} {sentences} | {chrf:.2f} |", card)


def _row_pattern(search: str) -> re.Pattern[str]:
    return re.compile(rf"^(?P<search>\| {re.escape(search)} \|) *\d* \| *(?P<chrf>[\d.]+) \|$", re.MULTILINE)


def main(
    bundle: Annotated[Path | None, typer.Option(help="Default: every bundle that ships.")] = None,
    write: Annotated[bool, typer.Option(help="Put the values into the bundle's model card.")] = False,
) -> None:
    """Score bundles on the project's own sentences."""
    for directory in [bundle] if bundle else shipped_bundles():
        sentences = len(pairs_of(directory).sources)
        loaded = Bundle.load(directory, verify=False)
        for search, options in SEARCHES.items():
            if options.use_shortlist and not loaded.manifest.shortlist:
                print(f"{directory.name}, {search}: it has none")
                continue
            if options.use_shortlist and (problem := native_problem(loaded, None)):
                print(f"{directory.name}, {search}: only the native engine keeps to it, and {problem}")
                continue
            chrf = chrf_of(directory, options)
            print(f"{directory.name}, {search}: chrF {chrf:.2f} on {sentences} sentences")
            if write:
                card = directory / CARD_NAME
                card.write_text(with_value(card.read_text("utf-8"), search, sentences, chrf), "utf-8")


if __name__ == "__main__":
    typer.run(main)
