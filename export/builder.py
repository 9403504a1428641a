"""A growing ONNX graph, and the one weight file that the graphs of a model share.

Knows nodes, names and bytes; knows no Transformer.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

Array = NDArray[Any]

OPSET = 24  # TensorScatter
CONTRIB_OPSET = 1
CONTRIB_DOMAIN = "com.microsoft"  # operators of ONNX Runtime's own
IR_VERSION = 11
INLINE_BYTES = 1_024  # smaller tensors (shapes, scales) stay inside the graph file
ALIGNMENT = 4_096  # ONNX Runtime maps page-aligned tensors instead of copying them


@dataclass(frozen=True, slots=True)
class Deferred:
    """A tensor that is made when it is written, so that a graph of a large model can be drawn in little memory."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    blocks: Callable[[], Iterable[Array]]  # one after the other along the first axis

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass
class WeightFile:
    """Tensors one after the other, each once, however many graphs use it."""

    name: ClassVar[str] = "weights.data"
    tensors: dict[str, Array | Deferred] = field(default_factory=dict)

    def add(self, name: str, tensor: Array | Deferred) -> Array | Deferred:
        """Keep a tensor under a name and return it; the same name has to mean the same tensor, which is kept once.

        Of tensors that are made later, only shapes and types are compared.
        """
        known = self.tensors.setdefault(name, tensor)
        assert (known.shape, known.dtype) == (tensor.shape, tensor.dtype), f"two different tensors are called {name}"
        if isinstance(known, np.ndarray) and isinstance(tensor, np.ndarray):
            assert np.array_equal(known, tensor), f"two different tensors are called {name}"
        return known

    def write(self, path: Path) -> dict[str, tuple[int, int]]:
        """Write all tensors and return where each one lies: name -> (offset, length) in bytes."""
        places = {}
        with path.open("wb") as out:
            for name, tensor in self.tensors.items():
                out.write(b"\0" * (-out.tell() % ALIGNMENT))
                places[name] = (out.tell(), tensor.nbytes)
                for block in _blocks(tensor):
                    out.write(np.ascontiguousarray(block).data)
                assert out.tell() == sum(places[name]), f"{name} is not as large as its shape says"
        return places


def _blocks(tensor: Array | Deferred) -> Iterable[Array]:
    return tensor.blocks() if isinstance(tensor, Deferred) else [tensor]


class GraphBuilder:
    """A graph whose nodes are appended in order; every value has a name."""

    def __init__(self, name: str, weights: WeightFile) -> None:
        self.name = name
        self.weights = weights
        self._nodes: list[onnx.NodeProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []
        self._hints: list[onnx.ValueInfoProto] = []
        self._initializers: dict[str, Array | Deferred] = {}

    def input(self, name: str, dtype: int, shape: Sequence[int | str]) -> str:
        """Declare a graph input; axes that vary are given by name."""
        self._inputs.append(helper.make_tensor_value_info(name, dtype, shape))
        return name

    def optional_input(self, name: str, default: Array) -> str:
        """Declare a graph input that need not be given; to declare it again changes nothing."""
        if name not in self._initializers:
            self.input(name, helper.np_dtype_to_tensor_dtype(default.dtype), list(default.shape))
            self.constant(name, default)
        return name

    def output(self, name: str, dtype: int, shape: Sequence[int | str] | None = None) -> str:
        """Declare an existing value as a graph output."""
        self._outputs.append(helper.make_tensor_value_info(name, dtype, shape))
        return name

    def hint_shape(self, name: str, dtype: int, shape: Sequence[int | str]) -> None:
        """Tell ONNX Runtime a shape it cannot infer; equal shapes let it work in place."""
        self._hints.append(helper.make_tensor_value_info(name, dtype, shape))

    def constant(self, name: str, values: Array | np.generic | Deferred) -> str:
        """Add a tensor that belongs to the model, and return its name."""
        tensor = values if isinstance(values, Deferred) else np.asarray(values)
        self._initializers[name] = self.weights.add(name, tensor) if tensor.nbytes >= INLINE_BYTES else tensor
        return name

    def node(self, op: str, *inputs: str, name: str = "", domain: str = "", **attributes: Any) -> str:
        """Append a node with one output, and return that output's name (`name`, or one made up)."""
        name = name or f"{op.lower()}_{len(self._nodes)}_out"
        return self.nodes(op, *inputs, names=[name], domain=domain, **attributes)[0]

    def nodes(self, op: str, *inputs: str, names: Sequence[str], domain: str = "", **attributes: Any) -> list[str]:
        """Append a node with one output for each of `names`; an empty input name means "not given"."""
        label = f"{op}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(op, inputs, names, name=label, domain=domain, **attributes))
        return list(names)

    def build(self, places: dict[str, tuple[int, int]] | None = None) -> onnx.ModelProto:
        """Return the finished model, with tensors inside it but those whose places `WeightFile.write` returned."""
        tensors = [self._tensor(name, tensor, places or {}) for name, tensor in self._initializers.items()]
        ends = (self._inputs, self._outputs)
        graph = helper.make_graph(self._nodes, self.name, *ends, tensors, value_info=self._hints)
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(CONTRIB_DOMAIN, CONTRIB_OPSET)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="dragoman")

    def _tensor(self, name: str, values: Array | Deferred, places: dict[str, tuple[int, int]]) -> TensorProto:
        if name not in places:
            array = values if isinstance(values, np.ndarray) else np.concatenate(list(values.blocks()))
            return numpy_helper.from_array(np.ascontiguousarray(array), name)
        offset, length = places[name]
        dtype = helper.np_dtype_to_tensor_dtype(values.dtype)
        tensor = TensorProto(name=name, data_type=dtype, dims=values.shape, data_location=TensorProto.EXTERNAL)
        for key, value in (("location", self.weights.name), ("offset", offset), ("length", length)):
            tensor.external_data.add(key=key, value=str(value))
        return tensor


def save_graphs(builders: dict[str, GraphBuilder], directory: Path) -> None:
    """Write graphs by file name, and the one weight file that they share, into an existing directory."""
    weights = next(iter(builders.values())).weights
    for builder in builders.values():
        assert builder.weights is weights, "the graphs of one variant share one weight file"
    places = weights.write(directory / weights.name)
    for file_name, builder in builders.items():
        (directory / file_name).write_bytes(builder.build(places).SerializeToString())
