"""The arrays of a decoder step that the native library reads and writes, and what it makes of a step's candidates.

The candidates may be the library's own, or those of another runner.  Axes: B sentences, K hypotheses, C candidates.
"""

import ctypes
from dataclasses import dataclass

import numpy as np

from service.engine.beams import Beams, Candidates, Ending, StepOutcome
from service.engine.cpu.native.library import I64, U8, BeamsOf, Endings, Step, address, load
from service.engine.logits import Edits

_MAY_END, _NON_FINITE, _HAS_ENDED = 1, 2, 3  # `Mark` of beams.h
_ENDING_STEPS = 4  # that there is room for if all hypotheses end in each


class StepArrays:
    """What crosses to and from the library in a step of so many sentences, at addresses that stay."""

    def __init__(self, num_sentences: int, beam_size: int, num_candidates: int) -> None:
        rows, ranks = (num_sentences, beam_size), (num_sentences, num_candidates)
        self.tokens, self.scores = np.zeros(rows, np.int64), np.zeros(rows, np.float32)
        self.best, self.check = np.zeros(ranks, np.float32), np.zeros(num_sentences, np.float32)
        self.best_tokens, self.parents = np.zeros(ranks, np.int64), np.zeros(ranks, np.int64)
        self.step = Step(num_candidates=num_candidates)
        names = "tokens", "scores", "best", "best_tokens", "parents", "check"
        self.step.set(**{name: getattr(self, name) for name in names})
        self.step_address = ctypes.addressof(self.step)
        self.next_parents = np.zeros(rows, np.int64)  # what `extend` finds
        self.next_parents_address = address(self.next_parents, I64)
        self.marks = np.zeros(num_sentences, np.uint8)
        self.marks_address = address(self.marks, U8)
        num_rooms = _ENDING_STEPS * num_sentences * beam_size
        self.ended = np.zeros((4, num_rooms), np.int64)  # sentences, lengths, parents and tokens of `Endings`
        self.ended_scores = np.zeros(num_rooms, np.float32)
        ended = dict(zip(("sentences", "lengths", "parents", "tokens"), self.ended, strict=True))
        self.endings = Endings(0, num_rooms, **ended, scores=self.ended_scores)
        self.endings_address = ctypes.addressof(self.endings)
        self.candidates = NativeCandidates(self.best, self.best_tokens, self.parents, self.check, self)  # of each step

    def edit(self, edits: Edits | None) -> None:
        """Have the next step change these logits."""
        self.step.num_edits = 0 if edits is None else len(edits.rows)
        if edits is not None:
            self._edits = [np.ascontiguousarray(array) for array in edits]  # kept: the library holds addresses
            self.step.set(**{f"edit_{name}": array for name, array in zip(Edits._fields, self._edits, strict=True)})

    @property
    def outcome(self) -> StepOutcome:
        """What the library has made of the candidates."""
        found: tuple[list[int], ...] = [], [], [], []  # sentences by mark
        for index, mark in enumerate(self.marks.tolist()):
            found[mark].append(index)
        outcome = StepOutcome(self.next_parents, found[_HAS_ENDED], found[_NON_FINITE], found[_MAY_END])
        if count := self.endings.count:
            sentences, *ended = self.ended[:, :count].tolist()
            endings = map(Ending, self.ended_scores[:count].tolist(), *ended)
            outcome.endings.extend(zip(sentences, endings, strict=True))
        return outcome


@dataclass(frozen=True, slots=True)
class NativeCandidates(Candidates):
    """Candidates that lie where the library has put them."""

    arrays: StepArrays

    def extend(self, beams: Beams, end: int, *, ends_usually: bool) -> StepOutcome:
        """Do as `Candidates.extend` and, with `ends_usually`, `BeamSearch._end`, to the bit."""
        arrays = self.arrays
        arrays.endings.count = 0
        outputs = arrays.next_parents_address, arrays.marks_address, arrays.endings_address if ends_usually else None
        load().dg_extend(arrays.step_address, len(self.scores), address_of(beams), end, *outputs)
        return arrays.outcome


def address_of(beams: Beams) -> int:
    """Return where the library finds these arrays, which keep the record with their addresses."""
    if beams.addresses is None:
        rooms, columns, beam_size = beams.tokens.shape
        beams.addresses = BeamsOf(beam_size, rooms, columns, **beams.arrays)
    return ctypes.addressof(beams.addresses)
