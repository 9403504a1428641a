"""The native library ends hypotheses and keeps the slots of a GPU as NumPy does, to the bit."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from model.config import USUAL_PROFILE
from service.engine.beam_search import BeamSearch
from service.engine.beams import Candidates
from service.engine.cpu.native.library import StepArrays
from service.engine.cuda.slots import NativeSlots, Slots, StepMemory
from service.engine.wire import SearchParams

pytestmark = pytest.mark.usefixtures("native_library")


def step_memory(num_slots: int, beam_size: int, num_words: int, masked: np.floating[Any]) -> StepMemory:
    """The host's side of a step of a GPU's graph, full of what an earlier step might have left."""
    rows, ranks = (num_slots, beam_size), (num_slots, 2 * beam_size)
    given = {
        "new_places": np.full((num_slots, beam_size, 1, 1, 4), -1),
        "past_lengths": np.full((num_slots, 1), -1),
        "source_lengths": np.full(num_slots, -1, np.int32),
        "self_mask": np.full((num_slots, 1, beam_size, 64 * num_words), 7, masked.dtype),
        "tokens": np.full(rows, -1),
        "scores": np.full((*rows, 1), 7, np.float32),
    }
    found: dict[str, npt.NDArray[Any]] = {
        "candidate_scores": np.zeros(ranks, np.float32),
        "candidate_ids": np.zeros(ranks, np.int64),
        "check": np.zeros(num_slots, np.float32),
    }
    return StepMemory(given=given, found=found)


@pytest.mark.parametrize("masked", [np.float16(-3e4), np.float32(-1e9)])
@pytest.mark.parametrize("beam_size", [1, 4, 7])
def test_the_library_keeps_the_slots_of_a_gpu_as_numpy_does_to_the_bit(beam_size, masked):
    rng, num_logits = np.random.default_rng(beam_size), 50
    both = Slots(beam_size, masked), NativeSlots(beam_size, masked)
    slots: list[int] = []  # of the sentences, with holes between them
    most_words = num_wrong = 0
    for _ in range(400):
        if len(slots) < 40 and rng.random() < 0.3:
            slots.append(min({*range(64)}.difference(slots)))
        gone = [slots.pop(int(rng.integers(len(slots))))] if slots and rng.random() < 0.1 else []
        for each in both:
            if max(slots, default=0) >= len(each):
                each.add()
            each.empty(gone)
            each.numbers[: len(slots)] = slots
            each.source_lengths[slots] = slots
        num_slots = max(slots, default=0) + 1
        counts = [each.count(num_slots) for each in both]
        assert counts[0] == counts[1]
        num_words = max(counts[0][1], -(-(counts[0][0] + beam_size) // 64), int(rng.integers(1, 4)))
        most_words = max(most_words, num_words)
        for each in both:
            each.resize(64 * num_words)
        steps = [step_memory(num_slots, beam_size, num_words, masked) for _ in both]
        rows, ranks = (len(slots), beam_size), (num_slots, 2 * beam_size)
        tokens, scores = rng.integers(0, num_logits, rows), rng.normal(size=rows).astype(np.float32)
        values = rng.normal(size=ranks), rng.integers(0, beam_size * num_logits, ranks), rng.normal(size=num_slots)
        values[1][rng.random(ranks) < 0.001] = rng.choice((-1, beam_size * num_logits, 2**62))
        for each, step in zip(both, steps, strict=True):
            each.write(step, tokens, scores)
            for array, value in zip(step.found.values(), values, strict=True):
                array[:] = value

        given, wanted = (each.candidates(step, len(slots), num_logits) for each, step in zip(both, steps, strict=True))

        for name in steps[0].given:
            assert steps[0].given[name].tobytes() == steps[1].given[name].tobytes()
        for name in ("scores", "tokens", "parents", "check"):
            assert getattr(given, name).tobytes() == getattr(wanted, name).tobytes()
        parents = wanted.parents[:, :beam_size]
        for each in both:
            each.advance(parents)
        assert both[0].past.tobytes() == both[1].past.tobytes()
        assert both[0].past_lengths.tobytes() == both[1].past_lengths.tobytes()
        num_wrong += int(np.isnan(given.check).sum())
    assert most_words > 2
    assert num_wrong


def test_the_library_refuses_a_step_whose_slots_have_too_few_columns():
    slots = NativeSlots(4, np.float16(-3e4))
    slots.past[1, 0, 0] = 2**61 - 1

    with pytest.raises(ValueError, match="dg_write_step"):
        slots.write(step_memory(2, 4, 1, np.float16(-3e4)), np.zeros((1, 4), np.int64), np.zeros((1, 4), np.float32))


def random_candidates(rng: np.random.Generator, rows: tuple[int, int], num_candidates: int, end: int) -> StepArrays:
    """Arrays of a step of some sentences, as the library might leave them."""
    arrays = StepArrays(*rows, num_candidates)
    arrays.best[:] = -np.sort(-rng.normal(-3.0, 2.0, arrays.best.shape))
    arrays.best[rng.random(arrays.best.shape) < 0.05] = -np.inf
    arrays.best_tokens[:] = rng.integers(0, 12, arrays.best.shape)
    arrays.best_tokens[rng.random(arrays.best.shape) < 0.1] = end
    arrays.parents[:] = rng.integers(0, rows[1], arrays.best.shape)
    arrays.check[rng.random(rows[0]) < 0.2] = rng.choice((np.nan, np.inf, -np.inf))
    return arrays


@pytest.mark.parametrize("beam_size", [1, 2, 5])
def test_the_library_ends_hypotheses_and_sentences_as_python_does_to_the_bit(beam_size):
    rng, most = np.random.default_rng(beam_size), 2 * beam_size
    searches = BeamSearch(beam_size), BeamSearch(beam_size)
    ended = 0
    for _ in range(300):
        while searches[0].num_sentences < 6:
            params = SearchParams(
                beam_size=beam_size,
                num_hypotheses=int(rng.integers(1, beam_size + 1)),
                length_penalty=float(rng.choice([0.0, 0.6, 1.0])),
                patience=float(rng.choice([1.0, 2.0])),
                max_target_tokens=int(rng.integers(1, 80)),
                stop_repetition=bool(rng.random() < 0.5),
            )
            for search in searches:
                search.add(params)
        arrays = random_candidates(rng, (6, beam_size), most, USUAL_PROFILE.end)
        plain = Candidates(arrays.best.copy(), arrays.best_tokens, arrays.parents, arrays.check)

        wanted, given = searches[0].advance(plain), searches[1].advance(arrays.candidates)

        assert (sorted(given.finished), given.non_finite) == (sorted(wanted.finished), wanted.non_finite)
        for index in sorted({*wanted.finished, *wanted.non_finite}, reverse=True):
            assert searches[1].hypotheses(index) == searches[0].hypotheses(index)
            ended += len(searches[0].hypotheses(index))
            for search in searches:
                search.remove(index)
        assert searches[1].tokens.tolist() == searches[0].tokens.tolist()
        assert searches[1].scores.tobytes() == searches[0].scores.tobytes()
    assert ended > 50
