"""The engine's code for a GPU, on the CPU: the graphs that a GPU runs, opened here, in float16 or in float32.

In float32 the CPU engine's graphs have the same numbers, so that whatever differs is the fault of how keys and values
move.
"""

from pathlib import Path

import numpy as np
from onnx import TensorProto

from export.linear import FloatProducts
from export.onnx_export import write_cuda_graphs
from model.bundle import Bundle
from model.transformer import Transformer
from service.engine.cpu.session import open_session
from service.engine.cuda.cache import CudaStorage
from service.engine.cuda.runner import GRAPHS, CudaRunner
from service.engine.key_value_cache import MASKED
from tests.fakes.tiny_model import state_of


def device_runner(bundle: Bundle, graphs: Path) -> CudaRunner:
    """A runner of float16 graphs in a directory, on the CPU."""
    sessions = {name: open_session(graphs / f"{name}.onnx", 1) for name in GRAPHS}
    return CudaRunner(bundle, sessions, "cpu")


def float32_twin(bundle: Bundle, model: Transformer, directory: Path) -> CudaRunner:
    """The same with float32 in all places."""
    write_cuda_graphs(model.config, state_of(model), FloatProducts(dtype=TensorProto.FLOAT), directory)
    sessions = {name: open_session(directory / f"{name}.onnx", 1) for name in GRAPHS}
    storage = CudaStorage("cpu", sessions["arrange"], sessions["extend"], dtype=np.float32, masked=MASKED)
    return CudaRunner(bundle, sessions, "cpu", storage=storage)
