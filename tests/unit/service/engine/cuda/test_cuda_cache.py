"""Slots in one memory hold what arrays of their own hold, whatever is moved, widened, narrowed, filled and cleared."""

import ctypes
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import onnxruntime as ort
import pytest

from model.config import ModelConfig
from service.engine.cpu.runner import MASKED
from service.engine.cuda.kv_cache import (
    HALF_MASKED,
    CachePool,
    CudaEncoded,
    CudaState,
    SlotMemory,
)
from service.engine.cuda.memory import Layout, Rows
from service.engine.cuda.slots import StepMemory
from service.engine.device_errors import DeviceOutOfMemory
from tests.fakes.host_device import HostDevice

MODEL = ModelConfig(num_decoder_layers=2, num_heads=3, head_width=4)
ARRAYS = 2 * MODEL.num_decoder_layers
BEAM = 4

Array = npt.NDArray[np.float32]


def array_at(address: int, shape: tuple[int, ...]) -> Array:
    """Return memory as an array that shares it."""
    size = int(np.prod(shape))
    return np.ctypeslib.as_array(ctypes.cast(address, ctypes.POINTER(ctypes.c_float)), (size,)).reshape(shape)


def views(slots: SlotMemory, num_slots: int) -> list[Array]:
    shape = (num_slots, MODEL.num_heads, slots.num_columns, MODEL.d_head)
    return [array_at(address, shape) for address in slots.addresses()]


def encoded(lengths: Sequence[int], random: np.random.Generator) -> CudaEncoded:
    shape = (ARRAYS, len(lengths), MODEL.num_heads, max(lengths), MODEL.d_head)
    memory = ort.OrtValue.ortvalue_from_numpy(random.normal(size=shape).astype(np.float32), "cpu", 0)
    return CudaEncoded(memory, np.array(lengths, np.int32), max(lengths))


@pytest.mark.parametrize("seed", range(5))
def test_slots_keep_what_they_hold_whatever_moves(seed):
    random, slots = np.random.default_rng(seed), SlotMemory(MODEL, HostDevice(), 4, 64)
    expected: list[Array] = []  # of each slot: [A, H, C, d], as far as it was written
    for _ in range(60):
        match int(random.integers(0, 5)) if expected else 0:
            case 0:
                lengths = random.integers(1, 33, int(random.integers(1, 6))).tolist()
                batch, first = encoded(lengths, random), len(expected)
                slots.fit(first + len(lengths), slots.num_columns, first)
                indices = random.permutation(len(lengths)).tolist()
                slots.fill(range(first, first + len(lengths)), batch, indices)
                arrays = batch.memory.numpy()  # shares its memory
                expected += [arrays[:, index, :, : lengths[index]].copy() for index in indices]
            case 1:
                number = int(random.integers(len(expected) // 2 + 1))
                sources, targets = random.permutation(len(expected))[: 2 * number].reshape(2, number).tolist()
                slots.move(sources, targets)
                for source, target in zip(sources, targets, strict=True):
                    expected[target] = expected[source].copy()
            case 2:
                slot = int(random.integers(len(expected)))
                slots.clear(slot)
                expected[slot] = np.zeros((ARRAYS, MODEL.num_heads, slots.num_columns, MODEL.d_head), np.float32)
            case 3:
                columns = int(random.choice([32, 64, 128, 192, 256]))
                slots.fit(len(expected), columns, len(expected))
                expected = [array[:, :, :columns] for array in expected]
            case _:
                slot = int(random.integers(len(expected)))
                numbers = random.normal(size=(ARRAYS, MODEL.num_heads, 3, MODEL.d_head)).astype(np.float32)
                expected[slot] = np.concatenate([numbers, expected[slot][:, :, 3:]], axis=2)
                for array, values in zip(views(slots, len(expected)), numbers, strict=True):
                    array[slot, :, :3] = values
        for number, array in enumerate(views(slots, len(expected))):
            assert np.isfinite(array).all()
            for slot, wanted in enumerate(expected):
                assert np.array_equal(array[slot, :, : wanted.shape[2]], wanted[number])


def state_of(num_sentences: int, pool: CachePool | None = None) -> CudaState:
    state = CudaState(pool or CachePool(MODEL, HostDevice(), MASKED), BEAM)
    state.append(encoded([5] * num_sentences, np.random.default_rng(1)), range(num_sentences))
    return state


def written(state: CudaState) -> dict[str, npt.NDArray[np.generic]]:
    """What the next step is told."""
    state.prepare()
    rows = (state.num_slots, state.beam_size)
    layout = Layout(state.step_inputs(rows[0]) | {"tokens": (rows, np.int64), "scores": ((*rows, 1), np.float32)})
    told = StepMemory(given=layout.views(np.full(layout.size, 255, np.uint8)), found={})
    state.slots.lay_out(told.given["new_places"])
    tokens = np.arange(state.num_sentences * state.beam_size).reshape(-1, state.beam_size)
    state.slots.write(told, tokens, -tokens.astype(np.float32))
    return told.given


def step(state: CudaState, random: np.random.Generator) -> npt.NDArray[np.generic]:
    columns = written(state)["new_places"][state.slot_numbers, :, 0, 0, 2]
    state.advance(random.integers(0, BEAM, (state.num_sentences, BEAM)))
    return columns


def test_a_slot_that_is_freed_is_the_next_ones_and_nothing_else_moves():
    state = state_of(6)
    slots = state.slot_numbers.tolist()

    state.remove(1)
    state.append(encoded([7], np.random.default_rng(2)), [0])

    assert state.slot_numbers.tolist() == [slots[0], slots[5], *slots[2:5], slots[1]]


@pytest.mark.parametrize("masked", [MASKED, HALF_MASKED])
@pytest.mark.parametrize("beam_size", [1, 4, 7])
def test_a_hypothesis_sees_its_own_past_alone_and_writes_the_first_free_column(beam_size, masked):
    random, state = np.random.default_rng(3), CudaState(CachePool(MODEL, HostDevice(), masked), beam_size)
    pasts: list[list[set[int]]] = []  # of each sentence, the columns of each hypothesis
    most_columns = 0
    for _ in range(300):
        while not pasts or random.random() < 0.05:
            state.append(encoded([5], random), [0])
            pasts.append([set() for _ in range(beam_size)])

        arrays = written(state)

        most_columns = max(most_columns, state.own.num_columns)
        for slot, past in zip(state.slot_numbers.tolist(), pasts, strict=True):
            free = sorted(set(range(state.own.num_columns)) - set().union(*past))
            mask = arrays["self_mask"][slot, 0]
            for k, columns in enumerate(past):
                columns.add(free[k])
                assert set(np.flatnonzero(mask[k] == 0).tolist()) == columns
                assert (mask[k] == masked).sum() == state.own.num_columns - len(columns)
            assert arrays["new_places"][slot, :, 0, 0].tolist() == [[slot, 0, free[k], 0] for k in range(beam_size)]
        parents = random.integers(0, beam_size, (len(pasts), beam_size))
        state.advance(parents)
        pasts = [[set(past[parent]) for parent in row] for past, row in zip(pasts, parents.tolist(), strict=True)]
        while len(pasts) > 1 and random.random() < 0.02:
            index = int(random.integers(len(pasts)))
            state.remove(index)
            pasts[index] = pasts[-1]
            pasts.pop()
    assert most_columns > 128


def test_sentences_that_remain_move_together_so_that_steps_become_small():
    state = state_of(64)
    written(state)
    assert state.num_slots == 64

    for _ in range(61):
        state.remove(0)
    written(state)

    assert state.num_slots == 4


def test_memory_beyond_what_is_reserved_fails_the_batch_that_asks_for_it():
    state = state_of(1)

    with pytest.raises(DeviceOutOfMemory, match="are reserved"):
        state.reserve(1 << 16, 256, 64)


def test_copies_move_rows_of_slots_between_memories_of_other_strides():
    device = HostDevice()
    source, target = device.allocate(2 * 2 * 2 * 8), device.allocate(2 * 3 * 2 * 16)
    array_at(source.address, (16,))[:] = np.arange(16)

    rows = Rows(source.address, 8, 16, 32), Rows(target.address, 16, 32, 96)
    device.copy(*rows, (2, 2), [(1, 0, 8), (0, 2, 4)])

    moved = array_at(target.address, (2, 3, 2, 4))  # [A, N, H, d]
    assert moved[:, 0, :, :2].tolist() == [[[4, 5], [6, 7]], [[12, 13], [14, 15]]]
    assert moved[:, 2, :, :2].tolist() == [[[0, 0], [2, 0]], [[8, 0], [10, 0]]]
    assert not moved[..., 2:].any()
    assert not moved[:, 1].any()
