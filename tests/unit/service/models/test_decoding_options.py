"""Options that change logits or candidates: their ranges, and what does not go together."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from model.config import EOS_ID
from service.engine.wire import SearchParams
from service.errors import InvalidInput
from service.models.codec import TextCodec
from service.models.info import search_params
from service.records import TranslateOptions
from tests.fakes.character_spans import CharacterSpans
from tests.fakes.model_info import model_info
from tests.fakes.steered_jobs import suppressing

DEFAULTS = TranslateOptions(
    beam_size=5, num_hypotheses=1, length_penalty=0.6, patience=2.0, max_target_tokens=50, use_shortlist=False
)
INFO = replace(model_info(default_options=DEFAULTS), max_beam_size=8, has_repetition_penalty=True)
PLAIN = search_params(INFO, TranslateOptions())
DRAWN = {"beam_size": 1, "sampling_top_k": 5}


class Letters(CharacterSpans):
    """A token for each character; refuses "~"."""

    def encode(self, text: str) -> list[int]:
        if "~" in text:
            raise RuntimeError("a message that quotes the text")
        return [*map(ord, text), EOS_ID] if text.strip() else []

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(map(chr, ids))


@pytest.fixture
def codec() -> TextCodec:
    return TextCodec(Letters(), max_characters=20, max_source_tokens=8)


@pytest.mark.parametrize(
    "options",
    [
        {"repetition_penalty": 10.0},
        {"no_repeat_ngram_size": 32},
        {"min_target_tokens": 49},
        {"return_alternatives": True},
        {**DRAWN, "sampling_top_p": 0.25, "sampling_temperature": 0.05, "sampling_seed": 2**64 - 1},
    ],
    ids=str,
)
def test_given_options_are_taken(options):
    assert search_params(INFO, TranslateOptions(**options)) == PLAIN._replace(**options)


@pytest.mark.parametrize(
    ("options", "field", "message"),
    [
        ({"repetition_penalty": 0.9}, "repetition_penalty", "is 0.9, from 1 to 10 is accepted"),
        ({"repetition_penalty": float("nan")}, "repetition_penalty", "is nan, from 1 to 10 is accepted"),
        ({"no_repeat_ngram_size": 33}, "no_repeat_ngram_size", "is 33, from 0 to 32 is accepted"),
        ({"min_target_tokens": 50}, "min_target_tokens", "is 50, from 0 to 49 is accepted"),
        ({"min_target_tokens": 7, "max_target_tokens": 7}, "min_target_tokens", "is 7, from 0 to 6 is accepted"),
        ({"sampling_top_k": 1_001}, "sampling_top_k", "is 1001, from 0 to 1000 is accepted"),
        ({"sampling_top_k": 5}, "sampling_top_k", "is 5, and beam_size is 5: tokens are drawn with beam_size 1"),
        ({**DRAWN, "sampling_top_p": 0.0}, "sampling_top_p", "is 0, and more than 0 is accepted"),
        ({**DRAWN, "sampling_top_p": 1.5}, "sampling_top_p", "is 1.5, from 0 to 1 is accepted"),
        ({**DRAWN, "sampling_temperature": 0.01}, "sampling_temperature", "is 0.01, from 0.05 to 5 is accepted"),
        ({"sampling_seed": 7}, "sampling_seed", "is 7, and nothing is drawn without sampling_top_k, up to 1,000"),
        (
            {**DRAWN, "return_alternatives": True},
            "sampling_top_k",
            "is 5, and return_alternatives is true: alternatives are searched, not drawn",
        ),
        ({"suppressed_phrases": ("x",) * 65}, "suppressed_phrases", "has 65 phrases, at most 64 are accepted"),
        (
            {"suppressed_phrases": ("x", " ")},
            "suppressed_phrases[1]",
            "is blank, from 1 to 200 characters are accepted",
        ),
        (
            {"suppressed_phrases": ("x" * 201,)},
            "suppressed_phrases[0]",
            "has 201 characters, from 1 to 200 characters are accepted",
        ),
        ({"suppressed_phrases": ("~",)}, "suppressed_phrases", "cannot be split into tokens"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_cannot_be_is_named_with_its_value_and_the_reason(codec, options, field, message):
    with pytest.raises(InvalidInput) as error:
        search_params(INFO, TranslateOptions(**options), codec)

    assert (str(error.value), error.value.field) == (f"options.{field} {message}", f"options.{field}")


def test_a_repetition_penalty_is_for_models_whose_graphs_take_one():
    older = replace(INFO, has_repetition_penalty=False)

    assert search_params(older, TranslateOptions(repetition_penalty=1.0)) == PLAIN
    with pytest.raises(InvalidInput, match=r"repetition_penalty is 1.5, and the model was exported before .* again"):
        search_params(older, TranslateOptions(repetition_penalty=1.5))


def test_phrases_are_spelled_in_the_model_s_tokens(codec):
    params = search_params(INFO, TranslateOptions(suppressed_phrases=("ab", "c")), codec)

    assert params == PLAIN._replace(suppressed=suppressing([[97, 98], [99]]))


def test_a_prefix_leaves_room_for_a_translation(codec):
    params = SearchParams(max_target_tokens=4)

    assert codec.prefix_ids("abc", params) == (97, 98, 99)
    assert codec.prefix_ids(" ", params) == ()
    with pytest.raises(InvalidInput) as error:
        codec.prefix_ids("abcd", params)
    assert str(error.value.at(2)) == "texts[2] has a target prefix of 4 tokens, at most 3 are accepted"
    assert error.value.field == "target_prefixes[2]"
