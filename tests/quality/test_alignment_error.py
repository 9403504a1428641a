"""The included models align words as well as their cards say."""

import re

import pytest

from model.bundle import Bundle, included_bundle_dirs
from tests.quality.alignment import attend, rates, read
from tests.quality.score import CARD_NAME

MAX_LOSS = 0.02  # another processor may decide a near-tie otherwise; the usual heads lose 0.2


@pytest.mark.parametrize("directory", included_bundle_dirs(), ids=lambda directory: directory.name)
def test_alignment_error_rate_is_that_of_the_card(directory):
    bundle = Bundle.load(directory)
    card = " ".join((directory / CARD_NAME).read_text("utf-8").split())
    said = re.search(r"alignment error rate (0\.\d+) on 30 sentences", card)
    sentences = read(bundle.manifest.source_language)

    found = rates(sentences, attend(bundle, sentences))

    assert len(sentences) == 30
    assert said
    assert found.error == pytest.approx(float(said[1]), abs=MAX_LOSS)
