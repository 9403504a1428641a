"""Which target tokens translate which source tokens: IBM Model 1 (Brown et al. 1993), by EM over parallel text.

Pure NumPy on token ids.  A *link* is a source token and a target token of the same sentence pair; all links of the
same two ids are a *couple*.  The end-of-sentence token that ends every source is the model's null word, which explains
what no other source token does.  Takes about 5 bytes of memory for each link.
Axes: C couples, V vocabulary.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

_CHUNK_LINKS = 4_000_000  # links whose couples are found together

Track = Callable[[Sequence[Any], str], Iterable[Any]]  # items, what is done with them -> the items, with a progress bar
TokenPairs = Sequence[tuple[Sequence[int], Sequence[int]]]  # source and target ids of each sentence pair


class _Chunk(NamedTuple):
    """Links of some sentence pairs, target token after target token; its couples have numbers of their own."""

    keys: NDArray[np.int64]  # [own couples] see `Links.keys`; ascending
    couples: NDArray[np.int32]  # [links] which of its own couples each link is
    starts: NDArray[np.int64]  # [target tokens] first link of each
    targets: NDArray[np.int64]  # [target tokens] ids


@dataclass(frozen=True, slots=True)
class Links:
    """Every link of a parallel text."""

    vocab_size: int
    sources: NDArray[np.int64]  # [C] ids, ascending; the target ids of one source token ascend too
    targets: NDArray[np.int64]  # [C] ids
    chunks: tuple[_Chunk, ...]
    numbers: tuple[NDArray[np.int64], ...]  # for each chunk [own couples]: which of all couples

    @classmethod
    def of(cls, pairs: TokenPairs, vocab_size: int, track: Track) -> "Links":
        """Find the links of some sentence pairs."""
        chunks = tuple(_links(part, vocab_size) for part in track(_cut(pairs), "links"))
        keys = np.sort(np.concatenate([chunk.keys for chunk in chunks]))
        keys = keys[np.diff(keys, prepend=-1) > 0]  # np.unique would hash them, which is slow
        numbers = tuple(np.searchsorted(keys, chunk.keys) for chunk in chunks)
        return cls(vocab_size, keys // vocab_size, keys % vocab_size, chunks, numbers)

    @property
    def keys(self) -> NDArray[np.int64]:
        """One number for each couple [C], source id x V + target id, ascending."""
        return self.sources * self.vocab_size + self.targets

    def translation_probabilities(self, iterations: int, track: Track) -> NDArray[np.float64]:
        """p(target token | source token) of each couple [C] after some iterations of EM from uniform ones."""
        probabilities = np.ones(len(self.sources))
        for _ in track(range(iterations), "alignment"):
            counts = np.zeros(len(self.sources))
            for chunk, numbers in zip(self.chunks, self.numbers, strict=True):
                expected = _expected_links(chunk, probabilities[numbers])
                counts[numbers] += np.bincount(chunk.couples, expected, len(numbers))
            totals = np.bincount(self.sources, counts, self.vocab_size)
            probabilities = counts / totals[self.sources]
        return probabilities

    def unexplained(self, chosen: NDArray[np.bool_]) -> NDArray[np.int64]:
        """How often each target token [V] occurs without a chosen couple [C] in its sentence pair."""
        counts = np.zeros(self.vocab_size, dtype=np.int64)
        for chunk, numbers in zip(self.chunks, self.numbers, strict=True):
            is_explained = np.logical_or.reduceat(chosen[numbers][chunk.couples], chunk.starts)
            counts += np.bincount(chunk.targets[~is_explained], minlength=self.vocab_size)
        return counts


def _cut(pairs: TokenPairs) -> list[TokenPairs]:
    """Runs of sentence pairs of about `_CHUNK_LINKS` links each."""
    sizes = np.cumsum([len(source) * len(target) for source, target in pairs])
    bounds = np.flatnonzero(np.diff(sizes // _CHUNK_LINKS, prepend=0, append=-1)).tolist()
    return [pairs[start:end] for start, end in zip([0, *bounds[:-1]], bounds, strict=True) if start < end]


def _links(pairs: TokenPairs, vocab_size: int) -> _Chunk:
    source_lengths = np.array([len(source) for source, _ in pairs])
    target_lengths = np.array([len(target) for _, target in pairs])
    sources = np.concatenate([source for source, _ in pairs])
    targets = np.concatenate([target for _, target in pairs])
    # Sources a b and c, targets x y and z: widths = [2, 2, 1], starts = [0, 2, 4], links = ax bx ay by cz
    widths = np.repeat(source_lengths, target_lengths)
    starts = np.cumsum(widths) - widths
    first_sources = np.repeat(np.cumsum(source_lengths) - source_lengths, target_lengths)
    positions = np.arange(int(widths.sum())) + np.repeat(first_sources - starts, widths)
    key_type = np.uint32 if vocab_size <= 1 << 16 else np.int64  # half the width sorts in half the time
    links = sources.astype(key_type)[positions] * key_type(vocab_size) + np.repeat(targets.astype(key_type), widths)
    keys, couples = np.unique(links, return_inverse=True)
    return _Chunk(keys.astype(np.int64), couples.astype(np.int32), starts, targets)


def _expected_links(chunk: _Chunk, probabilities: NDArray[np.float64]) -> NDArray[np.float64]:
    """How likely each link is: the probabilities [own couples], normalised over the links of each target token."""
    expected = probabilities[chunk.couples]
    sums = np.add.reduceat(expected, chunk.starts)
    widths = np.diff(chunk.starts, append=len(expected))
    return np.asarray(expected / np.repeat(sums, widths))
