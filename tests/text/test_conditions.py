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


def test_a_failed_text_and_one_without_hypothesis_are_no_answer():
    assert broken_conditions(GOOD, Translation(error=InternalError("lost"))) == ["the text failed: lost"]
    assert broken_conditions(GOOD, Translation()) == ["the text has no hypothesis"]


@pytest.mark.parametrize("said", ["Hallo", "%s %s", "% s"])
def test_a_span_that_is_gone_doubled_or_changed_is_noticed(said):
    assert list(conditions.keeps_spans(case("Hello %s", keeps=("%s",)), answer(said)))


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("One.\n\nTwo.", "Eins.\nZwei."),
        ("One.\n\nTwo.", "Eins. Zwei."),
        ("One.\r\nTwo.", "Eins.\nZwei."),
        (" One.", "Eins."),
        ("One. ", "Eins."),
        ("One.\n  Two.", "Eins.\nZwei."),
        ("One.\tTwo.\n", "Eins.\tZwei."),
        ("\n", ""),
    ],
)
def test_white_space_that_is_lost_is_noticed(source, said):
    assert list(conditions.keeps_white_space(case(source), answer(said)))


@pytest.mark.parametrize(
    ("source", "said"), [("- One", "Eins"), ("1. One\n2. Two", "1. Eins\n3. Zwei"), ("a) One", "a. Eins")]
)
def test_a_bullet_that_is_lost_or_changed_is_noticed(source, said):
    assert list(conditions.keeps_bullets(case(source), answer(said)))


@pytest.mark.parametrize("said", ["Ich \u2047 dich", "\u2047"])
def test_the_unknown_mark_is_noticed_in_text_and_segments(said):
    whole, part = answer(said), answer("gut", segment((0, 1), (0, 3), said))

    assert list(conditions.shows_no_unknown_mark(case("a"), whole))
    assert list(conditions.shows_no_unknown_mark(case("a"), part))


@pytest.mark.parametrize(
    "segments",
    [
        [segment((0, 4), (0, 4), ""), segment((2, 6), (5, 6), "")],  # they overlap
        [segment((5, 9), (5, 9), ""), segment((0, 4), (0, 4), "")],  # the second stands first
        [segment((0, 99), (0, 9), "")],  # beyond the text
        [segment((0, 4), (0, 9), "")],  # the translation of the second is nobody's
    ],
)
def test_segments_that_overlap_swap_or_leave_something_changed_are_noticed(segments):
    assert list(conditions.keeps_what_is_outside_segments(case("One. Two."), answer("Ein. Zwo.", *segments)))


def test_a_segment_whose_slice_is_another_text_is_noticed():
    assert list(conditions.slices_are_the_segments(case("One."), answer("Eins.", segment((0, 4), (0, 5), "Zwei."))))


@pytest.mark.parametrize(
    ("source", "segments"),
    [
        ("One. Two.", [segment((0, 4), (0, 4), "")]),  # a sentence without a segment
        ("One. ", [segment((0, 4), (0, 4), ""), segment((4, 5), (4, 5), "")]),  # a blank one
    ],
)
def test_sentences_without_segments_and_blank_segments_are_noticed(source, segments):
    assert list(conditions.has_the_segments(case(source), answer(source, *segments)))


def test_another_number_of_segments_is_noticed():
    one = answer("Eins. Zwei.", segment((0, 9), (0, 11), "Eins. Zwei."))

    assert list(conditions.has_the_segments(case("One. Two.", sentences=2), one))


@pytest.mark.parametrize(("source", "said"), [("The door is open", "The door is open"), ("The door", "")])
def test_a_copy_and_an_empty_translation_are_noticed_unless_there_is_a_warning(source, said):
    spans = (0, len(source)), (0, len(said))
    silent = answer(said, segment(*spans, said))
    loud = answer(said, segment(*spans, said, WarningKind.NOT_TRANSLATED))

    assert list(conditions.warns_of_copies(case(source), silent))
    assert not list(conditions.warns_of_copies(case(source), loud))


def test_words_in_markup_code_and_protected_spans_are_not_language():
    page = case(
        '<p title="big">Use <code>left</code> in {name} <i translate="no">Door</i>&nbsp;now</p>',
        HTML,
        keeps=("{name}",),
    )

    assert [word for word, *_ in conditions.words_to_translate(page)] == ["Use", "in", "now"]


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("<b>One</b>", "Eins"),
        ("<b>One</b>", "<b>Eins</b><b></b>"),
        ('<a href="/x">One</a>', '<a href="/y">Eins</a>'),
        ("One<br>", "Eins"),
        ("<!-- a -->One", "Eins"),
    ],
)
def test_a_tag_that_is_lost_added_or_changed_is_noticed(source, said):
    assert list(markup_conditions.keeps_tags(case(source, HTML), answer(said)))


def test_a_translated_attribute_is_no_changed_tag():
    source, said = case('<img alt="A cat" src="c.png">', HTML), answer('<img alt="Eine Katze" src="c.png">')

    assert not list(markup_conditions.keeps_tags(source, said))


@pytest.mark.parametrize(
    ("source", "said", "text_format"),
    [
        ("<b>a</b><i>b</i>", "<b>a<i></b>b</i>", HTML),
        ("<b>a</b>", "</b>a<b>", HTML),
        ("<b>a</b>", "<b>a", TextFormat.XML),
        ("a &amp; b", "a & b", TextFormat.XML),
        ("<x id='1'/>", "<x id='1'>", TextFormat.XLIFF),
    ],
)
def test_markup_that_is_no_longer_well_formed_is_noticed(source, said, text_format):
    assert list(markup_conditions.stays_well_formed(case(source, text_format), answer(said)))


def test_void_elements_and_comments_need_no_end():
    assert markup_conditions.is_nested("<p>a<br>b<img src=c><!-- <p> --><x/></p>")


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("<script>a < b</script>", "<script>a &lt; b</script>"),
        ("<code>left</code> door", "<code>links</code> Tür"),
        ('<b class="x notranslate">Door</b>', '<b class="x notranslate">Tür</b>'),
        ('<b translate="no">Door</b>', '<b translate="no">Tür</b>'),
    ],
)
def test_a_changed_script_code_or_untranslated_element_is_noticed(source, said):
    assert list(markup_conditions.keeps_what_stays(case(source, HTML), answer(said)))


@pytest.mark.parametrize(
    ("source", "said"),
    [("a &amp; b", "a & b"), ("a &lt; b", "a < b"), ("a &amp; b", "a &amp;amp; b"), ("&quot;a", "&amp;quot;a")],
)
def test_text_that_is_not_escaped_or_escaped_twice_is_noticed(source, said):
    assert list(markup_conditions.escapes_once(case(source, HTML), answer(said)))


def test_an_attribute_that_is_no_segment_is_noticed():
    page = case('<img alt="A cat">', HTML, translated=("A cat",))

    assert list(markup_conditions.translates_attributes(page, answer("")))
    assert not list(markup_conditions.translates_attributes(page, answer("", segment((10, 15), (0, 0), ""))))


def test_characters_that_are_lost_or_doubled_are_listed_unless_the_model_knows_them():
    source = case("a €1 cafe\u0301 &copy; €", HTML)

    assert lost_characters(source, answer("€ é ©"), str.isascii) == ["'€': 2 -> 1"]
    assert lost_characters(source, answer("€€ \xe9\xe9 ©"), str.isascii) == ["'é': 1 -> 2"]
    assert lost_characters(source, answer("€€ é ©"), str.isascii) == []
