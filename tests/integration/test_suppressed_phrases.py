"""What is suppressed does not come back in another spelling: words that the included model would say."""

import re

import pytest

from model.bundle import default_bundle_dir
from service.local import LocalTranslator
from service.records import TranslateOptions
from tests.fakes.own_text import own_sentences


@pytest.fixture(scope="module")
def translator() -> LocalTranslator:
    return LocalTranslator.open(default_bundle_dir(), threads=1)


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text)


@pytest.mark.parametrize("beam_size", [1, 4])
def test_a_translation_does_without_each_word_that_it_had_before(translator, beam_size):
    texts = own_sentences(25)
    plain = [one.text for one in translator.translate_all(texts, TranslateOptions(beam_size=beam_size))]
    num_changed = 0
    for text, before in zip(texts, plain, strict=True):
        phrases = tuple(dict.fromkeys(words(before)))[:4]
        options = TranslateOptions(beam_size=beam_size, suppressed_phrases=phrases)

        (after,) = translator.translate_all([text], options)

        assert not set(words(after.text)) & set(phrases), (text, before, after.text)
        num_changed += after.text != before
    assert num_changed == len([text for text in plain if words(text)])
