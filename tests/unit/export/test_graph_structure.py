"""How the graphs are built and stored: valid, small, no weights twice, no copies that a step would pay for."""

import onnx
import pytest

from export.graphs import DECODER_STEP_NAME, ENCODER_NAME
from tests.fakes.graph_inputs import PRECISIONS, graphs_of


@pytest.mark.parametrize("precision", PRECISIONS)
def test_no_large_tensor_is_stored_twice(precision: str) -> None:
    """Encoder, decoder and projection read one embedding table; the weight file holds nothing else than its tensors."""
    graphs = graphs_of(precision)
    places: dict[tuple[int, int], set[str]] = {}
    for name in (ENCODER_NAME, DECODER_STEP_NAME):
        for tensor in onnx.load(graphs.directory / name, load_external_data=False).graph.initializer:
            if tensor.data_location == onnx.TensorProto.EXTERNAL:
                entries = {entry.key: entry.value for entry in tensor.external_data}
                places.setdefault((int(entries["offset"]), int(entries["length"])), set()).add(tensor.name)

    assert all(len(names) == 1 for names in places.values())
    tables = [length for (_, length), names in places.items() if any("embedding" in name for name in names)]
    assert tables == [graphs.config.vocab_size * graphs.config.d_model * (4 if precision == "fp32" else 1)]
    assert (graphs.directory / "weights.data").stat().st_size == max(offset + length for offset, length in places)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", [ENCODER_NAME, DECODER_STEP_NAME])
def test_the_graphs_pass_onnx_s_own_check(precision: str, name: str) -> None:
    onnx.checker.check_model(graphs_of(precision).directory / name)


def test_edits_need_no_copy_of_the_logits() -> None:
    """ONNX Runtime scatters in place only when it can see that input and output have one shape."""
    graph = onnx.load(graphs_of("int8").directory / DECODER_STEP_NAME, load_external_data=False).graph
    scatter = next(node for node in graph.node if node.op_type == "ScatterElements")
    shapes = {hint.name: [axis.dim_param for axis in hint.type.tensor_type.shape.dim] for hint in graph.value_info}

    assert shapes[scatter.input[0]] == shapes[scatter.output[0]] == ["B * K * V"]


def test_the_step_graph_stays_small() -> None:
    """A node costs 1 - 2 microseconds before it computes anything, and a step runs for every token."""
    step = onnx.load(graphs_of("int8").directory / DECODER_STEP_NAME, load_external_data=False).graph.node

    assert len(step) <= 38 + 27 * 2  # two layers
    assert not {"SkipLayerNormalization", "ReduceLogSumExp", "DynamicQuantizeMatMul"} & {node.op_type for node in step}
