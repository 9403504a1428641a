"""Graphs of one model share one weight file, page by page."""

from pathlib import Path

import numpy as np
from onnx import TensorProto

from export.builder import Array, GraphBuilder, WeightFile, save_graphs
from export.runner import open_session

LARGE = np.arange(600, dtype=np.float32).reshape(20, 30)


def graph_that_adds(weights: WeightFile, **constants: Array) -> GraphBuilder:
    """Y = x + each constant."""
    graph = GraphBuilder("sum", weights)
    value = graph.input("x", TensorProto.FLOAT, ["R", 30])
    for name, array in constants.items():
        value = graph.node("Add", value, graph.constant(name, array))
    graph.output(value, TensorProto.FLOAT)
    return graph


def test_two_graphs_read_one_tensor_from_one_place(tmp_path: Path) -> None:
    weights = WeightFile()
    graphs = {name: graph_that_adds(weights, shared=LARGE) for name in ("one.onnx", "two.onnx")}
    save_graphs(graphs, tmp_path)

    assert (tmp_path / "weights.data").stat().st_size == LARGE.nbytes
    for name in graphs:
        outputs = open_session(tmp_path / name).run(None, {"x": np.ones((20, 30), np.float32)})
        np.testing.assert_array_equal(outputs[0], LARGE + 1)
