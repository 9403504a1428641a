"""Where tokens stand, for tokenizers of tests with one token a character."""

from collections.abc import Sequence
from typing import Protocol, Self

from model.spelling import Spellings
from tests.fakes.steered_jobs import suppressing


class _Tokenizer(Protocol):
    def encode(self, text: str) -> list[int]: ...

    def decode(self, ids: Sequence[int]) -> str: ...


class CharacterSpans:
    """The places of `encode` and `decode`: the n-th token is the n-th character behind the leading white space."""

    sentinels: tuple[str, ...] = ()

    def marked(self) -> Self:
        return self

    @property
    def target_prefix(self) -> list[int]:
        return []

    def between(self, source_language: str, target_language: str) -> Self:
        return self

    def spellings(self: _Tokenizer, phrases: Sequence[str]) -> Spellings:
        return suppressing([self.encode(phrase)[:-1] for phrase in phrases])

    def encode_target(self: _Tokenizer, text: str) -> list[int]:
        return self.encode(text)[:-1]

    def read_back(self: _Tokenizer, text: str) -> str | None:
        return self.decode(self.encode(text)[:-1])

    def encode_with_spans(self: _Tokenizer, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        ids, begin = self.encode(text), len(text) - len(text.lstrip())
        spans = [(begin + index, begin + index + 1) for index in range(len(ids) - 1)]
        return ids, [*spans, (len(text), len(text))] if ids else []

    def encode_target_with_spans(self: _Tokenizer, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        ids, spans = CharacterSpans.encode_with_spans(self, text)
        return ids[:-1], spans[:-1]

    def decode_with_spans(self: _Tokenizer, ids: Sequence[int]) -> tuple[str, list[tuple[int, int]]]:
        return self.decode(ids), [(index, index + 1) for index in range(len(ids))]
