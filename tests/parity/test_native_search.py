"""The native library keeps the slots of a GPU as NumPy does, to the bit."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from service.engine.cuda.slots import NativeSlots, Slots, StepMemory

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
