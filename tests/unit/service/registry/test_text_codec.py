"""One text to source ids and hypotheses back to text, with a tokenizer of one token a character."""

from collections.abc import Sequence

import pytest

from model.config import EOS_ID
from service.engine.job import FinishReason, Hypothesis
from service.errors import InvalidInput
from service.registry.text_codec import TextCodec


class Letters:
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
        assert codec.encode(text, 0) == ([*map(ord, text), EOS_ID] if text.strip() else [])

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
            codec.encode(text, 7)

        assert (str(error.value), error.value.field) == (message, "texts[7]")
        assert tokenizer.seen == ([text] if len(text) <= 20 else [])


class TestDecode:
    def test_hypotheses_keep_order_score_and_reason_and_count_the_end(self, codec):
        ended = Hypothesis(token_ids=(65,), score=-0.5, finish_reason=FinishReason.END_OF_SENTENCE)
        cut = Hypothesis(token_ids=(65, 66), score=-1.5, finish_reason=FinishReason.LENGTH)

        texts = codec.decode((ended, cut))

        facts = [(item.text, item.score, item.finish_reason, item.target_tokens) for item in texts]
        assert facts == [("A", -0.5, FinishReason.END_OF_SENTENCE, 2), ("AB", -1.5, FinishReason.LENGTH, 2)]
