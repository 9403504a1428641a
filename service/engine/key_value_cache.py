"""Attention keys and values of the live sentences, in buffers that the decoder graph reads and writes in place.

A slot holds one sentence; slots are numbered 0 .. num_sentences - 1 without holes, as in `BeamSearch`.  The hypotheses
of a sentence share its columns: a step adds one column for each hypothesis, and a mask says which columns are a
hypothesis' own past.  A beam that changes its order thus moves a few rows of the mask and no keys.  Columns that no
hypothesis attends to any more are removed now and then (compacting), at moments that depend on the sentence alone: the
place of its columns decides the order of sums, and so the last bits of a result that must not depend on the batch.

Knows which columns belong to which sentence; neither where they lie (`Slots`) nor what is computed.
Axes: L layers, H heads, N slots, K hypotheses of a sentence, C columns of a buffer.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from model.config import ModelConfig

Ints = npt.NDArray[np.int64]
Floating = np.floating[Any]

MASKED = np.float32(-1e9)  # added to the product of a query and a key that do not belong together
# Columns come in multiples of these: a ragged end would change the order of a sum in ONNX Runtime's attention.
SELF_COLUMNS = 16
CROSS_COLUMNS = 8
_INITIAL_SLOTS = 8  # with so many columns each:
_INITIAL_COLUMNS = 64
_KEPT_SLOTS = 32  # room that is never given back
_STEPS_BETWEEN_COMPACTIONS = 4
_SMALLEST_SLACK = 16  # columns that are free after compacting, at least


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheShape:
    """The sizes that the model decides."""

    num_layers: int
    num_heads: int
    d_head: int
    cache_parts: tuple[str, ...] = ("key", "value")  # arrays that each layer has of the tokens so far
    has_steps: bool = False  # whether the graph must know which step wrote a column: relative positions

    @classmethod
    def of(cls, config: ModelConfig) -> "CacheShape":
        return cls(
            num_layers=config.num_decoder_layers,
            num_heads=config.num_heads,
            d_head=config.d_head,
            cache_parts=config.cache_parts,
            has_steps=config.relative_distance > 0,
        )

    @property
    def column_size(self) -> int:
        """Numbers in one column of one array."""
        return self.num_heads * self.d_head


class Slots(Protocol):
    """The memory of a number of slots, as `KeyValueCache` arranges it."""

    num_columns: int  # C
    generation: int  # changes whenever the memory moves

    @property
    def has_grown(self) -> bool:
        """Whether there is more memory than is kept in any case."""
        ...

    def resize(self, num_used: int, num_slots: int, num_columns: int) -> None:
        """Make room for this many slots and columns, and give back memory that is mostly free.

        Used slots keep what they hold.
        """
        ...

    def fill(self, first: int, encoded: Any, indices: Sequence[int]) -> None:
        """Put some of the encoder's sentences into the slots from `first` on."""
        ...

    def move(self, source: int, target: int, num_columns: int) -> None:
        """Copy the first columns of a slot over those of another."""
        ...

    def clear(self, slot: int) -> None:
        """Make a slot zero."""
        ...

    def keep_columns(self, slot: int, columns: Ints) -> None:
        """Move these columns of a slot, which ascend, to its front."""
        ...


SlotsT = TypeVar("SlotsT", bound=Slots)


class KeyValueCache(Generic[SlotsT]):
    """The caches of live sentences that decode together: one beam size, sources of similar length."""

    def __init__(
        self,
        new_slots: Callable[[int], SlotsT],
        beam_size: int,
        *,
        new_own_slots: Callable[[int], SlotsT] | None = None,
        masked: Floating = MASKED,
        steps_between_compactions: int = _STEPS_BETWEEN_COMPACTIONS,
        has_steps: bool = False,
    ) -> None:
        """Create a cache without sentences.

        Args:
            new_slots: takes a number of columns.
            beam_size: K.
            new_own_slots: the same of self-attention, where a layer has other arrays of it than of the source.
            masked: of the mask's type.
            steps_between_compactions: of a sentence, about.
            has_steps: whether there are `column_steps`.
        """
        self.beam_size = beam_size
        self.num_sentences = 0
        self._slack = _round_up(max(_SMALLEST_SLACK, steps_between_compactions * beam_size), SELF_COLUMNS)
        self.own = (new_own_slots or new_slots)(self._slack)  # of self-attention
        self.cross = new_slots(CROSS_COLUMNS)
        self._mask = SlotBuffer(1, beam_size, 1, self._slack, masked)  # [1, N, K, C, 1]
        self._steps = SlotBuffer(1, 1, 1, self._slack, np.int64(0)) if has_steps else None  # [1, N, 1, C, 1]
        self._hypotheses = np.arange(beam_size)
        self._columns = np.zeros(_INITIAL_SLOTS, np.int64)
        self._limits = np.zeros(_INITIAL_SLOTS, np.int64)  # a sentence with so many columns is compacted
        self._past_lengths = np.zeros((_INITIAL_SLOTS, 1), np.int64)
        self._source_lengths = np.zeros(_INITIAL_SLOTS, np.int32)
        self._generation = 0  # counts how often the four above were replaced

    @property
    def memory(self) -> tuple[int, ...]:
        """Changes whenever one of the arrays below gets another address."""
        steps = () if self._steps is None else (self._steps.generation,)
        return self.own.generation, self.cross.generation, self._mask.generation, self._generation, *steps

    @property
    def layout(self) -> tuple[int, int, int]:
        """B, C of self-attention and of cross-attention: with the same memory, the same arrays."""
        return self.num_sentences, self.own.num_columns, self.cross.num_columns

    @property
    def past_lengths(self) -> Ints:
        """[B, 1]: decoder steps behind each sentence."""
        return self._past_lengths[: self.num_sentences]

    @property
    def source_lengths(self) -> npt.NDArray[np.int32]:
        """[B]: columns filled in each sentence's cross-attention slot."""
        return self._source_lengths[: self.num_sentences]

    @property
    def columns(self) -> Ints:
        """[B]: columns filled in each sentence's self-attention slot; the next step writes the K behind them."""
        return self._columns[: self.num_sentences]

    @property
    def mask(self) -> npt.NDArray[Any]:
        """[B, 1, K, C]: 0 where a hypothesis attends to a column, a masking value elsewhere."""
        return self._mask.slots[0, : self.num_sentences, None, :, :, 0]

    @property
    def column_steps(self) -> Ints | None:
        """[B, C]: the decoder step that wrote each column; None where no graph needs it."""
        return None if self._steps is None else self._steps.slots[0, : self.num_sentences, 0, :, 0]

    @property
    def has_grown(self) -> bool:
        """Whether an empty cache of this size is worth replacing by a new one."""
        return self.own.has_grown or self.cross.has_grown

    def append(self, encoded: Any, indices: Sequence[int]) -> None:
        """Give some of the encoder's sentences the next slots, in this order."""
        first, last = self.num_sentences, self.num_sentences + len(indices)
        if last > self._columns.size:
            num_slots = max(last, 2 * self._columns.size)
            self._columns, self._limits, self._past_lengths, self._source_lengths = (
                np.resize(array, (num_slots, *array.shape[1:])) for array in self._arrays()
            )
            self._generation += 1
        new = slice(first, last)
        self._columns[new] = 0
        self._limits[new] = self._slack
        self._past_lengths[new] = 0
        self._source_lengths[new] = encoded.lengths[list(indices)]
        self.num_sentences = last
        self._fit(num_used=first)
        self.mask[new] = self._mask.empty
        self.cross.fill(first, encoded, indices)

    def remove(self, index: int, *, is_finite: bool = True) -> None:
        """Free a slot, into which the last sentence moves; what no mask lets through must be finite."""
        if not is_finite:
            self.own.clear(index)
            self.cross.clear(index)
        last = self.num_sentences - 1
        if index != last:
            self.own.move(last, index, int(self._columns[last]))
            self.cross.move(last, index, int(self._source_lengths[last]))
            self._mask.slots[0, index] = self._mask.slots[0, last]
            if self._steps is not None:
                self._steps.slots[0, index] = self._steps.slots[0, last]
            for array in self._arrays():
                array[index] = array[last]
        self.num_sentences = last

    def prepare(self) -> None:
        """Make room for the K columns of the next step, and let each hypothesis attend to its own of them."""
        full = (self.columns + self.beam_size > self._limits[: self.num_sentences]).nonzero()[0].tolist()
        for index in full:
            self._compact(index)
        if full:
            self._fit(num_used=self.num_sentences)
        slots = np.arange(self.num_sentences)[:, None]
        new = self.columns[:, None] + self._hypotheses  # [B, K]
        self._mask.slots[0, slots, self._hypotheses, new, 0] = 0.0
        if self._steps is not None:
            self._steps.slots[0, slots, 0, new, 0] = self.past_lengths

    def advance(self, parents: Ints) -> None:
        """Count the columns that a decoder step has written, and give every hypothesis its parent's past, [B, K]."""
        self.columns[:] += self.beam_size
        self.past_lengths[:] += 1
        if self.beam_size > 1:
            rows = self._mask.slots[0, : self.num_sentences].reshape(-1, self._mask.num_columns)
            first = np.arange(self.num_sentences)[:, None] * self.beam_size
            rows[:] = rows.take((first + parents).ravel(), axis=0)

    def _arrays(self) -> list[npt.NDArray[np.generic]]:
        return [self._columns, self._limits, self._past_lengths, self._source_lengths]

    def _compact(self, index: int) -> None:
        """Close the gaps that columns without a hypothesis leave; the others keep their order."""
        mask = self._mask.slots[0, index, :, :, 0]  # [K, C], a view
        used = (mask.max(axis=0) == 0.0).nonzero()[0]
        self.own.keep_columns(index, used)
        mask[:, : used.size] = mask[:, used]
        mask[:, used.size :] = self._mask.empty
        if self._steps is not None:
            steps = self._steps.slots[0, index, 0, :, 0]  # [C], a view
            steps[: used.size] = steps[used]
        self._columns[index] = used.size
        self._limits[index] = _round_up(used.size + self._slack, SELF_COLUMNS)

    def _fit(self, num_used: int) -> None:
        """Make the buffers as wide as the widest live sentence needs, and narrower only where that spares half."""
        live = slice(self.num_sentences)
        own = _fitting(self.own.num_columns, int(self._limits[live].max()))
        cross = _fitting(self.cross.num_columns, _round_up(int(self._source_lengths[live].max()), CROSS_COLUMNS))
        for buffers, num_columns in ((self.own, own), (self._mask, own), (self._steps, own), (self.cross, cross)):
            if buffers is not None:
                buffers.resize(num_used, self.num_sentences, num_columns)


class SlotBuffer:
    """A arrays [N, H, C, d] in this process' memory, one slot behind the other, whose C can be changed for little.

    Each array lies at the beginning of a larger piece of one memory, so that neither more slots nor other columns need
    a new one as long as they fit.
    """

    def __init__(self, num_arrays: int, heads: int, width: int, num_columns: int, empty: np.generic) -> None:
        """Lay out slots whose new columns hold `empty`; its type is that of the arrays."""
        self.num_columns = num_columns  # C
        self.generation = 0  # changes whenever the memory does
        self.empty = empty
        self._heads, self._width = heads, width
        self._kept = _KEPT_SLOTS * _INITIAL_COLUMNS * heads * width
        # np.full touches every page now; pages first touched inside a step make it several times slower.
        self._memory = np.full((num_arrays, _INITIAL_SLOTS * _INITIAL_COLUMNS * heads * width), empty)
        self._lay_out()

    @property
    def has_grown(self) -> bool:
        """Whether there is more memory than is kept in any case."""
        return bool(self._memory.shape[1] > self._kept)

    def resize(self, num_used: int, num_slots: int, num_columns: int) -> None:
        """Do as `Slots.resize`."""
        wanted, size = num_slots * self._heads * num_columns * self._width, self._memory.shape[1]
        fits = wanted <= size and (size <= self._kept or 8 * wanted >= size)
        if fits and num_columns == self.num_columns:
            return
        kept = min(num_columns, self.num_columns)
        old = self.slots[:, :num_used, :, :kept]
        if fits:
            old = old.copy()
        else:
            self._memory = np.full((len(self._memory), 2 * wanted), self.empty)
            self.generation += 1
        self.num_columns = num_columns
        self._lay_out()
        self.slots[:, :num_used, :, :kept] = old
        self.slots[:, :num_used, :, kept:] = self.empty

    def _lay_out(self) -> None:
        slot_size = self._heads * self.num_columns * self._width
        num_slots = self._memory.shape[1] // slot_size
        slots = self._memory[:, : num_slots * slot_size].view()
        slots.shape = (len(self._memory), num_slots, self._heads, self.num_columns, self._width)  # raises, copies never
        self.slots: npt.NDArray[Any] = slots  # [A, N, H, C, d], as many as fit


def _fitting(num_columns: int, needed: int) -> int:
    return needed if needed > num_columns or 2 * needed <= num_columns else num_columns


def _round_up(number: Any, multiple: int) -> Any:
    return -(-number // multiple) * multiple
