"""The texts of one model in token ids, and its hypotheses as texts.

This module knows tokenizers, but no running engine and no server, so a server and `service.local` give the same
answers.
"""

from collections.abc import Sequence
from functools import cached_property

from model.spelling import Spellings
from model.tokenizer import SupportsTokens
from service.engine.wire import FinishReason, Hypothesis, SearchParams
from service.errors import InvalidInput, TooLong
from service.records import Span, TranslatedText
from service.text.protected_spans import Alphabet

_MOST_PAIRS = 256  # codecs that a model of several languages keeps


def untranslated(text: str) -> TranslatedText:
    """Return the hypothesis for a text without language, which the model never sees: the text itself."""
    return TranslatedText(text=text, score=0.0, finish_reason=FinishReason.END_OF_SENTENCE, target_tokens=0)


class TextCodec:
    """One model's texts in token ids; may be used from several threads at once.

    It does not know which text of a request it is given: `InvalidInput.at` completes its errors.
    """

    def __init__(self, tokenizer: SupportsTokens, *, max_characters: int, max_source_tokens: int) -> None:
        self._tokenizer = tokenizer
        self._max_characters = max_characters
        self.max_source_tokens = max_source_tokens
        self.target_prefix = tuple(tokenizer.target_prefix)  # what every translation begins with
        self.alphabet = Alphabet(self._read_back)
        self.sentinels = tokenizer.sentinels
        self._pairs: dict[tuple[str, str], TextCodec] = {}

    @cached_property
    def marked(self) -> "TextCodec":
        """The codec of texts in which `sentinels` are tokens that the model copies; they are no part of other texts."""
        return TextCodec(
            self._tokenizer.marked(), max_characters=self._max_characters, max_source_tokens=self.max_source_tokens
        )

    def between(self, source_language: str, target_language: str) -> "TextCodec":
        """The codec for texts of these languages, BCP 47, of a model of several."""
        pair = source_language, target_language
        if (found := self._pairs.get(pair)) is None:
            if len(self._pairs) >= _MOST_PAIRS:
                self._pairs.clear()
            limits = {"max_characters": self._max_characters, "max_source_tokens": self.max_source_tokens}
            found = self._pairs[pair] = TextCodec(self._tokenizer.between(*pair), **limits)
        return found

    def check(self, text: str) -> None:
        """Raise InvalidInput if a text has more characters than any may have, or is no Unicode text."""
        if len(text) > self._max_characters:
            raise too_long(len(text), "characters", self._max_characters)
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise _unreadable() from error

    def encode(self, text: str) -> list[int]:
        """Source ids of a text that has to fit as it is, end-of-sentence last; empty for a blank text.

        Raises:
            InvalidInput: the text is too long, or no Unicode text; says its length and the limit.
        """
        self.check(text)  # a text that is too long is not worth tokenising
        ids = self.tokenize(text)
        if len(ids) > self.max_source_tokens:
            raise too_long(len(ids), "tokens", self.max_source_tokens)
        return ids

    def tokenize(self, text: str) -> list[int]:
        """Source ids of a text of any length, end-of-sentence last; empty for a blank text.

        Raises:
            InvalidInput: the text is no Unicode text.
        """
        try:
            return self._tokenizer.encode(text)
        except (RuntimeError, ValueError) as error:  # SentencePiece on strings that are no Unicode text
            raise _unreadable() from error

    def tokenize_with_spans(self, text: str) -> tuple[list[int], list[Span]]:
        """As `tokenize`, with the place of each token in the text; that of end-of-sentence is empty."""
        try:
            ids, spans = self._tokenizer.encode_with_spans(text)
        except (RuntimeError, ValueError) as error:
            raise _unreadable() from error
        return ids, list(map(Span._make, spans))

    def target_with_spans(self, text: str) -> tuple[list[int], list[Span]]:
        """Target ids of a text without end-of-sentence, with the place of each token in the text, of a prefix empty.

        Raises:
            InvalidInput: the text is no Unicode text.
        """
        try:
            ids, spans = self._tokenizer.encode_target_with_spans(text)
        except (RuntimeError, ValueError) as error:
            raise _unreadable() from error
        begin = self.target_prefix
        return [*begin, *ids], [*[Span(0, 0)] * len(begin), *map(Span._make, spans)]

    def spellings(self, phrases: Sequence[str]) -> Spellings:
        """The ways in which tokens spell phrases.

        Raises:
            InvalidInput: one is no Unicode text.
        """
        try:
            return self._tokenizer.spellings(phrases)
        except (RuntimeError, ValueError) as error:
            field = "options.suppressed_phrases"
            raise InvalidInput(f"{field} cannot be split into tokens", field=field) from error

    def prefix_ids(self, prefix: str, params: SearchParams) -> tuple[int, ...]:
        """Token ids that every translation of a text begins with, without end-of-sentence.

        Raises:
            InvalidInput: the prefix is no Unicode text, or leaves no room for a translation.
        """
        limit = params.max_target_tokens - 1
        try:
            given = tuple(self._tokenizer.encode_target(prefix))
        except (RuntimeError, ValueError) as error:
            message = "has a target prefix that cannot be split into tokens"
            raise InvalidInput(message, field="target_prefixes", index=0) from error
        ids = self.target_prefix + given
        if given and len(ids) > limit:
            message = f"has a target prefix of {len(ids)} tokens, at most {limit} are accepted"
            raise InvalidInput(message, field="target_prefixes", index=0)
        return ids

    def decode_with_spans(self, token_ids: Sequence[int]) -> tuple[str, list[Span]]:
        """The text of a hypothesis, and the place of each token in it."""
        text, spans = self._tokenizer.decode_with_spans(token_ids)
        return text, list(map(Span._make, spans))

    def _read_back(self, character: str) -> str | None:
        try:
            return self._tokenizer.read_back(character)
        except (RuntimeError, ValueError) as error:
            raise _unreadable() from error

    def decode(self, hypotheses: Sequence[Hypothesis]) -> tuple[TranslatedText, ...]:
        """The hypotheses as text, in their order."""
        return tuple(map(self._to_text, hypotheses))

    def _to_text(self, hypothesis: Hypothesis) -> TranslatedText:
        is_ended = hypothesis.finish_reason is FinishReason.END_OF_SENTENCE
        return TranslatedText(
            text=self._tokenizer.decode(hypothesis.token_ids),
            score=hypothesis.score,
            finish_reason=hypothesis.finish_reason,
            target_tokens=len(hypothesis.token_ids) + is_ended,
        )


def too_long(length: int, unit: str, limit: int, field: str = "texts") -> TooLong:
    """Return the error of a text that has so many characters or tokens; `InvalidInput.at` says which text it is."""
    return TooLong(f"has {length} {unit}, at most {limit} are accepted", field=field, index=0)


def _unreadable() -> InvalidInput:
    return InvalidInput("cannot be split into tokens", field="texts", index=0)
