"""The embedded model keeps giving the translations it was committed with.

`golden.tsv` holds sentences of our own and the shipped bundle's translations.  After a change that is meant to alter
them: `python tests/golden/update.py`, and read the difference.
"""

from pathlib import Path

import sacrebleu

from model.bundle import default_bundle_dir
from service.models.local import LocalTranslator

GOLDEN = Path(__file__).with_name("golden.tsv")
# Other processors add floats in another order; a near-tie may then fall the other way.
MIN_SAME_SHARE = 0.95
MIN_CHRF = 98.0


def translate(texts: list[str]) -> list[str]:
    translator = LocalTranslator.open(default_bundle_dir(), threads=1)
    return [translation.text for translation in translator.translate_all(texts)]


def test_shipped_bundle_gives_the_golden_translations():
    texts, golden = zip(*(line.split("\t") for line in GOLDEN.read_text("utf-8").splitlines()), strict=True)

    found = translate(list(texts))

    different = [(text, was, now) for text, was, now in zip(texts, golden, found, strict=True) if was != now]
    assert len(different) <= (1 - MIN_SAME_SHARE) * len(texts), different
    assert sacrebleu.corpus_chrf(found, [list(golden)]).score >= MIN_CHRF, different
