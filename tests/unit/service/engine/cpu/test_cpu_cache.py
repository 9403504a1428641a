"""Every hypothesis sees its own past and nothing else, whatever joins, is reordered, compacted, moved or removed."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from model.config import ModelConfig
from service.engine.cpu.runner import MASKED, SELF_COLUMNS, CpuCache, CpuEncoded

MODEL = ModelConfig(num_decoder_layers=2, num_heads=3, head_width=2)
Ints = npt.NDArray[np.int64]


def encoded(*lengths: int, seed: int = 0) -> CpuEncoded:
    """Random keys and values, also in the padding."""
    rng = np.random.default_rng(seed)
    shape = (len(lengths), MODEL.num_heads, max(lengths), MODEL.d_head)
    arrays = [rng.normal(size=shape).astype(np.float32) for _ in range(2 * MODEL.num_decoder_layers)]
    return CpuEncoded(arrays, np.array(lengths, np.int32))


def contents(array: int, numbers: Sequence[int]) -> npt.NDArray[np.float32]:
    """[H, C, d_head]: what steps write to the columns of these numbers in the given array; float32 holds it exactly."""
    place = 10 * np.arange(MODEL.num_heads)[:, None, None] + np.arange(MODEL.d_head)
    return np.asarray(100 * np.array(numbers).reshape(1, -1, 1) + 50 * (array % 2) + place + array // 2 / 2, np.float32)


@dataclass
class Past:
    """A sentence as the oracle has it."""

    source: list[npt.NDArray[np.float32]]  # 2 L arrays [H, S, d_head]
    columns: list[list[int]]  # by hypothesis: the numbers of its columns, oldest first
    num_steps: int = 0


@dataclass
class CheckedCache:
    """A cache beside lists of what each hypothesis must see."""

    beam_size: int
    cache: CpuCache = field(init=False)
    pasts: list[Past] = field(default_factory=list)
    num_columns: int = 0  # written so far, by any sentence

    def __post_init__(self) -> None:
        self.cache = CpuCache(MODEL, self.beam_size)

    def append(self, source: CpuEncoded, indices: Sequence[int]) -> None:
        """Let these sentences of what was encoded join."""
        self.cache.append(source, indices)
        for index in indices:
            kept = [array[index, :, : source.lengths[index]].copy() for array in source.arrays]
            self.pasts.append(Past(kept, [[] for _ in range(self.beam_size)]))

    def step(self, parents: Ints) -> None:
        """One decoder step, after which each hypothesis [B, K] goes on from its parent."""
        self.cache.prepare()
        self._write()
        assert ((self.cache.mask == 0.0).sum(axis=-1) == self.cache.past_lengths[:, :, None] + 1).all()
        self.cache.advance(parents)
        for past, order in zip(self.pasts, parents.tolist(), strict=True):
            past.columns = [list(past.columns[parent]) for parent in order]
            past.num_steps += 1

    def _write(self) -> None:
        """As the step graph: K columns a sentence."""
        arrays = self.cache.self_arrays()
        for index, past in enumerate(self.pasts):
            first = self.cache.columns[index]
            assert first + self.beam_size <= arrays[0].shape[2]
            new = range(self.num_columns, self.num_columns + self.beam_size)
            for number, array in enumerate(arrays):
                array[index, :, first : first + self.beam_size] = contents(number, new)
            for columns, number in zip(past.columns, new, strict=True):
                columns.append(number)
            self.num_columns = new.stop

    def remove(self, index: int, *, is_finite: bool = True) -> None:
        """Let a sentence leave; one that is not finite has left NaN everywhere."""
        if not is_finite:
            for array in [*self.cache.self_arrays(), *self.cache.cross_arrays()]:
                array[index] = np.nan
        self.cache.remove(index, is_finite=is_finite)
        self.pasts[index] = self.pasts[-1]
        self.pasts.pop()

    def check(self) -> None:
        cache = self.cache
        assert cache.num_sentences == len(self.pasts)
        assert cache.past_lengths[:, 0].tolist() == [past.num_steps for past in self.pasts]
        assert cache.source_lengths.tolist() == [past.source[0].shape[1] for past in self.pasts]
        for index, past in enumerate(self.pasts):
            for stored, source in zip(cache.cross_arrays(), past.source, strict=True):
                assert np.array_equal(stored[index, :, : source.shape[1]], source)
            for hypothesis, numbers in enumerate(past.columns):
                self._check_hypothesis(index, hypothesis, numbers)
        assert all(np.isfinite(slots).all() for slots in (cache._own, cache._cross))

    def _check_hypothesis(self, index: int, hypothesis: int, numbers: list[int]) -> None:
        mask = self.cache.mask[index, 0, hypothesis]
        is_seen = mask == 0.0
        assert (is_seen | (mask == MASKED)).all()
        for number, array in enumerate(self.cache.self_arrays()):
            assert np.array_equal(array[index][:, is_seen], contents(number, numbers))


def random_parents(rng: np.random.Generator, num_sentences: int, beam_size: int) -> Ints:
    return rng.integers(0, beam_size, (num_sentences, beam_size))


def own_parents(num_sentences: int, beam_size: int) -> Ints:
    """Nobody takes another's place, so that nothing can be squeezed out."""
    return np.tile(np.arange(beam_size), (num_sentences, 1))


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
