"""What a decoder step is told, in a block that steps of all shapes share."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import onnxruntime as ort

from service.engine.cpu.runner import MASKED
from service.engine.cuda.kv_cache import CachePool, CudaEncoded, CudaState
from service.engine.cuda.memory import HostDevice
from service.engine.cuda.steps import Steps
from service.engine.runner import CacheShape, StepGraph, layer_names

SHAPE = CacheShape(num_layers=1, num_heads=3, d_head=4)


class NoGraph:
    """A session that may be bound."""

    def io_binding(self) -> Any:
        def ignore(*_: object) -> None: ...

        return SimpleNamespace(bind_input=ignore, bind_output=ignore, bind_ortvalue_input=ignore)

    def get_inputs(self) -> list[Any]:
        names = [name for kind in ("cross", "self") for name in layer_names(kind, SHAPE.num_layers)]
        return [SimpleNamespace(name=name, shape=["B", SHAPE.num_heads, "T", SHAPE.d_head]) for name in names]


def state_of(pool: CachePool, num_sentences: int, beam_size: int) -> CudaState:
    memory = np.zeros((2, num_sentences, SHAPE.num_heads, 5, SHAPE.d_head), np.float32)
    lengths = np.full(num_sentences, 5, np.int32)
    state = CudaState(pool, beam_size)
    state.append(CudaEncoded(ort.OrtValue.ortvalue_from_numpy(memory, "cpu", 0), lengths, 5), range(num_sentences))
    state.prepare()
    return state


def test_steps_of_other_shapes_leave_nothing_of_theirs_in_what_a_step_is_told():
    device = HostDevice()
    pool, graph = CachePool(SHAPE, device, MASKED), StepGraph(NoGraph(), takes_factors=True)
    steps = Steps(graph, device, SHAPE, 100, records=False)
    states = [state_of(pool, sentences, beam) for sentences, beam in ((3, 4), (40, 4), (9, 1), (3, 4))]

    for turn in range(3):
        for state in states[turn:] + states[:turn]:
            step = steps.step(state, state.num_slots, 8, 300 * turn)
            tokens = np.zeros((state.num_sentences, state.beam_size), np.int64)
            state.write(step, tokens, tokens.astype(np.float32))
            for name, array in step.given.items():
                if name not in state.step_inputs(0):
                    array[:] = -1

            places = step.given["new_places"][:, :, 0, 0]
            slots, hypotheses = np.indices(places.shape[:2])
            zeros = np.zeros_like(slots)
            assert np.array_equal(places, np.stack([slots, zeros, hypotheses, zeros], axis=2))
