"""Each condition holds of a good translation and notices what it is there for."""

from typing import Any

import pytest

from service.engine.wire import FinishReason
from service.errors import InternalError
from service.records import Span, TextFormat, TextWarning, TranslatedSegment, TranslatedText, Translation, WarningKind
from tests.text import conditions, markup_conditions
from tests.text.conditions import broken_conditions, lost_characters
from tests.text.corpus import Case

HTML = TextFormat.HTML


def text(value: str) -> TranslatedText:
    return TranslatedText(text=value, score=0.0, finish_reason=FinishReason.END_OF_SENTENCE, target_tokens=1)


def segment(source: tuple[int, int], target: tuple[int, int], said: str, *warnings: WarningKind) -> TranslatedSegment:
    span = Span(*source)
    made = tuple(TextWarning(kind, "", span) for kind in warnings)
    return TranslatedSegment(source=span, target=Span(*target), hypotheses=(text(said),), warnings=made)


def answer(said: str, *segments: TranslatedSegment) -> Translation:
    return Translation(hypotheses=(text(said),), segments=segments)


def case(source: str, text_format: TextFormat = TextFormat.PLAIN, **details: Any) -> Case:
    return Case("a case", source, text_format, **details)


GOOD = case("- Call %s now.\n- The door is open.", keeps=("%s",), sentences=2)
GOOD_ANSWER = answer(
    "- Ruf jetzt %s an.\n- Die Tür ist offen.",
    segment((2, 14), (2, 18), "Ruf jetzt %s an."),
    segment((17, 34), (21, 39), "Die Tür ist offen."),
)


def test_a_good_translation_fulfils_all_conditions():
    assert broken_conditions(GOOD, GOOD_ANSWER) == []


@pytest.mark.parametrize(
    ("condition", "given", "said"),
    [
        (conditions.has_an_answer, case("a"), Translation()),
        (conditions.has_an_answer, case("a"), Translation(error=InternalError("lost"))),
        (conditions.keeps_spans, case("Hello %s", keeps=("%s",)), answer("%s %s")),
        (conditions.keeps_white_space, case("One.\n\nTwo."), answer("Eins.\nZwei.")),
        (conditions.keeps_white_space, case("One.\r\nTwo."), answer("Eins.\nZwei.")),
        (conditions.keeps_white_space, case("One. "), answer("Eins.")),
        (conditions.keeps_bullets, case("1. One\n2. Two"), answer("1. Eins\n3. Zwei")),
        (conditions.shows_no_unknown_mark, case("a"), answer("Ich \u2047 dich")),
        (conditions.shows_no_unknown_mark, case("a"), answer("gut", segment((0, 1), (0, 3), "\u2047"))),
        (
            conditions.keeps_what_is_outside_segments,
            case("One. Two."),
            answer("Ein. Zwo.", segment((0, 4), (0, 4), ""), segment((2, 6), (5, 6), "")),  # they overlap
        ),
        (
            conditions.keeps_what_is_outside_segments,
            case("One. Two."),
            answer("Ein. Zwo.", segment((0, 4), (0, 9), "")),  # the translation of the second is nobody's
        ),
        (conditions.slices_are_the_segments, case("One."), answer("Eins.", segment((0, 4), (0, 5), "Zwei."))),
        (conditions.has_the_segments, case("One. Two."), answer("One. Two.", segment((0, 4), (0, 4), ""))),
        (conditions.has_the_segments, case("One. Two.", sentences=2), answer("Eins.", segment((0, 9), (0, 5), ""))),
        (conditions.warns_of_copies, case("The door"), answer("", segment((0, 8), (0, 0), ""))),
        (markup_conditions.keeps_tags, case("<b>One</b>", HTML), answer("<b>Eins</b><b></b>")),
        (markup_conditions.keeps_tags, case('<a href="/x">One</a>', HTML), answer('<a href="/y">Eins</a>')),
        (markup_conditions.stays_well_formed, case("<b>a</b><i>b</i>", HTML), answer("<b>a<i></b>b</i>")),
        (markup_conditions.stays_well_formed, case("a &amp; b", TextFormat.XML), answer("a & b")),
        (markup_conditions.keeps_what_stays, case("<code>left</code> door", HTML), answer("<code>links</code> Tür")),
        (markup_conditions.escapes_once, case("a &amp; b", HTML), answer("a &amp;amp; b")),
        (
            markup_conditions.translates_attributes,
            case('<img alt="A cat">', HTML, translated=("A cat",)),
            answer('<img alt="A cat">'),
        ),
    ],
)
def test_each_condition_notices_what_it_is_there_for(condition, given, said):
    assert list(condition(given, said))


def test_characters_that_are_lost_or_doubled_are_listed_unless_the_model_knows_them():
    source = case("a €1 cafe\u0301 &copy; €", HTML)

    assert lost_characters(source, answer("€ é ©"), str.isascii) == ["'€': 2 -> 1"]
    assert lost_characters(source, answer("€€ \xe9\xe9 ©"), str.isascii) == ["'é': 1 -> 2"]
    assert lost_characters(source, answer("€€ é ©"), str.isascii) == []
