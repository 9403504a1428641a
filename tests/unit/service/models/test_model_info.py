"""What a bundle says of its model, and how a request's options become search parameters and its texts token ids."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from model.bundle import Bundle
from model.config import EOS_ID
from model.manifest import DecodingDefaults, Variant
from service.engine.wire import FinishReason, Hypothesis, SearchParams
from service.errors import InvalidInput
from service.models.codec import TextCodec
from service.models.info import describe, search_params
from service.records import ModelInfo, Span, TranslateOptions
from tests.fakes.character_spans import CharacterSpans
from tests.fakes.echo_bundle import write_echo_bundle
from tests.fakes.model_info import model_info

DEFAULTS = TranslateOptions(
    beam_size=5, num_hypotheses=1, length_penalty=0.6, patience=2.0, max_target_tokens=50, use_shortlist=False
)
INFO = replace(model_info(default_options=DEFAULTS), max_beam_size=8)


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


@pytest.mark.parametrize(("precision", "expected"), [(None, True), ("fp32", True), ("int8", False)])
def test_what_graphs_can_do_is_that_of_the_precision(bundle, precision, expected):
    able = replace(bundle.manifest.variants["fp32"], scorer="fp32/scorer.onnx", repetition_penalty=True)
    able = replace(able, attention_weights=True)
    unable = replace(able, scorer="", repetition_penalty=False, attention_weights=False)

    def described(fp32: Variant) -> ModelInfo:
        return describe(replace(bundle, manifest=replace(bundle.manifest, variants={"fp32": fp32})), precision)

    assert (described(able).has_scorer, described(unable).has_scorer) == (expected, False)
    assert (described(able).has_repetition_penalty, described(unable).has_repetition_penalty) == (expected, False)
    assert (described(able).has_head_weights, described(unable).has_head_weights) == (expected, False)


class TestDefaults:
    def test_absent_options_take_the_model_s_defaults(self):
        assert search_params(INFO, TranslateOptions()) == SearchParams(
            beam_size=5, num_hypotheses=1, length_penalty=0.6, patience=2.0, max_target_tokens=50, use_shortlist=False
        )

    @pytest.mark.parametrize(
        ("option", "value"),
        [("beam_size", 1), ("num_hypotheses", 3), ("length_penalty", 0.0), ("patience", 0.5), ("max_target_tokens", 7)],
    )
    def test_given_option_wins_even_when_it_is_zero(self, option, value):
        defaults = search_params(INFO, TranslateOptions())

        params = search_params(INFO, TranslateOptions(**{option: value}))

        assert params == defaults._replace(**{option: value})


class TestRanges:
    @pytest.mark.parametrize(
        ("option", "value", "message"),
        [
            ("beam_size", 0, "is 0, from 1 to 8 is accepted"),
            ("beam_size", 9, "is 9, from 1 to 8 is accepted"),
            ("num_hypotheses", 6, "is 6, from 1 to 5 is accepted"),
            ("length_penalty", 5.099999904632568, "is 5.1, from 0.0 to 5.0 is accepted"),
            ("length_penalty", float("nan"), "is nan, from 0.0 to 5.0 is accepted"),
            ("patience", 0.09, "is 0.09, from 0.1 to 8.0 is accepted"),
            ("patience", float("inf"), "is inf, from 0.1 to 8.0 is accepted"),
            ("max_target_tokens", 51, "is 51, from 1 to 50 is accepted"),
        ],
    )
    def test_value_outside_its_range_is_named_with_the_range(self, option, value, message):
        with pytest.raises(InvalidInput) as error:
            search_params(INFO, TranslateOptions(**{option: value}))

        assert (str(error.value), error.value.field) == (f"options.{option} {message}", f"options.{option}")

    def test_hypotheses_must_fit_the_beam_that_was_asked_for(self):
        with pytest.raises(InvalidInput, match=r"num_hypotheses is 3, from 1 to 2 is accepted"):
            search_params(INFO, TranslateOptions(beam_size=2, num_hypotheses=3))

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


class TestDecode:
    def test_hypotheses_keep_order_score_and_reason_and_count_the_end(self, codec):
        ended = Hypothesis(token_ids=(65,), score=-0.5, finish_reason=FinishReason.END_OF_SENTENCE)
        cut = Hypothesis(token_ids=(65, 66), score=-1.5, finish_reason=FinishReason.LENGTH)

        texts = codec.decode((ended, cut))

        facts = [(item.text, item.score, item.finish_reason, item.target_tokens) for item in texts]
        assert facts == [("A", -0.5, FinishReason.END_OF_SENTENCE, 2), ("AB", -1.5, FinishReason.LENGTH, 2)]


class TestSpans:
    def test_tokens_come_with_their_places_in_the_text(self, tokenizer):
        codec = TextCodec(tokenizer, max_characters=20, max_source_tokens=10)

        ids, spans = codec.tokenize_with_spans(" ab")

        assert (ids, spans[-1]) == (codec.tokenize(" ab"), Span(3, 3))
        assert codec.decode_with_spans([97, 98]) == ("ab", [Span(0, 1), Span(1, 2)])

    def test_what_cannot_be_tokenised_is_the_caller_s_mistake_and_not_quoted(self, tokenizer):
        codec = TextCodec(tokenizer, max_characters=20, max_source_tokens=10)

        with pytest.raises(InvalidInput, match=r"cannot be split into tokens$"):
            codec.tokenize_with_spans("a~")
