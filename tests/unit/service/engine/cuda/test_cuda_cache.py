"""Slots on a device hold what slots in this process hold, whatever is moved, squeezed, resized and filled."""

import ctypes
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnxruntime as ort
import pytest
from onnx import TensorProto

from export.builder import WeightFile, save_graphs
from export.cuda import arrange_graph
from service.engine.cpu.cache import CpuEncoded, CpuSlots
from service.engine.cpu.session import open_session
from service.engine.cuda.cache import CudaEncoded, CudaSlots, CudaStorage
from service.engine.key_value_cache import MASKED, CacheShape
from tests.fakes.tiny_model import tiny_config

CONFIG = tiny_config()
SHAPE = CacheShape.of(CONFIG)
COLUMNS = 16

Array = npt.NDArray[np.float32]


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> CudaStorage:
    directory: Path = tmp_path_factory.mktemp("graphs")
    weights = WeightFile()
    graphs = {
        "arrange.onnx": arrange_graph(CONFIG, TensorProto.FLOAT, weights),
        "extend.onnx": arrange_graph(CONFIG, TensorProto.FLOAT, weights, extends=True),
    }
    save_graphs(graphs, directory)
    arrange, extend = (open_session(directory / name, 1) for name in graphs)
    return CudaStorage("cpu", arrange, extend, dtype=np.float32, masked=MASKED)


class Pair:
    """Both kinds of slots, to which the same is done."""

    def __init__(self, storage: CudaStorage) -> None:
        self.here = CpuSlots(SHAPE, COLUMNS)
        self.there = CudaSlots(SHAPE, storage, COLUMNS)
        self.num_slots = 0
        self.random = np.random.default_rng(7)

    def append(self, lengths: Sequence[int]) -> None:
        first, self.num_slots = self.num_slots, self.num_slots + len(lengths)
        for slots in (self.here, self.there):
            slots.resize(first, self.num_slots, slots.num_columns)
        shape = (2 * SHAPE.num_layers, len(lengths), SHAPE.num_heads, max(lengths), SHAPE.d_head)
        arrays = self.random.normal(size=shape).astype(np.float32)
        sizes = np.array(lengths, np.int32)
        self.here.fill(first, CpuEncoded(list(arrays), sizes), range(len(lengths)))
        memory = ort.OrtValue.ortvalue_from_numpy(arrays, "cpu", 0)
        self.there.fill(first, CudaEncoded(memory, sizes, max(lengths)), range(len(lengths)))

    def write(self, slot: int) -> None:
        """What a step does: new numbers in some columns of every array."""
        self.there.settle(self.num_slots)
        numbers = self.random.normal(size=(2 * SHAPE.num_layers, SHAPE.num_heads, 3, SHAPE.d_head)).astype(np.float32)
        for array, values in zip(self.here.views(self.num_slots), numbers, strict=True):
            array[slot, :, :3] = values
        for array, values in zip(self.arrays_there(), numbers, strict=True):
            array[slot, :, :3] = values

    def arrays_there(self) -> list[Array]:
        shape = (self.num_slots, SHAPE.num_heads, self.there.address.num_columns, SHAPE.d_head)
        return [_at(address, shape) for address in self.there.addresses()]

    def both(self, method: str, *arguments: object) -> None:
        for slots in (self.here, self.there):
            getattr(slots, method)(*arguments)

    def assert_same(self, columns: Sequence[int]) -> None:
        """The first columns of each slot are the same; the others are finite."""
        assert self.there.settle(self.num_slots) >= self.num_slots
        for one, other in zip(self.here.views(self.num_slots), self.arrays_there(), strict=True):
            assert np.isfinite(other).all()
            for slot, width in enumerate(columns):
                assert np.array_equal(one[slot, :, :width], other[slot, :, :width])


def _at(address: int, shape: tuple[int, ...]) -> Array:
    size = int(np.prod(shape))
    return np.ctypeslib.as_array(ctypes.cast(address, ctypes.POINTER(ctypes.c_float)), (size,)).reshape(shape)


def test_a_cleared_slot_holds_zeros_in_both_memories(storage):
    pair = Pair(storage)
    pair.append([16, 16])
    for array in pair.arrays_there():
        array[1] = np.nan

    pair.both("clear", 1)
    pair.assert_same([16, 16])
    pair.there.resize(2, 40, COLUMNS)  # moved twice: what was poisoned is written over
    pair.both("resize", 2, 2, 32)

    pair.assert_same([16, 16])
    assert all((array[1] == 0).all() for array in pair.arrays_there())


def load(pair: Pair, num_sentences: int) -> None:
    for _ in range(num_sentences // 20):
        pair.append([16] * 20)
    pair.both("resize", num_sentences, num_sentences, 2 * COLUMNS)
    pair.there.settle(num_sentences)


def leave(pair: Pair, num_left: int) -> None:
    """Sentences in front end, and the last one moves to their place."""
    while pair.num_slots > num_left:
        pair.num_slots -= 1
        pair.both("move", pair.num_slots, pair.num_slots % num_left, 16)


def test_memory_that_is_held_counts_as_growth_however_few_slots_are_laid_out(storage):
    pair = Pair(storage)
    load(pair, 400)

    leave(pair, 3)
    pair.there.settle(3)

    assert pair.there.address.capacity < 8
    assert pair.there.has_grown


def test_a_load_that_comes_and_goes_allocates_nothing_new(storage):
    pair = Pair(storage)
    load(pair, 400)
    pair.there.clear(0)
    pair.there.settle(400)  # both memories are large now
    generation = pair.there.generation

    for _ in range(3):
        for num_left in (200, 80, 20, 4):
            leave(pair, num_left)
            pair.there.settle(num_left)
        pair.both("resize", 4, 4, 2 * COLUMNS)
        while pair.num_slots < 400:
            pair.append([16] * 20)

    assert pair.there.generation == generation


@pytest.mark.parametrize("seed", range(5))
def test_any_sequence_leaves_both_the_same(storage, seed):
    random, pair, widths = np.random.default_rng(seed), Pair(storage), list[int]()
    for _ in range(60):
        match int(random.integers(0, 5)) if pair.num_slots else 0:
            case 0:
                lengths = random.integers(
                    1, min(COLUMNS, pair.here.num_columns) + 1, int(random.integers(1, 6))
                ).tolist()
                pair.append(lengths)
                widths += lengths
            case 1:
                index, last = int(random.integers(pair.num_slots)), pair.num_slots - 1
                if index != last:
                    pair.both("move", last, index, widths[last])
                    widths[index] = widths[last]
                widths.pop()
                pair.num_slots = last
            case 2:
                slot = int(random.integers(pair.num_slots))
                kept = np.flatnonzero(random.random(widths[slot]) < 0.7)
                if kept.size:
                    pair.both("keep_columns", slot, kept)
                    widths[slot] = kept.size
            case 3:
                columns = int(random.choice([16, 32, 48]))
                pair.both("resize", pair.num_slots, pair.num_slots, columns)
            case _:
                slot = int(random.integers(pair.num_slots))
                pair.write(slot)
                widths[slot] = max(widths[slot], 3)
        pair.assert_same(widths)
