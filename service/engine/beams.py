"""The hypotheses of sentences that are searched together, as arrays, and how the candidates of a step extend them.

Pure NumPy.  Chosen tokens are written once and never moved: a hypothesis is a walk back along the parents.

Axes: B sentences, K beam, C candidates, R sentences and T decoder inputs that there is room for.
"""

from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]
Scalar = TypeVar("Scalar", bound=np.generic)

# Hypotheses of so many tokens and more are looked at every so many steps: do they only repeat themselves?
LOOP_TOKENS, LOOP_STRIDE = 48, 16
_INITIAL_SENTENCES = 8
_INITIAL_COLUMNS = 64


@dataclass(slots=True)
class Beams:
    """The live hypotheses of sentences, with room for more of both (R sentences, T columns)."""

    scores: Floats  # [R, K]: sums; -inf for a hypothesis not yet born
    newest: Ints  # [R, K]: the newest token of each hypothesis
    tokens: Ints  # [R, T, K]: decoder inputs as they were chosen
    parents: Ints  # [R, T, K]: whose place in the column before each one extends
    num_steps: Ints  # [R]: the newest tokens stand in this column
    max_steps: Ints  # [R]
    still_wanted: Ints  # [R]: hypotheses that have to end before the sentence does
    waits_for_best: Ints  # [R]: whether the best one has to be among them
    penalties: Floats  # [R]: the length penalty
    addresses: Any = None  # what the library keeps of these arrays once it has extended them; None: they are new

    @classmethod
    def of(cls, beam_size: int) -> Self:
        """Return arrays with room for some sentences."""
        places = _INITIAL_SENTENCES, beam_size
        history = _INITIAL_SENTENCES, _INITIAL_COLUMNS, beam_size
        return cls(
            scores=np.zeros(places, np.float32),
            newest=np.zeros(places, np.int64),
            tokens=np.zeros(history, np.int64),
            parents=np.zeros(history, np.int64),
            num_steps=np.zeros(_INITIAL_SENTENCES, np.int64),
            max_steps=np.zeros(_INITIAL_SENTENCES, np.int64),
            still_wanted=np.zeros(_INITIAL_SENTENCES, np.int64),
            waits_for_best=np.zeros(_INITIAL_SENTENCES, np.int64),
            penalties=np.zeros(_INITIAL_SENTENCES, np.float32),
        )

    @property
    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """All arrays by name."""
        return {name: getattr(self, name) for name in _BEAM_ARRAYS}

    def make_room(self, num_sentences: int, num_columns: int) -> None:
        """Have room for so many; what grows is doubled, so that the copies cost little per sentence."""
        if num_sentences > len(self.scores):
            for name in _BEAM_ARRAYS:
                setattr(self, name, _doubled(getattr(self, name)))
            self.addresses = None
        columns = self.tokens.shape[1]
        if num_columns > columns:
            added = ((0, 0), (0, max(num_columns, 2 * columns) - columns), (0, 0))
            self.tokens, self.parents = np.pad(self.tokens, added), np.pad(self.parents, added)
            self.addresses = None

    def trace(self, index: int, length: int, place: int) -> list[int]:
        """Return the tokens of a hypothesis whose last one, left out, has this number and extends this place."""
        if self.addresses is not None:
            return self.addresses.trace(index, length, place)  # type: ignore[no-any-return]
        tokens, parents = self.tokens[index, :length].tolist(), self.parents[index, :length].tolist()
        backwards = []
        for column in range(length - 1, 0, -1):
            backwards.append(tokens[column][place])
            place = parents[column][place]
        return backwards[::-1]

    def move(self, indices: int | Ints, targets: int | Ints) -> None:
        """Give sentences the numbers of others."""
        past = slice(int(self.num_steps[indices].max()) + 1)
        for history in (self.tokens, self.parents):
            history[targets, past] = history[indices, past]
        for array in self.arrays.values():
            if array.ndim < 3:
                array[targets] = array[indices]


_BEAM_ARRAYS = tuple(each.name for each in fields(Beams) if each.name != "addresses")


class Ending(NamedTuple):
    """A finished hypothesis: its last token, and where the walk back begins."""

    score: float  # normalised
    length: int  # tokens, the last included
    parent: int
    token: int


@dataclass(slots=True)
class StepOutcome:
    """What a step has made of the hypotheses.  The caller removes finished and non-finite sentences before the next."""

    parents: Ints  # [B, K]: which hypothesis each place of the beam goes on from
    finished: list[int]  # sentences that have ended
    non_finite: list[int]  # sentences for which the model produced NaN or infinity
    undecided: list[int]  # sentences of which a hypothesis may end: they are extended as if none did
    endings: list[tuple[int, Ending]] = field(default_factory=list)  # the hypotheses of other sentences that have ended


@dataclass(frozen=True, slots=True)
class Candidates:
    """The best extensions of every live sentence, best first."""

    scores: Floats  # [B, C]: `BeamSearch.scores` of the parent plus the token's log-probability, descending
    tokens: Ints  # [B, C]
    parents: Ints  # [B, C]: the hypothesis that is extended, 0 <= parent < K
    check: Floats  # [B]: NaN or plus infinity where the log-probabilities are

    def extend(self, beams: Beams, end: int, *, ends_usually: bool) -> StepOutcome:
        """Extend every sentence's hypotheses by its K best candidates; with one hypothesis, `scores` become its sums.

        The slow, obvious form of what the library in C++ does for its own candidates.

        Args:
            beams: what is extended.
            end: the token that ends a hypothesis.
            ends_usually: whether sentences end as CTranslate2's do, so that they may be ended here.
        """
        non_finite = find_non_finite(self)
        live, beam = slice(len(self.scores)), slice(beams.scores.shape[1])
        num_steps = beams.num_steps[live]
        num_steps += 1
        if beams.scores.shape[1] == 1:
            np.add(self.scores, beams.scores[live], out=self.scores)
        tokens, parents = self.tokens[:, beam], self.parents[:, beam].copy()
        beams.scores[live], beams.newest[live] = self.scores[:, beam], tokens
        places = np.arange(len(tokens)), num_steps
        beams.tokens[places], beams.parents[places] = tokens, parents
        is_due = (num_steps % LOOP_STRIDE == 0) & (num_steps >= LOOP_TOKENS)
        may_end = ((tokens == end).any(axis=1) | (num_steps == beams.max_steps[live]) | is_due) & ~non_finite
        return StepOutcome(parents, [], non_finite.nonzero()[0].tolist(), may_end.nonzero()[0].tolist())


def find_non_finite(candidates: Candidates) -> Booleans:
    """Return [B], true for sentences for which the model produced NaN or +inf, or nothing that is possible.

    Minus infinity behind the first place is no fault: it forbids a token.
    """
    is_number: Booleans = candidates.check < np.inf
    is_possible: Booleans = candidates.scores[:, 0] > -np.inf  # also false of NaN
    return ~(is_number & is_possible)


def _doubled(array: npt.NDArray[Scalar]) -> npt.NDArray[Scalar]:
    return np.concatenate([array, array])
