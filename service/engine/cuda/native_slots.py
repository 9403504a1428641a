"""The slots of a group in the native library: what `slots.py` does, to the bit, in a few microseconds."""

import ctypes
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from service.engine.beams import Candidates
from service.engine.cpu.native.candidates import StepArrays
from service.engine.cpu.native.library import SlotsOf, SlotStep, address, load
from service.engine.cuda.slots import WORD, Slots, StepMemory, Words
from service.engine.runner import Floats, Ints

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
        arrays = self._arrays
        if parents is not arrays.next_parents:
            arrays.next_parents[:] = parents
        load().dg_advance_slots(self._at(), len(parents), arrays.next_parents_address)

    def _at(self) -> int:
        """Return where the library finds the arrays."""
        if self._described is not self.past:  # `add` and `resize` replace it
            self._described, self._seen = self.past, np.zeros_like(self.past)
            arrays: tuple[npt.NDArray[Any], ...] = self.past, self._seen, self.numbers
            arrays += self.past_lengths, self.source_lengths, self._masks
            num_slots, beam_size, num_words = self.past.shape
            self._record = SlotsOf(num_slots, beam_size, num_words, self._masks.itemsize, *map(address, arrays))
            self._record_address = ctypes.addressof(self._record)
        return self._record_address


def _address_of(step: StepMemory) -> int:
    """Return where the library finds a step's arrays, which keep the record with their addresses."""
    if step.addresses is None:
        num_slots, num_words = len(step.given["tokens"]), step.given["self_mask"].shape[3] // WORD
        given = "new_places", "past_lengths", "source_lengths", "self_mask", "tokens", "scores"
        found = "candidate_scores", "candidate_ids", "check"
        arrays = [*(step.given[name] for name in given), *(step.found[name] for name in found)]
        step.addresses = SlotStep(num_slots, num_words, step.found["candidate_ids"].shape[1], *map(address, arrays))
    return ctypes.addressof(step.addresses)
