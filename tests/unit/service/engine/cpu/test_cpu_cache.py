"""Every hypothesis sees its own past and nothing else, whatever joins, is reordered, compacted, moved or removed."""

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from service.engine.cpu.runner import SELF_COLUMNS
from tests.fakes.checked_cache import (
    CheckedCache,
    encoded,
    own_parents,
    random_parents,
)


class AnySequence(RuleBasedStateMachine):
    """What the loop may do to a cache, in any order."""

    @initialize(beam_size=st.sampled_from([1, 2, 3, 5, 8]))
    def start(self, beam_size: int) -> None:
        self.checked = CheckedCache(beam_size)

    @property
    def num_sentences(self) -> int:
        return self.checked.cache.num_sentences

    @precondition(lambda self: self.num_sentences < 40)
    @rule(lengths=st.lists(st.integers(1, 50), min_size=1, max_size=5), seed=st.integers(0, 99))
    def some_join(self, lengths: list[int], seed: int) -> None:
        chosen = np.random.default_rng(seed).permutation(len(lengths))[: 1 + seed % len(lengths)]
        self.checked.append(encoded(*lengths, seed=seed), chosen.tolist())

    @precondition(lambda self: self.num_sentences < 30)
    @rule(count=st.integers(30, 50))
    def many_join_at_once(self, count: int) -> None:
        self.checked.append(encoded(*[2] * count, seed=count), range(count))

    @precondition(lambda self: self.num_sentences)
    @rule(seed=st.integers(0, 10**6), num_steps=st.integers(1, 12), is_reordered=st.booleans())
    def decode(self, seed: int, num_steps: int, *, is_reordered: bool) -> None:
        rng, shape = np.random.default_rng(seed), (self.num_sentences, self.checked.beam_size)
        for _ in range(num_steps):
            self.checked.step(random_parents(rng, *shape) if is_reordered else own_parents(*shape))

    @precondition(lambda self: self.num_sentences)
    @rule(number=st.integers(0, 10**6), is_finite=st.booleans())
    def one_leaves(self, number: int, *, is_finite: bool) -> None:
        self.checked.remove(number % self.num_sentences, is_finite=is_finite)

    @precondition(lambda self: self.num_sentences)
    @rule(number=st.integers(0, 10**6))
    def all_but_one_leave(self, number: int) -> None:
        rng = np.random.default_rng(number)
        while self.num_sentences > 1:
            self.checked.remove(int(rng.integers(self.num_sentences)))

    @invariant()
    def every_hypothesis_sees_its_own_past(self) -> None:
        self.checked.check()


TestAnySequence = AnySequence.TestCase


TestAnySequence.settings = settings(max_examples=20, stateful_step_count=15, deadline=None)


BEAM_SIZES = (1, 4, 5, 16)


@pytest.mark.parametrize("beam_size", BEAM_SIZES)
def test_columns_that_no_hypothesis_sees_any_more_are_squeezed_out(beam_size):
    checked = CheckedCache(beam_size)
    checked.append(encoded(3), [0])
    most = 0
    for _ in range(100):
        checked.step(np.zeros((1, beam_size), np.int64))  # all go on from the first: one column a step stays
        most = max(most, int(checked.cache.columns[0]))

    between_two_squeezes = 8 * beam_size + 32 + SELF_COLUMNS  # at most
    assert most <= 100 + between_two_squeezes
    assert checked.cache.self_arrays()[0].shape[2] <= 2 * (100 + between_two_squeezes)


def test_self_columns_that_only_an_ended_sentence_needed_are_given_back():
    def columns() -> int:
        return int(checked.cache.self_arrays()[0].shape[2])

    checked = CheckedCache(4)
    checked.append(encoded(3), [0])
    narrowest = columns()
    for _ in range(50):
        checked.step(own_parents(1, 4))
    widest = columns()
    checked.append(encoded(3, 4), [0, 1])
    assert columns() == widest >= 4 * 50

    checked.remove(0)
    checked.append(encoded(3), [0])

    assert columns() == narrowest
    checked.check()
