"""The included models keep giving the translations they were committed with.

NAME.tsv holds sentences of our own and the shipped bundle's translations.  After a change that is meant to alter them:
`python tests/golden/update.py`, and read the difference.
"""

from pathlib import Path

import pytest
import sacrebleu

from model.bundle import included_bundle_dirs
from service.local import LocalTranslator
from service.records import Segmentation, TranslateOptions

# Other processors add floats in another order; a near-tie may then fall the other way.
MIN_SAME_SHARE = 0.95
MIN_CHRF = 98.0


def golden_file(bundle: Path) -> Path:
    return Path(__file__).with_name(f"{bundle.name}.tsv")


def translate(bundle: Path, texts: list[str]) -> list[str]:
    translator = LocalTranslator.open(bundle, threads=1)
    return [
        translation.text
        for translation in translator.translate_all(texts, TranslateOptions(segmentation=Segmentation.NONE))
    ]


@pytest.mark.parametrize("bundle", included_bundle_dirs(), ids=lambda bundle: bundle.name)
def test_shipped_bundle_gives_the_golden_translations(bundle: Path):
    lines = golden_file(bundle).read_text("utf-8").splitlines()
    texts, golden = zip(*(line.split("\t") for line in lines), strict=True)

    found = translate(bundle, list(texts))

    different = [(text, was, now) for text, was, now in zip(texts, golden, found, strict=True) if was != now]
    assert len(different) <= (1 - MIN_SAME_SHARE) * len(texts), different
    assert sacrebleu.corpus_chrf(found, [list(golden)]).score >= MIN_CHRF, different
