"""Text to token ids and back, with SentencePiece (Kudo & Richardson 2018): the tokenizer of the models trained here.

Knows the special ids and the policy for blank text; no model, no batch.  `load_tokenizer` opens any bundle's tokenizer.
"""

from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Protocol, Self

import sentencepiece

from model.config import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from model.files import writing
from model.manifest import TokenizerFiles, TokenizerKind
from model.pieces import (
    CONTROL_EXCEPT_SENTINELS,
    CONTROL_TO_SPACE,
    SENTINELS,
    TokenSpan,
    load_processor,
    normalize_text,
    user_defined_ids,
)
from model.spelling import WORD_MARK, Speller, Spellings
from model.vocabulary_tokenizers import PieceTokenizer, SpaceTokenizer

_SPECIAL_IDS = frozenset({PAD_ID, BOS_ID, EOS_ID})


class SupportsTokens(Protocol):
    """The tokenizer of a bundle, of whatever kind: source text to ids, and target ids to text."""

    sentinels: tuple[str, ...]  # characters that the tokenizer of `marked` reads as tokens of their own; empty: none

    def marked(self) -> "SupportsTokens":
        """Return the tokenizer of texts in which sentinels stand; for all others they are control characters."""
        ...

    @property
    def target_prefix(self) -> list[int]:
        """Target ids that every translation begins with."""
        ...

    def between(self, source_language: str, target_language: str) -> Self:
        """The tokenizer for texts of these languages, BCP 47, of a model of several."""
        ...

    def encode(self, text: str) -> list[int]:
        """Source ids as the model wants them; empty for blank text."""
        ...

    def encode_with_spans(self, text: str) -> tuple[list[int], list[TokenSpan]]:
        """Source ids as of `encode`, and the code points of the text that each covers."""
        ...

    def encode_target(self, text: str) -> list[int]:
        """Target ids without end-of-sentence."""
        ...

    def encode_target_with_spans(self, text: str) -> tuple[list[int], list[TokenSpan]]:
        """Target ids as of `encode_target`, and the code points of the text that each covers."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Text of target ids."""
        ...

    def decode_with_spans(self, ids: Sequence[int]) -> tuple[str, list[TokenSpan]]:
        """Text as of `decode`, and the code points of it that each id covers."""
        ...

    def read_back(self, text: str) -> str | None:
        """What is left of a source text in tokens; None if the model has no trained pieces for a part of it."""
        ...

    def spellings(self, phrases: Sequence[str]) -> Spellings:
        """The ways in which target tokens spell phrases."""
        ...


class Tokenizer:
    """A trained SentencePiece model with the project's special ids."""

    def __init__(self, processor: sentencepiece.SentencePieceProcessor, *, is_marked: bool = False) -> None:
        self._processor = processor
        self.vocab_size: int = processor.get_piece_size()
        self.target_vocab_size = self.vocab_size
        has_sentinels = processor.id_to_piece(self.vocab_size - 1) == SENTINELS[-1]  # they are the last pieces
        self.sentinels = SENTINELS if has_sentinels else ()
        self.sentinel_ids = tuple(range(self.vocab_size - len(self.sentinels), self.vocab_size))
        self._controls = CONTROL_EXCEPT_SENTINELS if is_marked else CONTROL_TO_SPACE
        self._hidden_ids = _SPECIAL_IDS if is_marked else _SPECIAL_IDS.union(self.sentinel_ids)
        self._speller: Speller | None = None  # until a phrase is spelled

    def marked(self) -> "Tokenizer":
        """Return the tokenizer of texts in which sentinels stand."""
        return Tokenizer(self._processor, is_marked=True)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Return the tokenizer stored in a `.spm` file.

        Raises:
            ValueError: the file is missing, no SentencePiece model, or has other special ids than the project's.
        """
        processor = load_processor(path)
        found = (processor.pad_id(), processor.unk_id(), processor.bos_id(), processor.eos_id())
        expected = (PAD_ID, UNK_ID, BOS_ID, EOS_ID)
        if found != expected:
            raise ValueError(f"tokenizer {path} has pad, unk, bos, eos = {found}, this project needs {expected}")
        return cls(processor)

    @property
    def target_prefix(self) -> list[int]:
        """What every translation begins with: nothing."""
        return []

    def between(self, source_language: str, target_language: str) -> Self:
        """Return itself: its models have one pair of languages."""
        del source_language, target_language
        return self

    def encode(self, text: str) -> list[int]:
        """Return the token ids of one sentence, end-of-sentence last; blank text gives an empty list."""
        ids: list[int] = self._processor.encode(normalize_text(text, self._controls), out_type=int)
        return [*ids, EOS_ID] if ids else []

    def encode_with_spans(self, text: str) -> tuple[list[int], list[TokenSpan]]:
        """Return `encode(text)` and where each token stands in `text`.

        A token that begins a word covers the white space before it too.  Where normalisation makes several tokens of
        one character, those but one are empty; so is end-of-sentence.
        """
        found = self._processor.encode(normalize_text(text, self._controls), return_type="offset_mapping")
        ids: list[int] = found["ids"]
        if not ids:
            return [], []
        blanks = text.translate(self._controls)  # as long as the text
        shift = len(blanks) - len(blanks.lstrip())
        spans = [(begin + shift, end + shift) for begin, end in found["offsets"]]
        return [*ids, EOS_ID], [*spans, (len(text), len(text))]

    def encode_target(self, text: str) -> list[int]:
        """Return the ids of a target text without end-of-sentence."""
        return self.encode(text)[:-1]

    def encode_target_with_spans(self, text: str) -> tuple[list[int], list[TokenSpan]]:
        """Return `encode_target(text)` and where each token stands in `text`."""
        ids, spans = self.encode_with_spans(text)
        return ids[:-1], spans[:-1]

    def sample(self, text: str, alpha: float) -> list[int]:
        """Encode a text in pieces drawn at random (subword regularisation, Kudo 2018, equation 8).

        `alpha` is the exponent of a segmentation's probability; the smaller, the more random.
        """
        pieces: list[int] = self._processor.encode(
            normalize_text(text, self._controls), out_type=int, enable_sampling=True, alpha=alpha, nbest_size=-1
        )
        return [*pieces, EOS_ID] if pieces else []

    @staticmethod
    def seed(seed: int) -> None:
        """Make the draws of `sample` in this thread repeatable within this process; 0 <= seed < 2**32."""
        sentencepiece.set_random_generator_seed(seed)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of token ids without padding, begin and end of sentence, and sentinels unless `marked`."""
        if not self._hidden_ids.isdisjoint(ids):
            ids = [token for token in ids if token not in self._hidden_ids]
        text: str = self._processor.decode(ids)
        return text

    def read_back(self, text: str) -> str | None:
        """Return what is left of a text in tokens; None if a part of it is unknown, in bytes, or an appended piece."""
        ids = self.encode(text)
        is_spelled = any(token == UNK_ID or self._processor.is_byte(token) for token in ids)
        return None if is_spelled or not self._appended_ids.isdisjoint(ids) else self.decode(ids)

    @cached_property
    def _appended_ids(self) -> frozenset[int]:
        """Pieces that a trained vocabulary was extended with: the model has seen few of them."""
        return user_defined_ids(self._processor) if self.sentinels else frozenset()

    def decode_with_spans(self, ids: Sequence[int]) -> tuple[str, list[TokenSpan]]:
        """Return `decode(ids)` and where each token stands there; those that are not shown are empty."""
        shown = [int(token) for token in ids if token not in self._hidden_ids]
        found = self._processor.decode(shown, return_type="offset_mapping")
        text: str = found["text"]
        offsets, at = iter(found["offsets"]), 0
        spans: list[TokenSpan] = []
        for token in ids:
            begin, end = (at, at) if token in self._hidden_ids else next(offsets)
            spans.append((begin, end))
            at = end
        return text, spans

    def spellings(self, phrases: Sequence[str]) -> Spellings:
        """Return all ways in which tokens spell phrases, after normalisation (`model/spelling.py`)."""
        if self._speller is None:
            pieces = self.pieces(range(self.vocab_size))
            byte_ids = filter(self._processor.is_byte, range(self.vocab_size))
            for token in (*_SPECIAL_IDS, *self.sentinel_ids, *byte_ids, UNK_ID):
                pieces[token] = ""
            self._speller = Speller(pieces)
        normalized = [self._processor.normalize(normalize_text(phrase)) for phrase in phrases]
        return self._speller.spellings([text.replace(WORD_MARK, " ") for text in normalized])

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Return the piece of each id; a word's first piece begins with U+2581."""
        return [self._processor.id_to_piece(int(token)) for token in ids]


def load_tokenizer(directory: Path, files: TokenizerFiles) -> Tokenizer | PieceTokenizer | SpaceTokenizer:
    """Return the tokenizer whose files lie in a directory.

    Raises:
        ValueError: a file is missing or damaged, or does not fit the others.
    """
    if files.kind is TokenizerKind.SHARED:
        tokenizer = Tokenizer.load(directory / files.source)
        if tokenizer.sentinel_ids != files.sentinels:
            raise ValueError(
                f"the manifest says that the sentinels are {list(files.sentinels)}, those of {files.source} are "
                f"{list(tokenizer.sentinel_ids)}: export the model again"
            )
        return tokenizer
    if files.kind is TokenizerKind.PIECES:
        return PieceTokenizer(directory, files)
    return SpaceTokenizer(directory, files)


def train_tokenizer(
    sentences: Iterable[str],
    path: Path,
    *,
    vocab_size: int,
    model_type: str = "unigram",
    character_coverage: float = 0.9998,
) -> Tokenizer:
    """Learn a tokenizer from sentences of both languages and write it to `path`, a `.spm` file.

    `vocab_size` includes the special ids; `model_type` is "unigram" (Kudo 2018) or "bpe" (Sennrich et al. 2016);
    `character_coverage` is the share of the text's characters that get a piece, the rarest others become "unknown".

    Raises:
        ValueError: so many pieces cannot be learnt from this text, or there is none.
    """
    try:
        with writing(path) as out:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(sentences),
                model_writer=out,
                vocab_size=vocab_size,
                model_type=model_type,
                character_coverage=character_coverage,
                byte_fallback=False,
                pad_id=PAD_ID,
                unk_id=UNK_ID,
                bos_id=BOS_ID,
                eos_id=EOS_ID,
                minloglevel=2,
            )
    except RuntimeError as error:
        raise ValueError(f"no tokenizer of {vocab_size} pieces can be learnt from this text: {error}") from error
    return Tokenizer.load(path)
