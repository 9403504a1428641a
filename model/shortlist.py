"""Lexical shortlist: the few target tokens that the translation of a source sentence may use.

    always      allowed in every translation: end-of-sentence, unknown, punctuation, digits, frequent tokens
    entries     for each source token, the target tokens that translate it, from one offset to the next

A decoder step on a large vocabulary is cheap where it scores only these (L'Hostis et al. 2016). Knows ids and one
file; `model/tools/learn_shortlist.py` learns them from parallel text.  Axis: V vocabulary.

The file, little-endian, no compression, nothing that could run code:

    8 bytes         b"SHRTLIST"
    uint32 x 4      format version (1), vocabulary size V, number of always, number of entries
    uint32 x V + 1  offsets
    id x always     ascending
    id x entries    ascending within a source token

An id is a uint16 where V is at most 65,536, else a uint32.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO, Self

import numpy as np
from numpy.typing import NDArray

from model.config import EOS_ID
from model.files import write_whole

SHORTLIST_NAME = "shortlist.csr"  # in a bundle: compressed sparse rows
FORMAT_VERSION = 1

_MAGIC = b"SHRTLIST"
_HEADER = np.dtype(
    [("magic", "S8"), ("version", "<u4"), ("vocab_size", "<u4"), ("num_always", "<u4"), ("num_entries", "<u4")]
)
_OFFSET = np.dtype("<u4")

Ids = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Shortlist:
    """Candidates by source token.

    Raises:
        ValueError: an id is outside the vocabulary, an order is wrong, or no translation could end.
    """

    vocab_size: int
    always: Ids  # [always], ascending
    offsets: Ids  # [V + 1]
    entries: Ids  # [entries], ascending within a source token
    end_id: int = EOS_ID  # end-of-sentence, one of `always`
    _rows: list[Ids] = field(init=False, repr=False)  # views of the entries, one for each source token

    def __post_init__(self) -> None:
        self._check()
        rows = [self.entries[start:end] for start, end in pairwise(self.offsets.tolist())]
        object.__setattr__(self, "_rows", rows)

    @classmethod
    def from_links(cls, vocab_size: int, always: Ids, sources: Ids, targets: Ids, end_id: int = EOS_ID) -> Self:
        """Return a shortlist in which source token `sources[i]` may become target token `targets[i]`, in any order."""
        always = np.unique(always)
        links = np.unique((sources * vocab_size + targets)[~np.isin(targets, always)])
        offsets = np.searchsorted(links, np.arange(vocab_size + 1) * vocab_size)
        return cls(vocab_size, always, offsets, links % vocab_size, end_id)

    def candidates(self, source_ids: Sequence[int]) -> Ids:
        """Return the target tokens that a translation of these source tokens may use, ascending, each once."""
        return np.union1d(self.always, self.own_candidates(source_ids))

    def own_candidates(self, source_ids: Sequence[int]) -> Ids:
        """Return those of `candidates` that are not allowed in every translation."""
        allowed = np.zeros(self.vocab_size, dtype=np.bool_)
        for token in source_ids:
            allowed[self._rows[token]] = True
        allowed[self.always] = False
        return allowed.nonzero()[0]

    def save(self, path: Path) -> None:
        """Write the file that `load` reads; a kill leaves no file."""
        header = np.array([(_MAGIC, FORMAT_VERSION, self.vocab_size, len(self.always), len(self.entries))], _HEADER)
        id_type = _id_type(self.vocab_size)
        parts = (header, self.offsets.astype(_OFFSET), self.always.astype(id_type), self.entries.astype(id_type))
        write_whole(path, b"".join(part.tobytes() for part in parts))

    @classmethod
    def load(cls, path: Path, vocab_size: int, end_id: int = EOS_ID) -> Self:
        """Read a shortlist and check every number of it.

        Raises:
            ValueError: the file is missing, is no shortlist, or is one for another vocabulary.
        """
        if not path.is_file():
            raise ValueError(f"shortlist {path} does not exist")
        try:
            with path.open("rb") as stream:
                return cls._read(stream, path.stat().st_size, vocab_size, end_id)
        except ValueError as error:
            raise ValueError(f"shortlist {path}: {error}") from error

    @classmethod
    def _read(cls, stream: BinaryIO, num_bytes: int, vocab_size: int, end_id: int) -> Self:
        if num_bytes < _HEADER.itemsize:
            raise ValueError(f"has {num_bytes} bytes, the header alone has {_HEADER.itemsize}")
        header = np.frombuffer(stream.read(_HEADER.itemsize), _HEADER)[0]
        if header["magic"] != _MAGIC:
            raise ValueError(f"begins with {bytes(header['magic'])!r}, a shortlist begins with {_MAGIC!r}")
        if header["version"] != FORMAT_VERSION:
            found = header["version"]
            raise ValueError(f"has format version {found}, this program reads {FORMAT_VERSION}; learn it again")
        if header["vocab_size"] != vocab_size:
            raise ValueError(f"is for a vocabulary of {header['vocab_size']}, the model's has {vocab_size}")
        num_always, num_entries = int(header["num_always"]), int(header["num_entries"])
        id_type = _id_type(vocab_size)
        num_ids = num_always + num_entries
        expected = _HEADER.itemsize + (vocab_size + 1) * _OFFSET.itemsize + num_ids * id_type.itemsize
        if num_bytes != expected:  # before what may be a large file is read
            raise ValueError(f"has {num_bytes} bytes, its header asks for {expected}")
        body = stream.read()
        offsets = np.frombuffer(body, _OFFSET, vocab_size + 1)
        ids = np.frombuffer(body, id_type, num_ids, offsets.nbytes).astype(np.int64)
        return cls(vocab_size, ids[:num_always], offsets.astype(np.int64), ids[num_always:], end_id)

    def check_targets(self, num_target_tokens: int) -> None:
        """Raise ValueError if a candidate is no target token; a model may have more source tokens."""
        greatest = max((int(ids.max()) for ids in (self.always, self.entries) if len(ids)), default=0)
        if greatest >= num_target_tokens:
            raise ValueError(
                f"the shortlist has the target token {greatest}, the model has {num_target_tokens} of them"
            )

    def _check(self) -> None:
        vocab_size, offsets, entries = self.vocab_size, self.offsets, self.entries
        for name, ids in (("always allowed", self.always), ("candidates", entries)):
            if len(ids) and not 0 <= ids.min() <= ids.max() < vocab_size:
                raise ValueError(f"{name} has ids from {ids.min()} to {ids.max()}, they must be below {vocab_size}")
        if len(offsets) != vocab_size + 1 or offsets[0] != 0 or offsets[-1] != len(entries):
            raise ValueError(f"offsets do not run from 0 to the {len(entries)} candidates in {vocab_size + 1} numbers")
        if (np.diff(offsets) < 0).any():
            raise ValueError("an offset is below the one before it")
        sources = np.repeat(np.arange(vocab_size), np.diff(offsets))
        if (np.diff(sources * vocab_size + entries) <= 0).any() or (np.diff(self.always) <= 0).any():
            raise ValueError("ids are not in ascending order, each once")
        if self.end_id not in self.always:
            raise ValueError(f"end-of-sentence (id {self.end_id}) is not always allowed: no translation could end")


def _id_type(vocab_size: int) -> np.dtype[np.unsignedinteger]:
    return np.dtype("<u2") if vocab_size <= 1 << 16 else np.dtype("<u4")
