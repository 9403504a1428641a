"""Marian's lexical shortlists, binary (lex.s2t.bin) or text (lex.s2t), become ours.

Formats and choices are those of marian-dev's src/data/shortlist.cpp.  The binary file, little-endian:

    uint64 x 6      magic number, checksum of all that follows it, how many frequent target tokens are always allowed,
                    how many tokens were kept for a source token, number of offsets, number of ids
    uint64 offsets  one for each source token, and the end
    uint32 ids      target tokens that may translate a source token, from one offset to the next

A line of text has a target token, a source token and a probability.  Knows vocabularies; knows no model.
"""

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from export.importers.foreign import ForeignModelError, index_of
from export.importers.marian_weights import UNKNOWN
from model.config import ModelConfig
from model.shortlist import Ids, Shortlist

_MAGIC = 0xF11A48D5013417F5
_HEADER_BYTES = 48
_BLOCK = 1 << 16  # numbers of a checksum at a time
_UNALIGNED = b"NULL"  # in text: no token


@dataclass(frozen=True, slots=True)
class TextLimits:
    """What is taken from a shortlist that is text, with Marian's defaults."""

    num_first: int = 100  # the first target tokens, which are frequent, are always allowed
    num_best: int = 100  # target tokens of each source token
    threshold: float = 0.0  # of their probability


def read_marian_shortlist(
    path: Path, source: Sequence[str], target: Sequence[str], limits: TextLimits, config: ModelConfig
) -> Shortlist:
    """Read a shortlist.

    Args:
        path: the file.
        source, target: the vocabularies; with a single one, a source token may always become itself, as in Marian.
        limits: of a text; a binary file keeps to those that it was made with.
        config: of the model, which may have more tokens than the vocabularies.

    Raises:
        ForeignModelError: the file is damaged, or of another vocabulary.
    """
    with path.open("rb") as file:
        is_binary = file.read(8) == _MAGIC.to_bytes(8, "little")
    if is_binary:
        num_first, sources, targets = _read_binary(path, len(source), len(target))
    elif path.suffix == ".bin":
        raise ForeignModelError(f"{path} is no lexical shortlist: it does not begin with the number {_MAGIC:#x}")
    else:
        num_first, (sources, targets) = limits.num_first, _read_text(path, source, target, limits)
    if source == target:
        same = np.arange(len(source))
        sources, targets = np.append(sources, same), np.append(targets, same)
    always = np.append(np.arange(min(num_first, len(target))), config.eos_id)
    return Shortlist.from_links(config.largest_vocabulary, always, sources, targets, config.eos_id)


def _read_binary(path: Path, num_source: int, num_target: int) -> tuple[int, Ids, Ids]:
    size = path.stat().st_size
    if size < _HEADER_BYTES:
        raise ForeignModelError(f"{path} has {size} bytes, its header alone has {_HEADER_BYTES}")
    content = np.memmap(path, np.uint8, mode="r")
    _, checksum, num_first, _, num_offsets, num_ids = content[:_HEADER_BYTES].view("<u8").tolist()
    if num_offsets != num_source + 1:
        raise ForeignModelError(
            f"{path} has {num_offsets} offsets, a model with {num_source} source tokens needs one more"
        )
    begin = _HEADER_BYTES + 8 * num_offsets
    if size != begin + 4 * num_ids:
        raise ForeignModelError(f"{path} has {size} bytes, its header asks for {begin + 4 * num_ids}")
    if _checksum(content[16:]) != checksum:
        raise ForeignModelError(f"{path} is damaged: its checksum is another")
    stored = content[_HEADER_BYTES:begin].view("<u8")
    offsets = stored.astype(np.int64)
    ids = content[begin:].view("<u4").astype(np.int64)
    if offsets[0] != 0 or offsets[-1] != num_ids or (stored > num_ids).any() or (np.diff(offsets) < 0).any():
        raise ForeignModelError(f"{path} is damaged: its offsets do not run from 0 to {num_ids}")
    if ids.max(initial=0) >= num_target:
        raise ForeignModelError(f"{path} has target token {ids.max()}, the model has {num_target}")
    return num_first, np.repeat(np.arange(num_source), np.diff(offsets)), ids


def _checksum(content: NDArray[np.uint8]) -> int:
    """Return the hash of src/common/hash.h over whole words of 8 bytes; what is left at the end does not count."""
    words, seed = content[: len(content) // 8 * 8].view("<u8"), 0
    for first in range(0, len(words), _BLOCK):
        for word in words[first : first + _BLOCK].tolist():
            seed ^= (word + 0x9E3779B9 + (seed << 6) + (seed >> 2)) & 0xFFFFFFFFFFFFFFFF
    return seed


def _read_text(path: Path, source: Sequence[str], target: Sequence[str], limits: TextLimits) -> tuple[Ids, Ids]:
    """Return the links with the best probabilities; of equal ones, those of the last target tokens."""
    by_name = [{token.encode(): number for number, token in enumerate(tokens)} for tokens in (target, source)]
    unknown = [index_of(tokens, UNKNOWN, path) for tokens in (target, source)]
    ids, probabilities = (array("i"), array("i")), array("f")
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not (fields := line.split()):
                continue
            *tokens, probability = fields
            if len(tokens) != 2 or not 0 <= (value := _probability(probability)) < math.inf:
                raise ForeignModelError(
                    f"{path}, line {number}: {line[:60]!r} is no target token, source token and probability"
                )
            if _UNALIGNED in tokens or value <= limits.threshold:
                continue
            for known, name, other, found in zip(by_name, tokens, unknown, ids, strict=True):
                found.append(known.get(name, other))
            probabilities.append(value)
    targets, sources = (np.array(found, np.int64) for found in ids)
    order = np.lexsort((-targets, -np.array(probabilities), sources))
    order = order[np.sort(np.unique((sources * len(target) + targets)[order], return_index=True)[1])]  # each link once
    sources, targets = sources[order], targets[order]
    is_best = np.arange(len(sources)) - np.searchsorted(sources, sources) < limits.num_best
    return sources[is_best], targets[is_best]


def _probability(field: bytes) -> float:
    """Return a number, or NaN."""
    try:
        return float(field)
    except ValueError:
        return math.nan
