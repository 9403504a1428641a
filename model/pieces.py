"""A SentencePiece model (Kudo & Richardson 2018): text to pieces and back, with the place of each piece.

Knows pieces as strings and the policy for control characters; no ids, which are another's (`vocabulary_tokenizers.py`).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

import sentencepiece
from sentencepiece.sentencepiece_model_pb2 import ModelProto  # type: ignore[attr-defined]  # made when imported

from model.spelling import WORD_MARK

TokenSpan = tuple[int, int]  # code points begin <= i < end of a text
# Unicode category Cc is exactly C0, DEL and C1.
CONTROL_TO_SPACE = dict.fromkeys([*range(0x20), *range(0x7F, 0xA0)], " ")
# Pieces that stand in for spans of a text.  They are control characters: where `normalize_text` takes all of these out,
# no text has a sentinel.
SENTINELS = tuple(map(chr, range(0x90, 0xA0)))
CONTROL_EXCEPT_SENTINELS = {code: " " for code in CONTROL_TO_SPACE if chr(code) not in SENTINELS}


def normalize_text(text: str, controls: Mapping[int, str] = CONTROL_TO_SPACE) -> str:
    """Return the text with control characters (Unicode category Cc) as spaces and no blanks at its ends."""
    return (text if text.isprintable() else text.translate(controls)).strip()


def load_processor(path: Path) -> sentencepiece.SentencePieceProcessor:
    """Return the SentencePiece model in a file.

    Raises:
        ValueError: the file is missing, or no SentencePiece model.
    """
    if not path.is_file():
        raise ValueError(f"tokenizer {path} does not exist")
    processor = sentencepiece.SentencePieceProcessor()
    try:
        processor.load(str(path))
    except (RuntimeError, OSError) as error:
        raise ValueError(f"tokenizer {path} is not a SentencePiece model: {error}") from error
    return processor


def user_defined_ids(processor: sentencepiece.SentencePieceProcessor) -> frozenset[int]:
    """Return the ids of the pieces that no training chose."""
    pieces = ModelProto.FromString(processor.serialized_model_proto()).pieces
    return frozenset(token for token, entry in enumerate(pieces) if entry.type == entry.USER_DEFINED)


class SentencePieces:
    """One SentencePiece model."""

    def __init__(self, processor: sentencepiece.SentencePieceProcessor) -> None:
        self._processor = processor
        self.unknown: str = processor.id_to_piece(processor.unk_id())

    @classmethod
    def load(cls, path: Path) -> Self:
        """Return the model in a file.

        Raises:
            ValueError: the file is missing, or no SentencePiece model.
        """
        return cls(load_processor(path))

    def encode(self, text: str) -> list[str]:
        """Return the pieces of a text; characters that the model does not know are pieces, too."""
        pieces: list[str] = self._processor.encode(normalize_text(text), out_type=str)
        return pieces

    def encode_with_spans(self, text: str) -> tuple[list[str], list[TokenSpan]]:
        """Return `encode(text)` and where each piece stands in `text`; a word's first covers white space before."""
        found = self._processor.encode(normalize_text(text), return_type="offset_mapping")
        blanks = text.translate(CONTROL_TO_SPACE)  # as long as the text
        shift = len(blanks) - len(blanks.lstrip())
        return found["pieces"], [(begin + shift, end + shift) for begin, end in found["offsets"]]

    def decode_with_spans(self, pieces: Sequence[str]) -> tuple[str, list[TokenSpan]]:
        """Return the text of pieces, and where each stands there; pieces of other models are text as they are."""
        found = self._processor.decode(list(pieces), return_type="offset_mapping")
        text: str = found["text"].replace(WORD_MARK, " ")
        kept = text.lstrip()
        shift = len(text) - len(kept)
        return kept, [(max(0, begin - shift), max(0, end - shift)) for begin, end in found["offsets"]]

    def normalize(self, text: str) -> str:
        """Return the text as the model sees it, with spaces between words."""
        normalized: str = self._processor.normalize(normalize_text(text))
        return normalized.replace(WORD_MARK, " ")
