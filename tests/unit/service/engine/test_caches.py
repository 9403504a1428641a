"""What the caches of decoder steps take and give back; that they hold the right numbers, results show.

`FakeRunner` keeps tokens in the CPU's cache, so that a wrong column is another translation, and `tests/parity` has
real models in both kinds of cache.
"""

import numpy as np
import onnxruntime as ort
import pytest

from model.config import ModelConfig
from service.engine.cpu.runner import MASKED, SELF_COLUMNS, CpuCache, CpuEncoded
from service.engine.cuda.kv_cache import CachePool, CudaEncoded, CudaState
from service.engine.device_errors import DeviceOutOfMemory
from tests.fakes.host_device import HostDevice

MODEL = ModelConfig(num_decoder_layers=2, num_heads=3, head_width=4)
NUM_ARRAYS = 2 * MODEL.num_decoder_layers


def encoded(*lengths: int) -> CpuEncoded:
    shape = (len(lengths), MODEL.num_heads, max(lengths), MODEL.d_head)
    return CpuEncoded([np.zeros(shape, np.float32) for _ in range(NUM_ARRAYS)], np.array(lengths, np.int32))


def step(cache: CpuCache, parents: list[int]) -> int:
    """Decode once; every hypothesis of each sentence goes on from these.  Return the columns that there are."""
    cache.prepare()
    cache.advance(np.tile(parents, (cache.num_sentences, 1)))
    return int(cache.self_arrays()[0].shape[2])


@pytest.mark.parametrize("beam_size", [1, 4, 16])
def test_columns_that_no_hypothesis_sees_any_more_are_squeezed_out(beam_size):
    cache = CpuCache(MODEL, beam_size)
    cache.append(encoded(3), [0])

    most = max(step(cache, [0] * beam_size) for _ in range(100))  # one column a step stays

    assert most <= 2 * (100 + 8 * beam_size + 32 + SELF_COLUMNS)


def test_columns_that_only_an_ended_sentence_needed_are_given_back():
    cache = CpuCache(MODEL, 4)
    cache.append(encoded(3), [0])
    widest = max(step(cache, [0, 1, 2, 3]) for _ in range(50))

    cache.remove(0)
    cache.append(encoded(3), [0])

    assert widest >= 4 * 50
    assert step(cache, [0, 1, 2, 3]) < widest / 2


def on_a_device(num_sentences: int) -> CudaState:
    shape = (NUM_ARRAYS, num_sentences, MODEL.num_heads, 5, MODEL.d_head)
    memory = ort.OrtValue.ortvalue_from_numpy(np.zeros(shape, np.float32), "cpu", 0)
    state = CudaState(CachePool(MODEL, HostDevice(), MASKED), 4)
    state.append(CudaEncoded(memory, np.full(num_sentences, 5, np.int32), 5), range(num_sentences))
    return state


def test_sentences_that_remain_on_a_device_move_together_so_that_steps_become_small():
    state = on_a_device(64)
    state.prepare()
    assert state.num_slots == 64

    for _ in range(61):
        state.remove(0)
    state.prepare()

    assert state.num_slots == 4


def test_memory_beyond_what_is_reserved_on_a_device_fails_the_batch_that_asks_for_it():
    with pytest.raises(DeviceOutOfMemory, match="are reserved"):
        on_a_device(1).reserve(1 << 16, 256, 64)
