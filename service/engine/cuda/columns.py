"""Which columns of a cache hypotheses attend to, and which ones a step writes: a bit a column.

Pure NumPy; knows slots (`kv_cache.py`), neither sentences nor devices.
Axes: N slots, K hypotheses, C columns, W words of 64 columns.
"""

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from service.engine.runner import Ints

WORD = 64  # columns
_FULL = np.uint64(2**WORD - 1)

Words = npt.NDArray[np.uint64]


class Columns:
    """The columns of each slot; one without a sentence is as one that begins."""

    def __init__(self, num_slots: int, beam_size: int, masked: np.floating[Any]) -> None:
        """Begin with one word; `masked` masks a column."""
        self.past: Words = np.zeros((num_slots, beam_size, 1), np.uint64)  # [N, K, W]
        # Of the next step, over the first slots:
        self._new: Ints = np.zeros((0, beam_size), np.int64)  # [N, K]: the columns that it writes
        self._seen = self.past[:0]  # [N, K, W]: the past and these
        self._masks = _masks(masked)

    @property
    def number(self) -> int:
        """C."""
        return int(WORD * self.past.shape[2])

    def resize(self, num_columns: int) -> None:
        """Have more columns or fewer, or as many."""
        num_slots, beam_size, num_words = self.past.shape
        if num_columns == self.number:
            return
        past = np.zeros((num_slots, beam_size, num_columns // WORD), np.uint64)
        kept = min(num_words, past.shape[2])
        past[:, :, :kept] = self.past[:, :, :kept]
        self.past = past

    def used(self, num_slots: int) -> Words:
        """Return [W, N]: what some hypothesis of one of the first slots attends to."""
        # A copy whose rows are long takes a fourth of the time of the words as they lie.
        return np.bitwise_or.reduce(self.past[:num_slots].transpose(1, 2, 0).copy())  # type: ignore[no-any-return]

    def choose(self, used: Words) -> None:
        """Give each hypothesis a column of the next step: the first K of each slot that are not used.

        The words of a slot are one number.  Adding 1 makes its lowest zero a one, and the ones below it zeros.
        """
        K, (W, N) = self.past.shape[1], used.shape
        taken, sums = np.empty((K + 1, W, N), np.uint64), np.empty((K, W, N), np.uint64)
        taken[0], carry = used, np.ones((W, N), np.uint64)
        for before, sum_, behind in zip(taken, sums, taken[1:], strict=False):
            if W > 1:
                carry[1:] = np.logical_and.accumulate(before[:-1] == _FULL)
            np.add(before, carry, out=sum_)
            np.bitwise_or(before, sum_, out=behind)
        changed = taken[:K] ^ sums
        self._new = np.add.reduce(np.bitwise_count(changed), axis=1, dtype=np.int64).T - 1
        self._seen = self.past[:N].copy()
        self._seen |= (changed & sums).transpose(2, 0, 1)

    @staticmethod
    def lay_out(places: Ints) -> None:
        """Write the places [N, K, 1, 1, 4] of new columns but for these: slot, 0, column, 0."""
        places[:] = 0
        places[..., 0] = np.arange(len(places))[:, None, None, None]

    def write(self, mask: npt.NDArray[np.floating[Any]], places: Ints) -> None:
        """Write the next step's mask [N, 1, K, C], and its columns among their places."""
        np.take(self._masks, self._seen.view(np.uint8)[:, None], out=mask.view(self._masks.dtype), mode="wrap")
        places[:, :, 0, 0, 2] = self._new

    def advance(self, slots: Ints, places: slice | Ints, parents: Ints) -> None:
        """Finish a step: hypotheses of these slots go on from `parents`; `places` are the same slots."""
        rows = slots[:, None] * self.past.shape[1] + parents
        self.past[places] = self._seen.reshape(-1, self.past.shape[2]).take(rows, axis=0)


@cache
def _masks(masked: np.floating[Any]) -> npt.NDArray[Any]:
    """Return [256]: for each byte of bits the mask of its 8 columns, as one item."""
    bits = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
    return np.where(bits, 0, masked).view(f"V{8 * masked.itemsize}")[:, 0]
