"""Whatever a model says, the conditions hold of every case: models that echo, drop, mangle, repeat and say nothing."""

import re
from collections.abc import Iterator
from html import unescape

import pytest

from service.records import TextFormat
from tests.fakes.scripted_model import SCRIPTS, ScriptedPipeline, echo, of_text
from tests.text.corpus import Case, all_cases
from tests.text.judging import letters, problems, translated
from tests.text.markup_conditions import MARKUP
from tests.text.reported import REPORTED, word_by_word

# Without alignment, what a model says decides little: two of them are enough where all take too long.
FEW = ("drops unknown characters", "reverses the words")
ALIKE = ("reverses the tokens", "says everything twice")  # as others that reverse, and that say something again
MODELS = [
    pytest.param(
        (name, is_aligned),
        id=f"{name}, {'' if is_aligned else 'not '}aligned",
        marks=[] if (is_aligned and name not in ALIKE) or name in FEW else [pytest.mark.thorough],
    )
    for name in SCRIPTS
    for is_aligned in (True, False)
]


@pytest.fixture(scope="module", params=MODELS)
def pipeline(request: pytest.FixtureRequest) -> Iterator[ScriptedPipeline]:
    name, is_aligned = request.param
    running = ScriptedPipeline(SCRIPTS[name], has_scorer=is_aligned)
    yield running
    running.close()


@pytest.fixture(scope="module")
def echoing() -> Iterator[ScriptedPipeline]:
    running = ScriptedPipeline(echo)
    yield running
    running.close()


@pytest.mark.parametrize("text_format", TextFormat)
def test_all_conditions_hold_of_all_cases(pipeline, text_format):
    cases = [case for case in all_cases() if case.format is text_format]

    assert problems(cases, translated(pipeline.translate, cases)) == {}


# "31.12.", "$1,299.99" and "two" are written as the target language writes them; "Cl&ose" has its mark before a word.
REWRITTEN = re.compile(
    r"\w&\w|\d (?:tbsp|tsp|EL|TL)\b|\d,-"
    r"|\b\d{1,2}\.\d{1,2}\.(?!\d)|\d[.,]\d{3}(?!\d)|[$€£¥₹₿=]\s?\d+[.,]\d|\d[.,]\d+\s?(?:[$€£¥₹₿%°]|[kM]?[gmBWl]\b)"
    r"|(?i:\b(?:ca|rd|z\. ?b|i\. ?d\. ?r|v\. ?a|z\. ?t|ggf|evtl|mind|max|inkl|zzgl|mio|mrd|fa|abb|kap|s|std|min|sek"
    r"|stk|jh|bd|gr|pers|d\. ?h|u\. ?a|i\. ?h\. ?v|vgl|bspw|bzgl|lt|gem|jew|tägl|tgl|mtl"
    r"|approx|incl|cf|doz|e\. ?g|i\. ?e|esp|sec|ch|pp?)\.)"
    r"|(?i:\b(?:two|three|four|five|six|seven|eight|nine|ten|twelve|twent|thirt|third|fort|fift|half"
    r"|zwei|drei|dritt|vier|fünf|sech|sieb|acht|neun|zehn|elf|zwölf|zwanz|halb))"
)


def without_tags(case: Case, text: str) -> str:
    return text if case.format is TextFormat.PLAIN else MARKUP.sub("", text)  # a tag inside a word moves to its end


def test_an_echo_gives_the_text_back(echoing):
    cases = [case for case in all_cases() if not case.is_broken and not REWRITTEN.search(unescape(case.text))]
    answers = translated(echoing.translate, cases)

    changed = {
        case.name: answer.text
        for case, answer in zip(cases, answers, strict=True)
        if letters(without_tags(case, answer.text)) != letters(without_tags(case, case.text))
    }
    assert changed == {}


@pytest.fixture(scope="module")
def dictionary() -> Iterator[ScriptedPipeline]:
    running = ScriptedPipeline(of_text(word_by_word))
    yield running
    running.close()


@pytest.mark.parametrize("row", REPORTED, ids=lambda row: row.case.name)
def test_a_text_that_used_to_be_damaged_is_translated_word_by_word(dictionary, row):
    (answer,) = translated(dictionary.translate, [row.case])

    assert answer.text == row.word_by_word
    assert problems([row.case], [answer]) == {}
