"""The cases themselves: many, of every kind, and what they say of their texts is true of them."""

from collections import Counter

import pytest

from service.engine.wire import FinishReason
from service.records import TextFormat, TranslatedText, Translation
from tests.text.conditions import keeps_bullets, keeps_spans, keeps_white_space
from tests.text.corpus import all_cases
from tests.text.markup_conditions import escapes_once, keeps_tags, keeps_what_stays, stays_well_formed


def test_there_are_at_least_300_cases_of_all_formats_and_both_directions():
    formats = Counter(case.format for case in all_cases())
    languages = Counter(case.languages for case in all_cases())

    assert len(all_cases()) >= 300
    assert formats.keys() == set(TextFormat)
    assert languages.keys() == {"en-de", "de-en"}


def test_no_text_of_a_format_is_there_twice():
    counts = Counter((case.format, case.text) for case in all_cases())

    assert [text for text, count in counts.items() if count > 1] == []


def test_what_a_case_keeps_is_in_its_text():
    assert [(case.name, span) for case in all_cases() for span in case.keeps if span not in case.text] == []


@pytest.mark.parametrize("condition", [keeps_spans, keeps_white_space, keeps_bullets, keeps_tags, keeps_what_stays])
def test_a_text_fulfils_the_conditions_on_its_translation(condition):
    assert [
        (case.name, list(condition(case, same(case.text))))
        for case in all_cases()
        if list(condition(case, same(case.text)))
    ] == []


@pytest.mark.parametrize("condition", [stays_well_formed, escapes_once])
def test_markup_fulfils_the_conditions_on_markup(condition):
    assert [case.name for case in all_cases() if list(condition(case, same(case.text)))] == []


def same(text: str) -> Translation:
    """Return a translation that is the text."""
    whole = TranslatedText(text=text, score=0.0, finish_reason=FinishReason.END_OF_SENTENCE, target_tokens=1)
    return Translation(hypotheses=(whole,))
