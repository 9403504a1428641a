"""Properties of the whole way of a text, for random texts and models of every kind.

    DRAGOMAN_TEXT_EXAMPLES=20000 python -m pytest tests/text/test_properties.py

tries so many random examples of each property instead of 60 that are always the same.
"""

import os
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.records import TextFormat, Translation, TranslationRequest
from tests.fakes.scripted_model import SCRIPTS, ScriptedPipeline
from tests.text.corpus import Case
from tests.text.judging import letters, problems
from tests.text.strategies import html_cases, plain_cases, soups

EXAMPLES = os.environ.get("DRAGOMAN_TEXT_EXAMPLES")
many = settings(
    max_examples=int(EXAMPLES or 60),
    derandomize=EXAMPLES is None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
scripts = st.sampled_from(sorted(SCRIPTS))


class Models:
    """A pipeline for each script, made when it is first needed."""

    def __init__(self) -> None:
        self._pipelines: dict[tuple[str, bool], ScriptedPipeline] = {}

    def translate(
        self, *texts: str, script: str = "echo", is_aligned: bool = True, **request: object
    ) -> list[Translation]:
        key = script, is_aligned
        if key not in self._pipelines:
            self._pipelines[key] = ScriptedPipeline(SCRIPTS[script], has_scorer=is_aligned)
        asked = TranslationRequest(texts=texts, source_language="en", target_language="de", **request)  # type: ignore[arg-type]
        return list(self._pipelines[key].translate(asked))

    def close(self) -> None:
        for pipeline in self._pipelines.values():
            pipeline.close()


@pytest.fixture(scope="module")
def models() -> Iterator[Models]:
    running = Models()
    yield running
    running.close()


@many
@given(case=plain_cases(), script=scripts, is_aligned=st.booleans())
def test_spans_and_white_space_survive_whatever_the_model_says(models, case, script, is_aligned):
    assert problems([case], models.translate(case.text, script=script, is_aligned=is_aligned)) == {}


@many
@given(first=plain_cases(), second=plain_cases(), script=scripts)
def test_two_texts_in_one_call_are_translated_as_apart(models, first, second, script):
    together = models.translate(first.text, second.text, script=script)
    apart = [*models.translate(first.text, script=script), *models.translate(second.text, script=script)]

    assert together == apart


@many
@given(first=plain_cases(), second=plain_cases(), script=scripts)
def test_two_paragraphs_of_a_text_are_translated_as_apart(models, first, second, script):
    texts = [first.text.strip(), second.text.strip()]
    apart = [answer.text for answer in models.translate(*texts, script=script)]

    (joined,) = models.translate("\n\n".join(texts), script=script)

    assert joined.text == "\n\n".join(apart)


@many
@given(text=st.text(), text_format=st.sampled_from(TextFormat), script=scripts)
def test_no_text_is_refused_or_breaks_a_condition(models, text, text_format, script):
    case = Case("html/broken/random", text, text_format)

    assert problems([case], models.translate(text, script=script, format=text_format)) == {}


@many
@given(text=st.text())
def test_an_echo_loses_no_letter_of_any_text(models, text):
    (answer,) = models.translate(text)

    assert Counter(letters(answer.text)) == Counter(letters(text))  # a sign may move by a word


@many
@given(case=html_cases(), script=scripts, is_aligned=st.booleans())
def test_well_formed_html_stays_so_with_the_same_tags(models, case, script, is_aligned):
    assert problems([case], models.translate(case.text, script=script, is_aligned=is_aligned, format=case.format)) == {}


@many
@given(soup=soups, text_format=st.sampled_from([TextFormat.HTML, TextFormat.XML, TextFormat.XLIFF]), script=scripts)
def test_no_markup_however_broken_is_refused_or_shows_the_unknown_mark(models, soup, text_format, script):
    case = Case("html/broken/random", soup, text_format)

    assert problems([case], models.translate(soup, script=script, format=text_format)) == {}


@many
@given(soup=soups)
def test_an_echo_loses_nothing_of_any_markup(models, soup):
    (answer,) = models.translate(soup, format=TextFormat.HTML)

    before, after = (letters(text).replace("'", "") for text in (soup, answer.text))  # two together may be an escape
    assert Counter(before) <= Counter(after)  # values get quotes where they had none
