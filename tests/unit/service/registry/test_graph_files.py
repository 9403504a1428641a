"""Graphs may only read files that their bundle's manifest lists."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, external_data_helper, helper, numpy_helper

from model.bundle import Bundle, BundleError, default_bundle_dir
from service.registry.graph_files import check_graph_files, external_files
from tests.fakes.echo_bundle import write_echo_bundle


def tensor(location: str) -> TensorProto:
    made = numpy_helper.from_array(np.zeros(4, np.float32), "w")
    external_data_helper.set_external_data(made, location)
    made.ClearField("raw_data")
    return made


def graph(*nodes: onnx.NodeProto, initializers: tuple[TensorProto, ...] = ()) -> onnx.GraphProto:
    return helper.make_graph(list(nodes), "g", [], [], list(initializers))


def in_initializer(location: str) -> onnx.ModelProto:
    return helper.make_model(graph(initializers=(tensor(location),)))


def in_constant(location: str) -> onnx.ModelProto:
    return helper.make_model(graph(helper.make_node("Constant", [], ["c"], value=tensor(location))))


def in_branch(location: str) -> onnx.ModelProto:
    branch = graph(initializers=(tensor(location),))
    return helper.make_model(graph(helper.make_node("If", ["x"], ["y"], then_branch=branch, else_branch=graph())))


def in_sparse(location: str) -> onnx.ModelProto:
    made = graph()
    made.sparse_initializer.append(onnx.SparseTensorProto(values=tensor(location)))
    return helper.make_model(made)


def in_function(location: str) -> onnx.ModelProto:
    node = helper.make_node("Constant", [], ["c"], value=tensor(location))
    function = helper.make_function("d", "f", [], ["c"], [node], [helper.make_opsetid("", 20)])
    return helper.make_model(graph(), functions=[function])


PLACES = [in_initializer, in_constant, in_branch, in_sparse, in_function]


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    return Bundle.load(write_echo_bundle(tmp_path / "bundle"))


@pytest.mark.parametrize("place", PLACES)
def test_reference_is_found_wherever_it_stands(tmp_path, place):
    path = tmp_path / "model.onnx"
    path.write_bytes(place("some/where.data").SerializeToString())

    assert external_files(path) == ["some/where.data"]


@pytest.mark.parametrize(
    "location", ["../weights.data", "/etc/passwd", "a/../../b", "C:weights", "a\\b", "", "*/_ORT_MEM_ADDR_/*"]
)
def test_reference_out_of_the_bundle_is_refused(bundle, location):
    bundle.path("encoder.onnx").write_bytes(in_initializer(location).SerializeToString())

    with pytest.raises(BundleError, match=r"encoder.onnx keeps weights in '.*', which"):
        check_graph_files(bundle)


def test_reference_to_a_file_that_the_manifest_does_not_list_is_refused(bundle):
    bundle.path("extra.data").write_bytes(b"0" * 16)
    bundle.path("encoder.onnx").write_bytes(in_initializer("extra.data").SerializeToString())

    with pytest.raises(BundleError, match=r"'extra.data', which the manifest does not list"):
        check_graph_files(bundle)


def test_reference_to_a_listed_file_is_fine(bundle):
    bundle.path("encoder.onnx").write_bytes(in_initializer("shared.spm").SerializeToString())

    check_graph_files(bundle)


@pytest.mark.parametrize("content", [b"not a graph", b"\xff" * 100, b"\x3a\xff\xff\xff\xff\x0f"])
def test_file_that_is_no_graph_is_refused(bundle, content):
    bundle.path("encoder.onnx").write_bytes(content)

    with pytest.raises(BundleError, match=r"encoder.onnx is not an ONNX file"):
        check_graph_files(bundle)


def field(number: int, content: bytes) -> bytes:
    """A message inside a message, as it stands in the file."""
    length, varint = len(content), b""
    while length > 0x7F:
        varint, length = varint + bytes([length & 0x7F | 0x80]), length >> 7
    return bytes([number << 3 | 2]) + varint + bytes([length]) + content


def test_graphs_nested_beyond_reason_are_refused(bundle):
    nested = b""
    for _ in range(1_000):  # graph.node.attribute.g
        nested = field(1, field(5, field(6, nested)))
    bundle.path("encoder.onnx").write_bytes(field(7, nested))

    with pytest.raises(BundleError, match=r"encoder.onnx is not an ONNX file"):
        check_graph_files(bundle)


def test_included_model_reads_its_own_weights_only():
    check_graph_files(Bundle.load(default_bundle_dir()))
