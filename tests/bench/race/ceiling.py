"""What the machine could do: the speed of bare matrix products at the model's shapes, and the arithmetic of a sentence.

Products with weights only, all of them by ONNX Runtime, in as many threads at once as the race uses; what attention
multiplies is less than a hundredth of it and left out.  A multiplication and an addition are two operations.
"""

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from export.builder import CONTRIB_DOMAIN, IR_VERSION, OPSET, Array
from model.config import ModelConfig
from tests.bench.race.regimes import Work

ROWS = 128  # of each product: the live hypotheses of a full batch
MEASURE_S = 0.2  # each shape
_SAMPLES = 5


@dataclass(frozen=True, slots=True)
class Product:
    """A matrix product with weights [inputs, outputs], and how often a model has it."""

    inputs: int
    outputs: int
    count: int  # for one token

    @property
    def operations(self) -> int:
        """Of one row of all of them."""
        return 2 * self.inputs * self.outputs * self.count


def encoder_products(config: ModelConfig) -> list[Product]:
    """Of one source token, the keys and values for the decoder included."""
    d, layers = config.d_model, config.num_encoder_layers
    return [*_layer_products(config, layers), Product(d, 2 * d * config.num_decoder_layers, 1)]


def decoder_products(config: ModelConfig) -> list[Product]:
    """Of one hypothesis in one step."""
    d, layers = config.d_model, config.num_decoder_layers
    return [*_layer_products(config, layers), Product(d, d, 2 * layers), Product(d, config.vocab_size, 1)]


def _layer_products(config: ModelConfig, layers: int) -> list[Product]:
    """Self-attention and feed-forward."""
    d, inner = config.d_model, config.d_ff
    return [Product(d, 3 * d, layers), Product(d, d, layers), Product(d, inner, layers), Product(inner, d, layers)]


@dataclass(frozen=True, slots=True)
class Ceiling:
    """How fast bare products are, in operations per second, by [inputs, outputs]."""

    threads: int
    speeds: dict[tuple[int, int], float]

    def record(self) -> dict[str, float]:
        """As JSON, in GOP/s."""
        return {f"{inputs} x {outputs}": round(speed / 1e9, 1) for (inputs, outputs), speed in self.speeds.items()}

    def seconds(self, config: ModelConfig, work: Work, beam_size: int) -> float:
        """What this work would take if there were nothing but products, at full speed."""
        rows = [(work.source_tokens, encoder_products(config)), (work.steps * beam_size, decoder_products(config))]
        return sum(
            tokens * product.operations / self.speeds[product.inputs, product.outputs]
            for tokens, products in rows
            for product in products
        )


def operations(config: ModelConfig, work: Work, beam_size: int) -> float:
    """Of all products of this work."""
    of_token = sum(product.operations for product in encoder_products(config))
    of_step = sum(product.operations for product in decoder_products(config))
    return work.source_tokens * of_token + work.steps * beam_size * of_step


def measure(config: ModelConfig, precision: str, threads: int) -> Ceiling:
    """Time each shape of the model, `threads` one-thread products at a time."""
    shapes = {(product.inputs, product.outputs) for product in (*encoder_products(config), *decoder_products(config))}
    return Ceiling(threads, {shape: _speed(*shape, precision, threads) for shape in sorted(shapes)})


def _speed(inputs: int, outputs: int, precision: str, threads: int) -> float:
    """Operations per second of all threads together; the median of some samples."""
    session = _session(inputs, outputs, precision)
    feeds = {"x": _rows(inputs, precision)}
    session.run(None, feeds)
    counts = [0] * threads
    started = threading.Barrier(threads + 1)
    stop = threading.Event()

    def work(thread: int) -> None:
        started.wait()
        while not stop.is_set():
            session.run(None, feeds)
            counts[thread] += 1

    workers = [threading.Thread(target=work, args=(thread,)) for thread in range(threads)]
    for worker in workers:
        worker.start()
    started.wait()
    speeds = [runs / seconds for runs, seconds in _samples(counts)]
    stop.set()
    for worker in workers:
        worker.join()
    return 2.0 * ROWS * inputs * outputs * median(speeds)


def _samples(counts: list[int]) -> Iterator[tuple[int, float]]:
    """How many runs in how many seconds, a few times in a row."""
    for _ in range(_SAMPLES):
        before, began = sum(counts), time.perf_counter()
        time.sleep(MEASURE_S / _SAMPLES)
        yield sum(counts) - before, time.perf_counter() - began


def _rows(inputs: int, precision: str) -> Array:
    rng = np.random.default_rng(1)
    if precision == "int8":
        return rng.integers(0, 256, (ROWS, inputs)).astype(np.uint8)
    return rng.normal(size=(ROWS, inputs)).astype(np.float32)


def _session(inputs: int, outputs: int, precision: str) -> onnxruntime.InferenceSession:
    """One product, as the graphs of `export/linear.py` have it, without what surrounds it."""
    rng = np.random.default_rng(2)
    constants: dict[str, Array]
    if precision == "int8":
        constants = {
            "w": rng.integers(-127, 128, (inputs, outputs)).astype(np.int8),
            "input_scale": np.array(0.02, np.float32),
            "scales": np.full(outputs, 0.01, np.float32),
            "zero_point": np.array(128, np.uint8),
        }
        names = ["x", "w", "input_scale", "scales", "zero_point"]
        node = helper.make_node("MatMulIntegerToFloat", names, ["y"], domain=CONTRIB_DOMAIN)
        kind = TensorProto.UINT8
    else:
        constants = {"w": rng.normal(size=(inputs, outputs)).astype(np.float32)}
        node, kind = helper.make_node("MatMul", ["x", "w"], ["y"]), TensorProto.FLOAT
    graph = helper.make_graph(
        [node],
        "product",
        [helper.make_tensor_value_info("x", kind, [ROWS, inputs])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [ROWS, outputs])],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(CONTRIB_DOMAIN, 1)]
    model: onnx.ModelProto = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
