"""A text taken apart, translated by a model of the test's own, and put together again."""

from collections.abc import Callable

import pytest

from service.engine.job import FinishReason, Hypothesis, JobResult, SearchParams
from service.errors import InternalError, TooLong
from service.records import Segmentation, Translation, WarningKind
from service.registry.model_info import TextCodec
from service.translation.drafts import Settings
from service.translation.tasks import Reply, Rounds, Task
from service.translation.text_work import translate_text
from tests.fakes.manual_dispatcher import CharacterTokenizer

Model = Callable[[str], str]


def translated(
    text: str,
    model: Model = str.upper,
    *,
    segmentation: Segmentation = Segmentation.SENTENCE,
    max_tokens: int = 1_000,
    prefix: str = "",
) -> Translation:
    tokens = TextCodec(CharacterTokenizer(), max_characters=5_000, max_source_tokens=1_000)
    settings = Settings(
        codec=tokens,
        params=SearchParams(),
        source_language="en",
        target_language="de",
        segmentation=segmentation,
        max_tokens=max_tokens,
    )
    return run(translate_text(text, 0, settings, prefix), model)


def run(work: Rounds[Translation], model: Model) -> Translation:
    """Run the work with a model that answers each task by a function of its text."""
    try:
        tasks = next(work)
        while True:
            tasks = work.send([answer(task, model) for task in tasks])
    except StopIteration as stop:
        result: Translation = stop.value
        return result


def answer(task: Task, model: Model) -> Reply:
    target = model(CharacterTokenizer().decode(task.source_ids[:-1]))
    if target == "BROKEN":
        return Reply(InternalError("no numbers"), 4)
    ids = tuple(CharacterTokenizer().encode(target)[:-1])
    hypothesis = Hypothesis(ids, -0.5, FinishReason.END_OF_SENTENCE)
    return Reply(JobResult(0, (hypothesis,), 0.0, 0.0, 0.0, num_steps=2), 4)


@pytest.mark.parametrize(
    "text",
    [
        "one sentence",
        "One. Two!  Three?\n",
        "\n\n  - first\n  - second\n\n1. third\n\ttab\r\nend",
        "   ",
        "",
        "12 + 34 = 46",
        "Dr. Smith came. He sat.",
        "A long line of prose that was wrapped by hand and\ngoes on here. The next one.",
    ],
)
def test_layout_comes_back_as_it_is(text: str):
    assert translated(text, str.lower).text == text.lower()


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


def test_text_without_segmentation_goes_to_the_model_as_it_is():
    translation = translated("One.\n Two.", lambda text: f"<{text}>", segmentation=Segmentation.NONE)

    assert translation.text == "<One.\n Two.>"


def test_overlong_sentence_is_translated_in_pieces_and_says_so():
    text = "one two three, four five six; seven eight nine"

    translation = translated(text, lambda piece: f"<{piece}>", max_tokens=20)

    assert translation.text == "<one two three,> <four five six;> <seven eight nine>"
    assert [warning.kind for warning in translation.warnings] == [WarningKind.SPLIT]


def test_segment_without_numbers_is_the_error_of_its_text():
    translation = translated("One. Two.", lambda text: "BROKEN" if text == "Two." else text)

    assert isinstance(translation.error, InternalError)


def test_text_with_too_many_characters_never_reaches_the_model():
    assert isinstance(translated("x" * 5_001).error, TooLong)
