"""What a step must know of the slots of a group: which sentence lies where, its lengths, and the columns of its past.

Which columns a hypothesis attends to, and which ones a step writes, is a bit a column.  `Slots` counts and writes in
NumPy, `NativeSlots` in the native library, to the bit and in a few microseconds.  Knows neither memory nor devices
(`kv_cache.py`).
Axes: N slots, B sentences, K hypotheses, C columns, W words of 64 columns.
"""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from service.engine.beams import Candidates, Floats, Ints
from service.engine.cpu.native.library import SlotsOf, SlotStep, StepArrays, load

WORD = 64  # columns
_INITIAL_SLOTS = 16
_FULL = np.uint64(2**WORD - 1)

Arrays = dict[str, npt.NDArray[Any]]
Words = npt.NDArray[np.uint64]


@dataclass(slots=True, kw_only=True)
class StepMemory:
    """The host's side of a step, at addresses that stay."""

    given: Arrays  # what is sent, by name
    found: Arrays  # what comes back, likewise
    addresses: Any = None  # for the native library


class Slots:
    """The slots of a group in NumPy; one without a sentence is as one that begins."""

    def __init__(self, beam_size: int, masked: np.floating[Any]) -> None:
        """Begin without sentences; `masked` masks a column."""
        self.numbers: Ints = np.zeros(_INITIAL_SLOTS, np.int64)  # the slot of each sentence, with room for more
        self.past: Words = np.zeros((_INITIAL_SLOTS, beam_size, 1), np.uint64)  # [N, K, W]
        self.past_lengths: Ints = np.zeros(_INITIAL_SLOTS, np.int64)
        self.source_lengths = np.ones(_INITIAL_SLOTS, np.int32)
        self._seen = self.past[:0]  # [N, K, W]: the past and what the next step writes, of the first slots
        self._masks = _masks(masked)

    def __len__(self) -> int:
        return len(self.past)

    @property
    def num_columns(self) -> int:
        """C."""
        return int(WORD * self.past.shape[2])

    def add(self) -> None:
        """Double the slots, which costs nothing but on the host."""
        old = len(self)
        self.numbers, self.past, self.past_lengths, self.source_lengths = (
            np.concatenate([array, array])
            for array in (self.numbers, self.past, self.past_lengths, self.source_lengths)
        )
        self.empty(range(old, 2 * old))

    def empty(self, slots: int | Sequence[int]) -> None:
        """Make slots ones without a sentence."""
        self.past[slots], self.past_lengths[slots], self.source_lengths[slots] = 0, 0, 1

    def move(self, sources: Sequence[int], targets: Sequence[int]) -> None:
        """Have slots be what others are, which become empty."""
        for array in (self.past, self.past_lengths, self.source_lengths):
            array[targets] = array[sources]
        self.empty(sources)

    def resize(self, num_columns: int) -> None:
        """Have more columns or fewer, or as many."""
        num_slots, beam_size, num_words = self.past.shape
        if num_columns == self.num_columns:
            return
        past = np.zeros((num_slots, beam_size, num_columns // WORD), np.uint64)
        kept = min(num_words, past.shape[2])
        past[:, :, :kept] = self.past[:, :, :kept]
        self.past = past

    def count(self, num_slots: int) -> tuple[int, int]:
        """Return how many columns are used in one of the first slots at most, and the words that have all of them."""
        used = self._used(num_slots)
        num_words = int(np.flatnonzero(used.any(axis=1)).max(initial=-1)) + 1
        return int(np.add.reduce(np.bitwise_count(used), axis=0).max(initial=0)), num_words

    @staticmethod
    def lay_out(places: Ints) -> None:
        """Write the places [N, K, 1, 1, 4] of new columns but for these: slot, 0, column, 0."""
        places[:] = 0
        places[..., 0] = np.arange(len(places))[:, None, None, None]

    def write(self, step: StepMemory, tokens: Ints, scores: Floats) -> None:
        """Give a step what it must know beside what `lay_out` has written.

        Each hypothesis gets a column, the first K of each slot that none attends to.

        Args:
            tokens: [B, K], of the sentences.
            scores: likewise.
        """
        given, slots = step.given, self.numbers[: len(tokens)]
        num_slots = len(given["tokens"])
        given["past_lengths"][:, 0] = self.past_lengths[:num_slots]
        given["source_lengths"][:] = self.source_lengths[:num_slots]
        for name, values in (("tokens", tokens), ("scores", scores[:, :, None])):
            given[name][:] = 0  # in slots without a sentence, too: steps of all shapes share the block
            given[name][slots] = values
        given["new_places"][:, :, 0, 0, 2] = self._choose(num_slots)
        mask = given["self_mask"].view(self._masks.dtype)
        np.take(self._masks, self._seen.view(np.uint8)[:, None], out=mask, mode="wrap")

    def candidates(self, step: StepMemory, num_sentences: int, num_logits: int) -> Candidates:
        """Return what a step has found for the sentences; scores that are no numbers can have ids that are none."""
        names, slots = ("candidate_scores", "candidate_ids", "check"), self.numbers[:num_sentences]
        best, ids, check = (step.found[name].take(slots, axis=0) for name in names)
        is_wrong = ids.view(np.uint64) >= self.past.shape[1] * num_logits
        if is_wrong.any():
            ids[is_wrong], check[is_wrong.any(axis=1)] = 0, np.nan
        parents = ids // num_logits
        return Candidates(best, ids - parents * num_logits, parents, check)  # np.divmod takes twice as long

    def advance(self, parents: Ints) -> None:
        """Finish a step: hypothesis k of sentence b goes on from the past of hypothesis `parents[b, k]`."""
        slots = self.numbers[: len(parents)]
        rows = slots[:, None] * self.past.shape[1] + parents
        self.past[slots] = self._seen.reshape(-1, self.past.shape[2]).take(rows, axis=0)
        self.past_lengths[slots] += 1

    def _used(self, num_slots: int) -> Words:
        """Return [W, N]: what some hypothesis of one of the first slots attends to."""
        # A copy whose rows are long takes a fourth of the time of the words as they lie.
        return np.bitwise_or.reduce(self.past[:num_slots].transpose(1, 2, 0).copy())  # type: ignore[no-any-return]

    def _choose(self, num_slots: int) -> Ints:
        """Return [N, K]: the columns that the step writes.

        The words of a slot are one number.  Adding 1 makes its lowest zero a one, and the ones below it zeros.
        """
        used = self._used(num_slots)
        K, (W, N) = self.past.shape[1], used.shape
        taken, sums = np.empty((K + 1, W, N), np.uint64), np.empty((K, W, N), np.uint64)
        taken[0], carry = used, np.ones((W, N), np.uint64)
        for before, sum_, behind in zip(taken, sums, taken[1:], strict=False):
            if W > 1:
                carry[1:] = np.logical_and.accumulate(before[:-1] == _FULL)
            np.add(before, carry, out=sum_)
            np.bitwise_or(before, sum_, out=behind)
        changed = taken[:K] ^ sums
        self._seen = self.past[:N].copy()
        self._seen |= (changed & sums).transpose(2, 0, 1)
        return np.add.reduce(np.bitwise_count(changed), axis=1, dtype=np.int64).T - 1  # type: ignore[no-any-return]


_step_arrays = lru_cache(maxsize=128)(StepArrays)  # by sentences, hypotheses and candidates


class NativeSlots(Slots):
    """The slots of a group, whose steps the library writes and reads."""

    _arrays: StepArrays  # of the last step
    _described: Words | None = None  # `past` as the library knows it

    def count(self, num_slots: int) -> tuple[int, int]:
        most, num_words = ctypes.c_int32(), ctypes.c_int32()
        load().dg_count_columns(self._at(), num_slots, most, num_words)
        return most.value, num_words.value

    def write(self, step: StepMemory, tokens: Ints, scores: Floats) -> None:
        arrays = self._arrays = _step_arrays(*tokens.shape, step.found["candidate_scores"].shape[1])
        arrays.tokens[:], arrays.scores[:] = tokens, scores
        load().dg_write_step(self._at(), len(tokens), _address_of(step), arrays.step_address)

    def candidates(self, step: StepMemory, num_sentences: int, num_logits: int) -> Candidates:
        load().dg_read_step(self._at(), num_sentences, _address_of(step), num_logits, self._arrays.step_address)
        return self._arrays.candidates

    def advance(self, parents: Ints) -> None:
        load().dg_advance_slots(self._at(), len(parents), self._arrays.address_of_parents(parents))

    def _at(self) -> int:
        """Return where the library finds the arrays."""
        if self._described is not self.past:  # `add` and `resize` replace it
            self._described, self._seen = self.past, np.zeros_like(self.past)
            self._record = SlotsOf(
                *self.past.shape,
                self._masks.itemsize,
                past=self.past,
                seen=self._seen,
                numbers=self.numbers,
                masks=self._masks,
                past_lengths=self.past_lengths,
                source_lengths=self.source_lengths,
            )
            self._record_address = ctypes.addressof(self._record)
        return self._record_address


def _address_of(step: StepMemory) -> int:
    """Return where the library finds a step's arrays, which keep the record with their addresses."""
    if step.addresses is None:
        num_slots, num_words = len(step.given["tokens"]), step.given["self_mask"].shape[3] // WORD
        names = "new_places", "past_lengths", "source_lengths", "self_mask", "tokens", "scores"
        best, ids, check = (step.found[name] for name in ("candidate_scores", "candidate_ids", "check"))
        given = {name: step.given[name] for name in names}
        step.addresses = SlotStep(num_slots, num_words, ids.shape[1], **given, best=best, ids=ids, check=check)
    return ctypes.addressof(step.addresses)


@cache
def _masks(masked: np.floating[Any]) -> npt.NDArray[Any]:
    """Return [256]: for each byte of bits the mask of its 8 columns, as one item."""
    bits = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
    return np.where(bits, 0, masked).view(f"V{8 * masked.itemsize}")[:, 0]
