"""A runner on the counted GPU whose candidates come from the same graphs on the CPU: beams and ends are real."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from service.engine.beams import Candidates, Floats, Ints
from service.engine.logits import Edits
from service.engine.wire import HeadWeights, SchedulerConfig, TokenScores


@dataclass(frozen=True)
class _BothEncoded:
    here: Any
    there: Any

    @property
    def num_columns(self) -> int:
        return int(self.here.num_columns)


class _BothStates:
    def __init__(self, here: Any, there: Any) -> None:
        self.here, self.there = here, there

    @property
    def has_grown(self) -> bool:
        return bool(self.there.has_grown)

    def append(self, encoded: _BothEncoded, indices: Sequence[int]) -> None:
        self.here.append(encoded.here, indices)
        self.there.append(encoded.there, indices)

    def remove(self, index: int, *, is_finite: bool = True) -> None:
        self.here.remove(index, is_finite=is_finite)
        self.there.remove(index, is_finite=is_finite)

    def advance(self, parents: Ints) -> None:
        self.here.advance(parents)
        self.there.advance(parents)


class TwinRunner:
    """Does everything twice and returns what the runner `here` found."""

    has_scorer = False

    def __init__(self, here: Any, there: Any) -> None:
        """Take a runner on the CPU and one on the counted GPU."""
        self.here, self.there = here, there
        self.profile, self.warm_up_source = there.profile, there.warm_up_source
        self.num_steps = 0

    def budgets(self, wanted: SchedulerConfig) -> SchedulerConfig:
        return self.there.budgets(wanted)  # type: ignore[no-any-return]

    def new_state(self, beam_size: int, *, use_shortlist: bool = False) -> _BothStates:
        states = [runner.new_state(beam_size, use_shortlist=use_shortlist) for runner in (self.here, self.there)]
        return _BothStates(*states)

    def encode(self, sources: Sequence[Sequence[int]]) -> _BothEncoded:
        return _BothEncoded(self.here.encode(sources), self.there.encode(sources))

    def score(self, encoded: Sequence[tuple[Any, int]], translations: Sequence[Sequence[int]]) -> list[TokenScores]:
        raise NotImplementedError

    def head_weights(self, source: Sequence[int], translation: Sequence[int]) -> HeadWeights:
        raise NotImplementedError

    def decode_step(
        self, tokens: Ints, scores: Floats, state: Any, edits: Edits | None = None, *, num_candidates: int
    ) -> Candidates:
        self.num_steps += 1
        self.there.decode_step(tokens, scores, state.there, edits, num_candidates=num_candidates)
        found: Candidates = self.here.decode_step(tokens, scores, state.here, edits, num_candidates=num_candidates)
        return found
