"""A text taken apart, translated by a model of the test's own, and put together again."""

import asyncio
import re
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np
import pytest

from model.tokenizer import SupportsTokens
from service.engine.wire import FinishReason, Hypothesis, Job, JobResult, SearchParams, Settled, TokenScores
from service.errors import InternalError, TooLong
from service.models.codec import TextCodec
from service.records import Segmentation, Term, TextFormat, Translation, WarningKind
from service.translate.glossaries import Glossary
from service.translate.raw_translation import Settings
from service.translate.search_batcher import SearchBatcher
from service.translate.text import translate_text
from tests.fakes.manual_pool import CharacterTokenizer

Model = Callable[[str], str]


def translated(
    text: str, model: Model = str.upper, *, tokenizer: SupportsTokens | None = None, **settings: Any
) -> Translation:
    tokens = TextCodec(tokenizer or CharacterTokenizer(), max_characters=5_000, max_source_tokens=1_000)

    async def run(jobs: Sequence[Job]) -> list[Settled]:
        return [answer(job, model) for job in jobs]

    asked = {
        "max_tokens": 1_000,
        "params": SearchParams(),
        "source_language": "en",
        "target_language": "de",
        **settings,
    }
    return asyncio.run(translate_text(text, 0, Settings(codec=tokens, batcher=SearchBatcher(run), **asked)))


def answer(job: Job, model: Model) -> Settled:
    if job.scored_ids is not None:
        return scored(job.scored_ids, len(job.source_ids))
    target = model(CharacterTokenizer().decode(job.source_ids[:-1]))
    if target == "BROKEN":
        return InternalError("no numbers")
    ids = tuple(CharacterTokenizer().encode(target)[:-1])
    hypothesis = Hypothesis(ids, -0.5, FinishReason.END_OF_SENTENCE)
    return JobResult(0, (hypothesis,), 0.0, 0.0, 0.0, num_steps=2, beam_size=4, row_steps=8)


def scored(target: tuple[int, ...], num_source: int) -> JobResult:
    """Say that the n-th token of the translation comes from the n-th of the source."""
    attention = np.eye(len(target) + 1, num_source, dtype=np.float16)
    hypothesis = Hypothesis(target, -0.5, FinishReason.END_OF_SENTENCE)
    return JobResult(0, (hypothesis,), 0.0, 0.0, 0.0, 1, TokenScores((-0.5,) * len(attention), attention.tobytes()))


def test_each_sentence_is_translated_by_itself_and_has_its_place():
    text = "Dr. Smith came.  He sat.\n* Then he left."

    translation = translated(text, lambda sentence: f"<{sentence}>")

    assert translation.text == "<Dr. Smith came.>  <He sat.>\n* <Then he left.>"
    assert [text[slice(*one.source)] for one in translation.segments] == [
        "Dr. Smith came.",
        "He sat.",
        "Then he left.",
    ]
    assert [translation.text[slice(*one.target)] for one in translation.segments] == [
        "<Dr. Smith came.>",
        "<He sat.>",
        "<Then he left.>",
    ]
    assert translation.source_tokens == len("Dr. Smith came.") + len("He sat.") + len("Then he left.") + 3
    assert translation.row_steps == 3 * 4 * 2


WRAPPED = "The old man who lives behind the station\nbought bread. Then he\nwent home. It rained.\n\n- Yes\n- no"


@pytest.mark.parametrize(
    ("segmentation", "segments"),
    [
        (
            Segmentation.SENTENCE,
            [
                "The old man who lives behind the station bought bread.",
                "Then he",
                "went home.",
                "It rained.",
                "Yes",
                "no",
            ],
        ),
        (
            Segmentation.LINE,
            ["The old man who lives behind the station bought bread. Then he", "went home. It rained.", "Yes", "no"],
        ),
        (
            Segmentation.SENTENCE_AND_LINE,
            [
                *("The old man who lives behind the station", "bought bread.", "Then he", "went home.", "It rained."),
                *("Yes", "no"),
            ],
        ),
        (
            Segmentation.SENTENCE_ACROSS_LINES,
            [
                "The old man who lives behind the station bought bread.",
                *("Then he went home.", "It rained.", "Yes", "no"),
            ],
        ),
    ],
)
def test_segmentation_says_what_ends_a_segment_and_line_breaks_come_back(segmentation, segments):
    seen: list[str] = []

    def model(text: str) -> str:
        seen.append(text)
        return text

    assert translated(WRAPPED, model, segmentation=segmentation).text == WRAPPED
    assert seen == segments


def test_overlong_sentence_is_translated_in_pieces_and_says_so():
    text = "one two three, four five six; seven eight nine"

    translation = translated(text, lambda piece: f"<{piece}>", max_tokens=20)

    assert translation.text == "<one two three,> <four five six;> <seven eight nine>"
    assert [warning.kind for warning in translation.warnings] == [WarningKind.SPLIT]


def test_text_with_too_many_characters_never_reaches_the_model():
    assert isinstance(translated("x" * 5_001).error, TooLong)


def test_segment_whose_span_the_model_always_loses_stays_as_it_is_and_says_so():
    translation = translated("Write to {name} please.", lambda text: "{name} {name}")

    assert translation.text == "Write to {name} please."
    assert [warning.kind for warning in translation.warnings] == [WarningKind.NOT_TRANSLATED]


def test_tags_stand_around_the_words_that_are_linked_to_theirs():
    html = "<p>The <b>small</b> dog &amp; cat</p>"

    translation = translated(html, str.upper, text_format=TextFormat.HTML, can_score=True)

    assert translation.text == "<p>THE <b>SMALL</b> DOG &amp; CAT</p>"


def test_links_name_words_of_the_request_and_of_the_answer():
    text = "One. <b>Red</b> &amp; green"

    translation = translated(text, str.upper, text_format=TextFormat.HTML, can_score=True, wants_links=True)

    links = [link for segment in translation.segments for link in segment.links]
    pairs = [(text[slice(*link.source)], translation.text[slice(*link.target)]) for link in links]
    assert pairs == [("One", "ONE"), (".", "."), ("Red", "RED"), ("&amp;", "&amp;"), ("green", "GREEN")]


def test_links_are_exact_beside_a_placeholder_that_touches_its_word():
    text = "It is %dpx wide."

    translation = translated(text, str, can_score=True, wants_links=True)

    links = [link for segment in translation.segments for link in segment.links]
    assert [(text[slice(*one.source)], translation.text[slice(*one.target)]) for one in links][2:5] == [
        ("%d", "%d"),
        ("px", "px"),
        ("wide", "wide"),
    ]


def test_a_term_never_takes_the_place_of_a_protected_span():
    glossary = Glossary([Term("the door", "Pforte")])

    translation = translated("Open the door {x} now", lambda text: "Nun XA", can_score=True, glossary=glossary)

    assert "{x}" in translation.text


@pytest.mark.parametrize(("term", "expected"), [(Term("dog", "Hund"), "THE Hund RUNS"), (Term("dog"), "THE dog RUNS")])
def test_terms_become_what_they_have_to(term: Term, expected: str):
    translation = translated("The dog runs", str.upper, can_score=True, glossary=Glossary([term]))

    assert translation.text == expected
    assert [(use.term, use.is_honoured) for use in translation.terms] == [(term, True)]


def test_loop_is_tried_again_without_repetitions():
    asked: list[str] = []

    def model(text: str) -> str:
        asked.append(text)
        return "so " * 30 if len(asked) == 1 else "ES WAR SO"

    translation = translated("It was so", model)

    assert (translation.text, translation.retries, translation.warnings) == ("ES WAR SO", 1, ())


def test_capitals_are_translated_as_a_sentence_and_raised_again():
    translation = translated("THE CATS SLEEP", lambda text: f"{text} ja")

    assert translation.text == "THE CATS SLEEP JA"


def test_what_happens_to_language_in_a_tag_is_told_and_counted():
    text = 'Look at <a title="a small dog">it</a> now'

    plain = translated("Look at <a>it</a> now", text_format=TextFormat.HTML)
    translation = translated(
        text, lambda part: "" if part == "a small dog" else part.upper(), text_format=TextFormat.HTML
    )
    broken = translated(text, lambda part: "BROKEN" if part == "a small dog" else part, text_format=TextFormat.HTML)

    assert [warning.kind for warning in translation.warnings] == [WarningKind.EMPTY]
    assert translation.source_tokens > plain.source_tokens
    assert isinstance(broken.error, InternalError)


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        ('<p>12 <a title="a cat">34</a> 56</p>', '<p>12 <a title="A CAT">34</a> 56</p>'),
        ('<p>5 <b title="a">7</b> <i>8</i><img alt="b"> 9</p>', '<p>5 <b title="A">7</b> <i>8</i><img alt="B"> 9</p>'),
    ],
)
def test_language_in_tags_is_translated_though_there_is_none_beside_them(html: str, expected: str):
    assert translated(html, text_format=TextFormat.HTML).text == expected


def without_last_digits(text: str) -> str:
    return " ".join([word if "X" in word else re.sub(r"\d\b", "", word.swapcase()) for word in text.split()])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("About 12,345 cats", "aBOUT 12.345 CATS"),
        ("He sold 2.5 and 17 cars", "hE SOLD 2,5 AND 17 CARS"),
        ("It is at 5:30 pm", "iT IS AT 17:30"),
        ("It is at 5:30 p.m.", "iT IS AT 17:30."),
        ("It ends on 31 Dec.", "iT ENDS ON 31. Dezember."),
        ("On May 3rd, 2024 it ends", "oN 3. Mai 2024 IT ENDS"),
        ("The cats -- 12,345 of them -- left", "tHE CATS -- 12.345 OF THEM -- LEFT"),
        ("<b>1,200</b> cats and 77 dogs", "<b>1.200</b> CATS AND 77 DOGS"),
    ],
)
def test_numbers_that_the_model_changes_come_back_as_the_target_language_writes_them(text, expected):
    text_format = TextFormat.HTML if "<" in text else TextFormat.PLAIN

    translation = translated(text, without_last_digits, text_format=text_format, can_score=True)

    assert (translation.text, translation.warnings, translation.retries) == (expected, (), 1)


LOST_UNIT = re.compile(r"(?<=[\dA-Z]) (?:ml|mm|in\.|m|min|kg)(?!\w)")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Add 250 ml milk", "aDD 250 ml MILK"),
        ("It is 1,200 mm wide.", "iT IS 1.200 mm WIDE."),
        ("A 27 in. screen", "A 27 Zoll SCREEN"),
        ("It weighs 250000 kg today", "iT WEIGHS 250000 kg TODAY"),
        ("Keep 2 m apart, for 3 min.", "kEEP 2 m APART, FOR 3 min."),
    ],
)
def test_units_that_the_model_loses_come_back_with_their_numbers(text, expected):
    def model(shown: str) -> str:
        return " ".join([word if "X" in word else word.swapcase() for word in LOST_UNIT.sub("", shown).split()])

    translation = translated(text, model, can_score=True)

    assert (translation.text, translation.warnings, translation.retries) == (expected, (), 1)


def test_a_unit_that_stays_lost_is_a_warning():
    translation = translated("Add 5 kg", lambda text: "Etwa 5")

    assert [(warning.kind, warning.message) for warning in translation.warnings] == [
        (WarningKind.NUMBERS, "numbers of the source that are missing: 0; new ones: 0; without their unit: 1")
    ]


def test_a_segment_that_is_a_date_is_written_without_the_model_if_that_gets_it_wrong():
    asked = []

    def model(text: str) -> str:
        asked.append(text)
        return "31, 2024"

    assert translated("Dec 31, 2024", model).text == "31. Dezember 2024"
    assert "31. Dezember 2024" not in asked


def test_where_one_stand_in_gives_nothing_but_the_span_another_is_tried():
    translation = translated("Loading %d now", lambda text: "XA" if "XA" in text else text.lower())

    assert (translation.text, translation.warnings) == ("Loading %d now", ())


@pytest.mark.parametrize(
    ("text", "said", "expected"),
    [
        ("Save as...", "Speichern als", "Speichern als..."),
        ("Buy {it}!!!", "kauf XA.", "Kauf {it}!!!"),
        ("He said so--", "Er sagte es -", "Er sagte es--"),
    ],
)
def test_runs_of_punctuation_come_back_as_they_were(text, said, expected):
    assert translated(text, lambda _: said).text == expected


@pytest.mark.parametrize(
    ("text", "is_untranslated"),
    [
        ("{n, plural, one {# cat} other {# cats}}", True),
        ("You have {n, plural, =0 {no cats} other {{n} cats}} here", True),
        ("{who, select, female {sie} other {{name}}} is here", True),
        ("{n, plural, one {1} other {#}} is here", False),
        ("{n, number, integer} of {total} is here", False),
    ],
)
def test_an_icu_message_with_words_in_its_branches_has_a_warning(text, is_untranslated):
    translation = translated(text, str.upper)

    kinds = [warning.kind for warning in translation.warnings]
    assert kinds == [WarningKind.NOT_TRANSLATED] * is_untranslated


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        ("<b>red house</b><i>690 pixels</i>", "<b>RED HOUSE</b><i>690 PIXELS</i>"),
        ("<span>Price</span><span>Size</span>", "<span>PRICE</span><span>SIZE</span>"),
        ("<a><b>der Hafen</b></a><a>Mehr</a>", "<a><b>DER HAFEN</b></a><a>MEHR</a>"),
    ],
)
def test_elements_side_by_side_whose_words_are_apart_are_segments(html, expected):
    found = translated(html, text_format=TextFormat.HTML)

    assert found.text == expected
    assert len(found.segments) == 2


ONE, TWO = "\x90", "\x91"


class SentinelTokenizer(CharacterTokenizer):
    """Has two sentinels; one that stands in an unmarked text is a blank, and one that is written there is nothing."""

    sentinels: tuple[str, ...] = (ONE, TWO)
    is_marked = False

    def marked(self) -> Self:
        marked = type(self)()
        marked.is_marked = True
        return marked

    def encode(self, text: str) -> list[int]:
        return super().encode(text if self.is_marked else text.replace(ONE, " ").replace(TWO, " "))

    def decode(self, ids: Sequence[int]) -> str:
        text = super().decode(ids)
        return text if self.is_marked else text.replace(ONE, "").replace(TWO, "")


def with_sentinels(text: str, model: Model) -> tuple[Translation, list[str]]:
    """Return the translation by a model that has sentinels, and the texts that it saw."""
    seen: list[str] = []

    def watched(shown: str) -> str:
        seen.append(shown)
        return model(shown)

    return translated(text, watched, tokenizer=SentinelTokenizer()), seen


def test_a_model_sees_sentinels_and_the_spans_come_back_in_their_place():
    model = {f"Dear {ONE}, see {TWO}.": f"Siehe {TWO}, lieber {ONE}."}.__getitem__

    translation, seen = with_sentinels("Dear {name}, see https://a.example/b.", model)

    assert seen == [f"Dear {ONE}, see {TWO}."]
    assert translation.text == "Siehe https://a.example/b, lieber {name}."


@pytest.mark.parametrize("wrong", ["Lieber, guten Tag.", f"Lieber {ONE} {ONE}.", f"Lieber {ONE} {TWO}."])
def test_a_sentinel_that_is_lost_doubled_or_made_up_leads_to_the_next_strategy(wrong):
    translation, seen = with_sentinels("Dear {name}, good day.", lambda text: wrong if ONE in text else "Lieber XA.")

    assert seen == [f"Dear {ONE}, good day.", "Dear XA, good day."]
    assert translation.text == "Lieber {name}."


def test_a_sentinel_in_the_text_of_a_caller_is_a_blank():
    with_span, without = f"Dear{TWO}{{name}}, good day.", f"Good{ONE}day."

    assert with_sentinels(with_span, lambda text: text)[1] == [f"Dear {ONE}, good day."]
    assert with_sentinels(without, lambda text: f"{TWO}{text}")[0].text == "Good day."
