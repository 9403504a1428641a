"""What a bundle says of its model, and how a request's options become search parameters and its texts token ids."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from model.bundle import Bundle
from model.config import EOS_ID
from model.manifest import DecodingDefaults
from service.engine.wire import SearchParams
from service.errors import InvalidInput
from service.models.codec import TextCodec
from service.models.info import describe, search_params
from service.records import TranslateOptions
from tests.fakes.character_spans import CharacterSpans
from tests.fakes.echo_bundle import write_echo_bundle
from tests.fakes.model_info import model_info
from tests.fakes.steered_jobs import suppressing

DEFAULTS = TranslateOptions(
    beam_size=5, num_hypotheses=1, length_penalty=0.6, patience=2.0, max_target_tokens=50, use_shortlist=False
)
INFO = replace(model_info(default_options=DEFAULTS), max_beam_size=8, has_repetition_penalty=True)
PLAIN = search_params(INFO, TranslateOptions())
DRAWN = {"beam_size": 1, "sampling_top_k": 5}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory) -> Bundle:
    return Bundle.load(write_echo_bundle(tmp_path_factory.mktemp("bundles") / "echo"))


def test_a_bundle_describes_itself(bundle):
    info = describe(bundle)

    assert (info.name, info.version, info.precision, info.device) == ("echo", "1.2.3", "fp32", "cpu")
    assert (info.source_language, info.target_language, info.max_source_tokens) == ("en", "de", 512)
    assert info.default_options == TranslateOptions(
        beam_size=2,
        num_hypotheses=1,
        length_penalty=1.0,
        patience=1.0,
        max_target_tokens=256,
        use_shortlist=False,
        allow_smaller_beam=False,
        stop_repetition=True,
    )


def test_precision_and_largest_beam_are_those_that_are_asked_for(bundle):
    wide = replace(bundle, manifest=replace(bundle.manifest, decoding=DecodingDefaults(beam_size=40)))

    info = describe(wide, "int8", max_beam_size=7)

    assert (info.precision, info.max_beam_size, info.default_options.beam_size) == ("int8", 7, 7)


class TestRanges:
    def test_shortlist_is_for_models_that_have_one(self):
        asked = TranslateOptions(use_shortlist=True)

        assert search_params(replace(INFO, has_shortlist=True), asked).use_shortlist
        with pytest.raises(InvalidInput, match=r"use_shortlist is true, and the model has no shortlist") as error:
            search_params(INFO, asked)
        assert error.value.field == "options.use_shortlist"


class Letters(CharacterSpans):
    """Refuses "~" as SentencePiece does lone surrogates; remembers what it was given."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def encode(self, text: str) -> list[int]:
        self.seen.append(text)
        if "~" in text:
            raise RuntimeError("a message that quotes the text")
        return [*map(ord, text), EOS_ID] if text.strip() else []

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(map(chr, ids))


@pytest.fixture
def tokenizer() -> Letters:
    return Letters()


@pytest.fixture
def codec(tokenizer) -> TextCodec:
    return TextCodec(tokenizer, max_characters=20, max_source_tokens=8)


class TestEncode:
    @pytest.mark.parametrize("text", ["ab", "x" * 7, " " * 20], ids=["short", "most tokens", "most characters"])
    def test_text_becomes_ids_that_end_the_sentence_and_a_blank_one_has_none(self, codec, text):
        assert codec.encode(text) == ([*map(ord, text), EOS_ID] if text.strip() else [])

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("x" * 21, "texts[7] has 21 characters, at most 20 are accepted"),
            (" " * 21, "texts[7] has 21 characters, at most 20 are accepted"),
            ("x" * 8, "texts[7] has 9 tokens, at most 8 are accepted"),
            ("~", "texts[7] cannot be split into tokens"),
        ],
    )
    def test_bad_text_is_named_and_one_of_too_many_characters_is_never_tokenised(self, codec, tokenizer, text, message):
        with pytest.raises(InvalidInput) as error:
            codec.encode(text)

        assert (str(error.value.at(7)), error.value.field) == (message, "texts[7]")
        assert tokenizer.seen == ([text] if len(text) <= 20 else [])


@pytest.mark.parametrize(
    "options",
    [
        {"beam_size": 1},
        {"num_hypotheses": 3},
        {"length_penalty": 0.0},
        {"patience": 0.5},
        {"max_target_tokens": 7},
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
        ({"beam_size": 0}, "beam_size", "is 0, from 1 to 8 is accepted"),
        ({"beam_size": 9}, "beam_size", "is 9, from 1 to 8 is accepted"),
        ({"num_hypotheses": 6}, "num_hypotheses", "is 6, from 1 to 5 is accepted"),
        ({"beam_size": 2, "num_hypotheses": 3}, "num_hypotheses", "is 3, from 1 to 2 is accepted"),
        ({"length_penalty": 5.099999904632568}, "length_penalty", "is 5.1, from 0.0 to 5.0 is accepted"),
        ({"length_penalty": float("nan")}, "length_penalty", "is nan, from 0.0 to 5.0 is accepted"),
        ({"patience": 0.09}, "patience", "is 0.09, from 0.1 to 8.0 is accepted"),
        ({"patience": float("inf")}, "patience", "is inf, from 0.1 to 8.0 is accepted"),
        ({"max_target_tokens": 51}, "max_target_tokens", "is 51, from 1 to 50 is accepted"),
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
