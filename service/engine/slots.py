"""Where the keys and values of live sentences lie: slots of columns, which can be moved, squeezed and resized.

`SlotBuffers` has them in this process' memory, `device_slots.py` on a GPU.  Knows layouts, not what is computed.
Axes: L layers, H heads, N slots, K hypotheses of a sentence, C columns of a buffer.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]

MASKED = np.float32(-1e9)  # added to the product of a query and a key that do not belong together
_STEPS_BETWEEN_SQUEEZES = 4
_INITIAL_SLOTS = 8  # with so many columns each:
_INITIAL_COLUMNS = 64
_KEPT_SLOTS = 32  # room that is never given back


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheShape:
    """What the model decides."""

    num_layers: int
    num_heads: int
    d_head: int

    @property
    def column_size(self) -> int:
        """Floats of one column of one array."""
        return self.num_heads * self.d_head


class EncodedSentences(Protocol):
    """What the encoder makes of some sentences, padded to the longest, wherever it lies."""

    @property
    def lengths(self) -> npt.NDArray[np.int32]:
        """[B]."""
        ...

    @property
    def num_columns(self) -> int:
        """S: of the longest."""
        ...


class Encoded(NamedTuple):
    """`EncodedSentences` in this process' memory."""

    arrays: Sequence[Floats]  # key and value of layer 0, of layer 1, ...: [B, H, S, d_head]
    lengths: npt.NDArray[np.int32]  # [B]

    @property
    def num_columns(self) -> int:
        """See `EncodedSentences`."""
        return int(self.arrays[0].shape[2])


class Slots(Protocol):
    """The keys and values of a number of slots, as `KeyValueCache` arranges them; `SlotBuffers` has the details."""

    num_columns: int
    generation: int

    @property
    def has_grown(self) -> bool: ...

    def resize(self, num_used: int, num_slots: int, num_columns: int) -> None: ...

    def fill(self, first: int, encoded: EncodedSentences, indices: Sequence[int]) -> None: ...

    def move(self, source: int, target: int, num_columns: int) -> None: ...

    def clear(self, slot: int) -> None: ...

    def keep_columns(self, slot: int, columns: Ints) -> None: ...


class SlotBuffers:
    """2 L arrays [N, H, C, d_head], one slot behind the other, whose C can be changed for little.

    Each lies at the beginning of a larger piece of one memory, so that neither more slots nor other columns need a new
    one as long as they fit.
    """

    def __init__(self, shape: CacheShape, num_columns: int) -> None:
        self.num_columns = num_columns  # C
        self.generation = 0  # changes whenever the memory does
        self._shape = shape
        self._kept = _KEPT_SLOTS * _INITIAL_COLUMNS * shape.column_size
        self._memory = self._allocate(
            _INITIAL_SLOTS * _INITIAL_COLUMNS * shape.column_size
        )  # [2 L, floats of an array]
        self._slots = self._lay_out()  # [2 L, N, H, C, d_head], as many as fit

    def views(self, num_slots: int) -> list[Floats]:
        """The first slots of every array, contiguous."""
        return list(self._slots[:, :num_slots])

    @property
    def has_grown(self) -> bool:
        """Whether there is more memory than is kept in any case."""
        return bool(self._memory.shape[1] > self._kept)

    def resize(self, num_used: int, num_slots: int, num_columns: int) -> None:
        """Make room for so many slots of so many columns; give memory back of which less than an eighth is in use.

        Args:
            num_used: slots whose content is kept; columns that are cut off are lost, new ones hold any finite value.
        """
        wanted, size = num_slots * num_columns * self._shape.column_size, self._memory.shape[1]
        has_room = _has_room(wanted, size, self._kept)
        if has_room and num_columns == self.num_columns:
            return
        kept = min(num_columns, self.num_columns)
        old = self._slots[:, :num_used, :, :kept]
        if has_room:
            old = old.copy()
        else:
            self._memory = self._allocate(2 * wanted)
            self.generation += 1
        self.num_columns = num_columns
        self._slots = self._lay_out()
        self._slots[:, :num_used, :, :kept] = old

    def fill(self, first: int, encoded: EncodedSentences, indices: Sequence[int]) -> None:
        """Put some of the encoder's sentences into the slots from `first` on."""
        assert isinstance(encoded, Encoded)
        chosen = list(indices)
        new, width = slice(first, first + len(chosen)), int(encoded.lengths[chosen].max())
        for target, source in zip(self._slots, encoded.arrays, strict=True):
            target[new, :, :width] = source[chosen, :, :width]

    def move(self, source: int, target: int, num_columns: int) -> None:
        """Copy the first columns of a slot over those of another."""
        # Array by array: NumPy would put all of them at once through a copy, for which there may be no memory.
        for array in self._slots:
            array[target, :, :num_columns] = array[source, :, :num_columns]

    def clear(self, slot: int) -> None:
        """Make a slot zero."""
        self._slots[:, slot] = 0.0

    def keep_columns(self, slot: int, columns: Ints) -> None:
        """Move these columns of a slot, which ascend, to its front."""
        begin = int(np.count_nonzero(columns == np.arange(columns.size)))  # those before are where they belong
        columns_of_slot = self._slots[:, slot]  # [2 L, H, C, d_head]
        columns_of_slot[:, :, begin : columns.size] = columns_of_slot.take(columns[begin:], axis=2)

    def _lay_out(self) -> Floats:
        heads, width, size = self._shape.num_heads, self._shape.d_head, self._memory.shape[1]
        num_slots = size // (self.num_columns * self._shape.column_size)
        laid_out = self._memory[:, : num_slots * self.num_columns * self._shape.column_size].view()
        laid_out.shape = (len(self._memory), num_slots, heads, self.num_columns, width)  # raises rather than copy
        return laid_out

    def _allocate(self, size: int) -> Floats:
        # np.full touches every page now; pages first touched inside a step make it several times slower.
        return np.full((2 * self._shape.num_layers, size), 0.0, np.float32)


class MaskBuffer:
    """Which columns each hypothesis attends to: [N * K, C], 0 or a masking value, laid out as `SlotBuffers` are."""

    def __init__(self, beam_size: int, num_columns: int, masked: np.floating[Any] = MASKED) -> None:
        self.num_columns = num_columns  # C
        self.generation = 0  # changes whenever the memory does
        self.masked = masked  # its type is the mask's
        self._beam_size = beam_size
        self._hypotheses = np.arange(beam_size)
        self._kept = _KEPT_SLOTS * beam_size * _INITIAL_COLUMNS
        self._memory = np.full(_INITIAL_SLOTS * beam_size * _INITIAL_COLUMNS, masked)
        self._lay_out()

    def rows(self, num_slots: int) -> npt.NDArray[Any]:
        """[N * K, C] of the first slots."""
        return self._mask[:num_slots].reshape(-1, self.num_columns)

    def of_slot(self, slot: int) -> npt.NDArray[Any]:
        """[K, C]."""
        found: npt.NDArray[Any] = self._mask[slot]
        return found

    def show(self, columns: Ints) -> None:
        """Let hypothesis k of slot n attend to column `columns[n]` + k."""
        places = self._slots[: columns.size], self._hypotheses, columns[:, None] + self._hypotheses
        self._mask[places] = 0.0

    def follow(self, parents: Ints) -> None:
        """Let each hypothesis attend to what its parent, [n, K], attends to."""
        rows, first = self.rows(len(parents)), self._slots[: len(parents)] * self._beam_size
        rows[:] = rows.take((first + parents).ravel(), axis=0)

    def resize(self, num_used: int, num_slots: int, num_columns: int) -> None:
        """As `SlotBuffers.resize`; new columns are masked."""
        wanted = num_slots * self._beam_size * num_columns
        has_room = _has_room(wanted, self._memory.size, self._kept)
        if has_room and num_columns == self.num_columns:
            return
        old = self.rows(num_used).copy()
        if not has_room:
            self._memory = np.full(2 * wanted, self.masked)
            self.generation += 1
        kept, self.num_columns = min(num_columns, self.num_columns), num_columns
        self._lay_out()
        rows = self.rows(num_used)
        rows[:, :kept] = old[:, :kept]
        rows[:, kept:] = self.masked

    def _lay_out(self) -> None:
        num_slots = self._memory.size // (self._beam_size * self.num_columns)
        shape = (num_slots, self._beam_size, self.num_columns)
        self._mask = self._memory[: math.prod(shape)].reshape(shape)  # [N, K, C], as many as fit
        self._slots = np.arange(num_slots)[:, None]  # [N, 1]


class Storage(Protocol):
    """Where keys and values lie."""

    @property
    def masked(self) -> np.floating[Any]:
        """What is added to the product of a query and a key that do not belong together; its type is the mask's."""
        ...

    @property
    def steps_between_squeezes(self) -> int:
        """After how many steps a sentence's unused columns are squeezed out."""
        ...

    def slots(self, shape: CacheShape, num_columns: int) -> Slots:
        """New ones."""
        ...


class HostStorage:
    """In this process' memory."""

    masked: np.floating[Any] = MASKED
    steps_between_squeezes = _STEPS_BETWEEN_SQUEEZES

    def slots(self, shape: CacheShape, num_columns: int) -> Slots:
        """See `Storage`."""
        return SlotBuffers(shape, num_columns)


def _has_room(wanted: int, size: int, kept: int) -> bool:
    """Whether memory of this size is to be kept: it is large enough and, beyond `kept`, an eighth of it is in use."""
    return wanted <= size and (size <= kept or 8 * wanted >= size)
