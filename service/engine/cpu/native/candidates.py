"""The arrays of a decoder step that the native library reads and writes, and what it makes of a step's candidates.

The candidates may be the library's own, or those of another runner.  Axes: B sentences, K hypotheses, C candidates.
"""

import ctypes
from dataclasses import dataclass

import numpy as np

from service.engine.beams import Beams, Candidates, Ending, Extended
from service.engine.cpu.native.library import BeamsOf, Endings, LibraryError, Step, address, load
from service.engine.logits import Edits

_MAY_END, _NON_FINITE, _HAS_ENDED = 1, 2, 3  # `Mark` of search_state.h


def has_library() -> bool:
    """Return whether candidates can be ones of the library."""
    try:
        load()
    except LibraryError:
        return False
    return True


class StepArrays:
    """What crosses to and from the library in a step of so many sentences, at addresses that stay."""

    def __init__(self, num_sentences: int, beam_size: int, num_candidates: int) -> None:
        rows, ranks = (num_sentences, beam_size), (num_sentences, num_candidates)
        self.tokens, self.scores = np.zeros(rows, np.int64), np.zeros(rows, np.float32)
        self.best, self.check = np.zeros(ranks, np.float32), np.zeros(num_sentences, np.float32)
        self.best_tokens, self.parents = np.zeros(ranks, np.int64), np.zeros(ranks, np.int64)
        self.step = Step(num_candidates=num_candidates)
        for name in ("tokens", "scores", "best", "best_tokens", "parents", "check"):
            setattr(self.step, name, address(getattr(self, name)))
        self.step_address = ctypes.addressof(self.step)
        self.next_parents = np.zeros(rows, np.int64)  # what `extend` finds
        self.next_parents_address = address(self.next_parents)
        self.marks = np.zeros(num_sentences, np.uint8)
        self.marks_address = address(self.marks)
        self.ended = np.zeros((3, num_sentences * beam_size), np.int64)  # sentences, parents and tokens of `Endings`
        self.ended_scores = np.zeros(num_sentences * beam_size, np.float32)
        self.endings = Endings(0, *map(address, self.ended), address(self.ended_scores))
        self.endings_address = ctypes.addressof(self.endings)

    def edit(self, edits: Edits | None) -> None:
        """Have the next step change these logits."""
        self.step.num_edits = 0 if edits is None else len(edits.rows)
        if edits is not None:
            self._edits = [np.ascontiguousarray(array) for array in edits]  # kept: the library holds addresses
            for name, array in zip(Edits._fields, self._edits, strict=True):
                setattr(self.step, f"edit_{name}", address(array))

    @property
    def candidates(self) -> "NativeCandidates":
        """What the step has found."""
        return NativeCandidates(self.best, self.best_tokens, self.parents, self.check, self)


@dataclass(frozen=True, slots=True)
class NativeCandidates(Candidates):
    """Candidates that lie where the library has put them."""

    arrays: StepArrays

    def extend(self, beams: Beams, end: int, *, ends_usually: bool) -> Extended:
        """Do as `Candidates.extend` and, with `ends_usually`, `BeamSearch._end`, to the bit."""
        arrays, at = self.arrays, address_of(beams)
        outputs = arrays.next_parents_address, arrays.marks_address, arrays.endings_address if ends_usually else None
        load().dg_extend(arrays.step_address, len(self.scores), at, end, *outputs)
        found: tuple[list[int], ...] = [], [], [], []  # by mark
        for index in arrays.marks.nonzero()[0].tolist():
            found[arrays.marks[index]].append(index)
        endings = list[tuple[int, Ending]]()
        if ends_usually and (count := arrays.endings.count):
            sentences, parents, tokens = arrays.ended[:, :count].tolist()
            for index, *ending in zip(sentences, arrays.ended_scores[:count].tolist(), parents, tokens, strict=True):
                score, parent, token = ending
                endings.append((index, Ending(score, int(beams.num_steps[index]), parent, token)))
        return Extended(
            self.scores, arrays.next_parents, found[_MAY_END], found[_NON_FINITE], found[_HAS_ENDED], endings
        )


def address_of(beams: Beams) -> int:
    """Return where the library finds these arrays, which keep the record with their addresses."""
    if beams.addresses is None:
        rooms, columns, beam_size = beams.tokens.shape
        beams.addresses = BeamsOf(beam_size, rooms, columns, *map(address, beams.arrays))
    return ctypes.addressof(beams.addresses)
