"""Tokenizers of foreign models, whose ids stand in vocabulary files beside or without SentencePiece models.

Source and target may have vocabularies of their own.  What a source begins and ends with is the model's affair and
given as tokens; text that looks like such a token stays text.  Same methods as `model/tokenizer.py`.
"""

import json
import re
from collections.abc import Iterable, Sequence
from copy import copy
from pathlib import Path
from typing import Self

from model.manifest import SOURCE_LANGUAGE, TARGET_LANGUAGE, TokenizerFiles
from model.pieces import CONTROL_TO_SPACE, SentencePieces, TokenSpan, normalize_text
from model.spelling import WORD_MARK, Speller, Spellings

_UNKNOWN_SIGN = " \u2047 "  # what SentencePiece writes for an unknown token
# Tokens that tell a model what to do: of sentences, and of languages, as >>de<< (OPUS-MT) or __de__ (M2M100).
_CONTROLS = frozenset({"<s>", "</s>", "<unk>", "<pad>", "<blank>", "<mask>"})
_LANGUAGE = re.compile(r">>[^<>]+<<|__[a-z]{2,3}(?:_[A-Za-z]+)?__")


class Vocabulary:
    """The tokens of one side by id, and which of them no text may become; of equal tokens, the first has the id."""

    def __init__(self, tokens: Sequence[str], *, unknown: str, controls: Iterable[str] = ()) -> None:
        """Take the tokens.

        Args:
            tokens: by id.
            unknown: the token of what is no other; one of `tokens`.
            controls: further tokens that no text becomes.

        Raises:
            ValueError: the unknown token is none of the tokens.
        """
        self.tokens = list(tokens)
        self._ids: dict[str, int] = {}
        for token, name in enumerate(self.tokens):
            self._ids.setdefault(name, token)
        self.unknown_id = self.id(unknown)
        self._controls = {*_CONTROLS, *controls, unknown}
        self._speller: Speller | None = None  # until a phrase is spelled

    @classmethod
    def load(cls, path: Path, *, unknown: str, controls: Iterable[str] = ()) -> Self:
        """Read a JSON list of tokens.

        Raises:
            ValueError: the file is missing or something else.
        """
        if not path.is_file():
            raise ValueError(f"vocabulary {path} does not exist")
        try:
            tokens = json.loads(path.read_text(encoding="utf-8"))
        except (ValueError, RecursionError) as error:
            raise ValueError(f"vocabulary {path} is no JSON: {error}") from error
        if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
            raise ValueError(f"vocabulary {path} is no list of tokens")
        try:
            return cls(tokens, unknown=unknown, controls=controls)
        except ValueError as error:
            raise ValueError(f"vocabulary {path}: {error}") from error

    def __len__(self) -> int:
        return len(self.tokens)

    def id(self, token: str) -> int:
        """Return the id of a token.

        Raises:
            ValueError: there is no such token.
        """
        if token not in self._ids:
            raise ValueError(f"there is no token {token!r} among {len(self.tokens)}")
        return self._ids[token]

    def text_ids(self, tokens: Iterable[str]) -> list[int]:
        """Return the ids of tokens that come from text: what looks like a control token is unknown."""
        return [self.unknown_id if self.is_control(name) else self._ids.get(name, self.unknown_id) for name in tokens]

    def is_control(self, token: str) -> bool:
        """Return whether the token is no text."""
        return token in self._controls or _LANGUAGE.fullmatch(token) is not None

    def speller(self, mark: str) -> Speller:
        """Return what spells phrases with the tokens that are text, each behind the mark."""
        if self._speller is None:
            self._speller = Speller(["" if self.is_control(name) else mark + name for name in self.tokens])
        return self._speller


class Vocabularies:
    """The vocabularies of both sides, and the tokens around a source and before a target."""

    def __init__(self, directory: Path, files: TokenizerFiles) -> None:
        """Read the files; of a model of several languages, the first ones are those of all texts.

        Raises:
            ValueError: one is missing or damaged, or has no token that the model needs.
        """
        controls = [*files.source_prefix, *files.source_suffix, *files.target_prefix, files.end]
        controls += [one.token for one in files.languages]
        self.source = Vocabulary.load(directory / files.source_vocabulary, unknown=files.unknown, controls=controls)
        self.target = self.source
        if files.target_vocabulary:
            target = directory / files.target_vocabulary
            self.target = Vocabulary.load(target, unknown=files.unknown, controls=controls)
        self._files = files
        first_source = next((one.token for one in files.languages if one.is_source), "")
        first_target = next((one.token for one in files.languages if one.is_target), "")
        self.prefix, self.suffix, self.target_prefix = self._around(first_source, first_target)

    def between(self, source_language: str, target_language: str) -> Self:
        """Return the same with the tokens of these languages."""
        if not self._files.languages:
            return self
        found, files = copy(self), self._files
        tokens = files.language(source_language).token, files.language(target_language).token
        found.prefix, found.suffix, found.target_prefix = self._around(*tokens)
        return found

    def _around(self, source: str, target: str) -> tuple[list[int], list[int], list[int]]:
        """Return the ids before a text, behind it, and before its translation, given the languages' tokens."""

        def ids(vocabulary: Vocabulary, tokens: Sequence[str]) -> list[int]:
            named = [{SOURCE_LANGUAGE: source, TARGET_LANGUAGE: target}.get(token, token) for token in tokens]
            return [vocabulary.id(token) for token in named if token]

        files = self._files
        return (
            ids(self.source, (*files.source_prompt, *files.source_prefix)),
            ids(self.source, files.source_suffix),
            ids(self.target, files.target_prefix),
        )

    def source_ids(self, tokens: Sequence[str]) -> list[int]:
        """Return the ids of a source as the model wants them; none for no tokens."""
        return [*self.prefix, *self.source.text_ids(tokens), *self.suffix] if tokens else []

    def source_spans(self, spans: Sequence[TokenSpan], length: int) -> list[TokenSpan]:
        """Return the places of `source_ids`, given those of the tokens; the tokens around them have empty ones."""
        if not spans:
            return []
        return [*[(0, 0)] * len(self.prefix), *spans, *[(length, length)] * len(self.suffix)]

    def shown(self, ids: Sequence[int]) -> list[str | None]:
        """Return the token of each target id, None where it is no text."""
        return [self._shown(int(token)) for token in ids]

    def spellings(self, phrases: Sequence[str], *, mark: str = "") -> Spellings:
        """Return all ways in which target tokens, each behind the mark, spell normalised phrases."""
        return self.target.speller(mark).spellings(phrases)

    def _shown(self, token: int) -> str | None:
        if token >= len(self.target):  # the decoder's start of some models is behind the vocabulary
            return None
        name = self.target.tokens[token]
        return None if self.target.is_control(name) and token != self.target.unknown_id else name


class _VocabularyTokenizer:
    """What the two share: vocabularies, and no sentinels."""

    sentinels: tuple[str, ...] = ()

    def __init__(self, directory: Path, files: TokenizerFiles) -> None:
        self._vocabularies = Vocabularies(directory, files)
        self.vocab_size, self.target_vocab_size = len(self._vocabularies.source), len(self._vocabularies.target)

    def marked(self) -> Self:
        """Return this tokenizer."""
        return self

    @property
    def target_prefix(self) -> list[int]:
        """What every translation begins with."""
        return self._vocabularies.target_prefix

    def between(self, source_language: str, target_language: str) -> Self:
        """Return the tokenizer for texts of these languages."""
        found = copy(self)
        found._vocabularies = self._vocabularies.between(source_language, target_language)  # noqa: SLF001 - its own
        return found


class PieceTokenizer(_VocabularyTokenizer):
    """SentencePiece models cut the text, vocabularies have the ids of the pieces."""

    def __init__(self, directory: Path, files: TokenizerFiles) -> None:
        """Read the files.

        Raises:
            ValueError: one is missing or damaged.
        """
        super().__init__(directory, files)
        self._source = SentencePieces.load(directory / files.source)
        self.unknown_id = self._vocabularies.source.unknown_id
        self._target = SentencePieces.load(directory / files.target) if files.target else self._source

    def encode(self, text: str) -> list[int]:
        """Return the source ids of one sentence as the model wants them; none for blank text."""
        return self._vocabularies.source_ids(self._source.encode(text))

    def encode_with_spans(self, text: str) -> tuple[list[int], list[TokenSpan]]:
        """Return `encode(text)` and where each token stands in `text`."""
        pieces, spans = self._source.encode_with_spans(text)
        return self._vocabularies.source_ids(pieces), self._vocabularies.source_spans(spans, len(text))

    def encode_target(self, text: str) -> list[int]:
        """Return the target ids of a text, without any token around it."""
        return self._vocabularies.target.text_ids(self._target.encode(text))

    def encode_target_with_spans(self, text: str) -> tuple[list[int], list[TokenSpan]]:
        """Return `encode_target(text)` and where each token stands in `text`."""
        pieces, spans = self._target.encode_with_spans(text)
        return self._vocabularies.target.text_ids(pieces), spans

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of target ids."""
        return self.decode_with_spans(ids)[0]

    def decode_with_spans(self, ids: Sequence[int]) -> tuple[str, list[TokenSpan]]:
        """Return `decode(ids)` and where each token stands there; tokens that are no text are empty."""
        shown = self._vocabularies.shown(ids)
        unknown = self._vocabularies.target.tokens[self._vocabularies.target.unknown_id]
        pieces = [self._target.unknown if name == unknown else name for name in shown if name is not None]
        text, found = self._target.decode_with_spans(pieces)
        places, at = iter(found), 0
        spans: list[TokenSpan] = []
        for name in shown:
            begin, end = (at, at) if name is None else next(places)
            spans.append((begin, end))
            at = end
        return text, spans

    def read_back(self, text: str) -> str | None:
        """Return what is left of a source text in tokens; None if a part of it is unknown."""
        pieces = self._source.encode(text)
        known = self._vocabularies.source.unknown_id not in self._vocabularies.source.text_ids(pieces)
        return self._source.decode_with_spans(pieces)[0] if known else None

    def spellings(self, phrases: Sequence[str]) -> Spellings:
        """Return all ways in which tokens spell phrases, after normalisation (`model/spelling.py`)."""
        return self._vocabularies.spellings([self._target.normalize(phrase) for phrase in phrases])


class SpaceTokenizer(_VocabularyTokenizer):
    """Tokens stand in the text, with spaces between them: models that come without their tokenizer."""

    def __init__(self, directory: Path, files: TokenizerFiles) -> None:
        """Read the files.

        Raises:
            ValueError: one is missing or damaged.
        """
        super().__init__(directory, files)
        self._characters = set("".join(self._vocabularies.source.tokens))

    def encode(self, text: str) -> list[int]:
        """Return the source ids of the tokens of a text as the model wants them; none for blank text."""
        return self._vocabularies.source_ids(normalize_text(text).split())

    def encode_with_spans(self, text: str) -> tuple[list[int], list[TokenSpan]]:
        """Return `encode(text)` and where each token stands in `text`, with the white space before it."""
        return self.encode(text), self._vocabularies.source_spans(_spans(text), len(text))

    def encode_target(self, text: str) -> list[int]:
        """Return the target ids of a text, without any token around it."""
        return self._vocabularies.target.text_ids(normalize_text(text).split())

    def encode_target_with_spans(self, text: str) -> tuple[list[int], list[TokenSpan]]:
        """Return `encode_target(text)` and where each token stands in `text`."""
        return self.encode_target(text), _spans(text)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the tokens of target ids, with spaces between them."""
        return self.decode_with_spans(ids)[0]

    def decode_with_spans(self, ids: Sequence[int]) -> tuple[str, list[TokenSpan]]:
        """Return `decode(ids)` and where each token stands there; tokens that are no text are empty."""
        unknown = self._vocabularies.target.tokens[self._vocabularies.target.unknown_id]
        text, spans = "", list[TokenSpan]()
        for name in self._vocabularies.shown(ids):
            begin = len(text)
            if name is not None:
                text += _UNKNOWN_SIGN if name == unknown else f" {name}" if text else name
            spans.append((begin, len(text)))
        return text, spans

    def read_back(self, text: str) -> str | None:
        """Return the text if the tokens have all its characters, otherwise None."""
        return text if set(normalize_text(text)) <= self._characters else None

    def spellings(self, phrases: Sequence[str]) -> Spellings:
        """Return the way in which tokens spell phrases."""
        return self._vocabularies.spellings([normalize_text(phrase) for phrase in phrases], mark=WORD_MARK)


def _spans(text: str) -> list[TokenSpan]:
    """Return where the tokens of a text stand, each with the white space before it."""
    blanks, spans, at = text.translate(CONTROL_TO_SPACE), list[TokenSpan](), 0
    for token in blanks.split():
        end = blanks.index(token, at) + len(token)
        spans.append((at, end))
        at = end
    return spans
