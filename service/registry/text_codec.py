"""One text to source ids, and hypotheses back to text: the limits on a text, and what a blank one gives.

Knows a tokenizer and two limits; neither requests nor the engine that stands between source and hypotheses.
"""

from collections.abc import Sequence
from typing import Protocol

from service.engine.job import FinishReason, Hypothesis
from service.errors import InvalidInput, TooLong
from service.records import TranslatedText, Translation

# What becomes of a text without tokens: one empty hypothesis that is certain, and the model never runs.
BLANK_TRANSLATION = Translation(
    hypotheses=(TranslatedText(text="", score=0.0, finish_reason=FinishReason.END_OF_SENTENCE, target_tokens=0),)
)


class SupportsTokens(Protocol):
    """What a codec needs of `model.tokenizer.Tokenizer`."""

    def encode(self, text: str) -> list[int]:
        """Token ids, end-of-sentence last; empty for blank text."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Text of token ids."""
        ...


class TextCodec:
    """One model's texts in token ids; may be used from several threads at once."""

    def __init__(self, tokenizer: SupportsTokens, *, max_characters: int, max_source_tokens: int) -> None:
        self._tokenizer = tokenizer
        self._max_characters = max_characters
        self._max_source_tokens = max_source_tokens

    def encode(self, text: str, index: int) -> list[int]:
        """Source ids, end-of-sentence last; empty for a blank text, whose translation is `BLANK_TRANSLATION`.

        Args:
            index: the text's place among those it came with; only for the error.

        Raises:
            InvalidInput: the text is too long, or no Unicode text; says its length and the limit.
        """
        if len(text) > self._max_characters:  # not worth tokenising
            raise _too_long(index, len(text), "characters", self._max_characters)
        try:
            ids = self._tokenizer.encode(text)
        except (RuntimeError, ValueError) as error:  # SentencePiece on strings that are no Unicode text
            raise InvalidInput("cannot be split into tokens", field=f"texts[{index}]", index=index) from error
        if len(ids) > self._max_source_tokens:
            raise _too_long(index, len(ids), "tokens", self._max_source_tokens)
        return ids

    def decode(self, hypotheses: Sequence[Hypothesis]) -> tuple[TranslatedText, ...]:
        """The hypotheses as text, in their order."""
        return tuple(self._to_text(hypothesis) for hypothesis in hypotheses)

    def _to_text(self, hypothesis: Hypothesis) -> TranslatedText:
        is_ended = hypothesis.finish_reason is FinishReason.END_OF_SENTENCE
        return TranslatedText(
            text=self._tokenizer.decode(hypothesis.token_ids),
            score=hypothesis.score,
            finish_reason=hypothesis.finish_reason,
            target_tokens=len(hypothesis.token_ids) + is_ended,
        )


def _too_long(index: int, length: int, unit: str, limit: int) -> TooLong:
    message = f"has {length} {unit}, at most {limit} are accepted"
    return TooLong(message, field=f"texts[{index}]", index=index)
