"""What makes a bundle one that may serve, before its graphs run."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, external_data_helper, helper, numpy_helper

from model.bundle import Bundle, BundleError
from service.config import EngineConfig, ServerConfig
from service.engine.cpu.runner import open_session
from service.models.repository import BundleCandidate, BundleChecker
from tests.fakes.echo_bundle import write_echo_bundle


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return write_echo_bundle(tmp_path / "bundle")


def check(directory: Path, *, name: str = "", version: str = "", **settings: Any) -> Bundle:
    candidate = BundleCandidate(directory=directory, name=name, version=version)
    return BundleChecker(ServerConfig(**settings))(candidate)


class TestBundleChecker:
    @pytest.mark.parametrize(("name", "version"), [("echo", "1.2.3"), ("", "")])
    def test_bundle_that_is_what_its_directory_says_is_accepted(self, bundle, name, version):
        assert check(bundle, name=name, version=version).manifest.name == "echo"

    @pytest.mark.parametrize(
        ("name", "version", "message"),
        [("other", "1.2.3", "a manifest of name 'echo'"), ("echo", "1.2.4", "a manifest of version '1.2.3'")],
    )
    def test_bundle_of_another_name_or_version_is_refused(self, bundle, name, version, message):
        with pytest.raises(BundleError, match=message):
            check(bundle, name=name, version=version)

    def test_bundle_without_the_precision_that_is_set_is_refused(self, bundle):
        with pytest.raises(BundleError, match="has no graphs in 'int8'"):
            check(bundle, engine=EngineConfig(precision="int8"))


class TestFilesOfGraphs:
    """A graph reads files that the manifest has checksums of, and no others."""

    def test_file_beside_a_graph_that_the_manifest_does_not_list_is_refused(self, bundle):
        (bundle / "extra.data").write_bytes(b"0" * 16)

        with pytest.raises(BundleError, match=r"extra.data lies beside the graphs and the manifest does not list it"):
            check(bundle)

    @pytest.mark.parametrize("target", ["/etc/passwd", "..", "nothing"])
    def test_link_beside_a_graph_is_refused_wherever_it_leads(self, bundle, target):
        (bundle / "below").mkdir()
        (bundle / "below" / "link").symlink_to(target)

        with pytest.raises(BundleError, match=r"below/link lies beside the graphs"):
            check(bundle)

    @pytest.mark.parametrize(
        "location", ["../w.data", "{outside}/w.data", "link", "a/../../w.data", "*/_ORT_MEM_ADDR_/*"]
    )
    @pytest.mark.parametrize("place", ["initializer", "constant", "branch", "function"])
    def test_onnx_runtime_opens_no_graph_that_reads_a_file_outside_its_directory(self, tmp_path, place, location):
        directory = tmp_path / "bundle"
        directory.mkdir()
        for path in (tmp_path / "w.data", directory / "w.data"):
            path.write_bytes(np.arange(4, dtype=np.float32).tobytes())
        (directory / "link").symlink_to(tmp_path / "w.data")
        inside, outside = directory / "inside.onnx", directory / "outside.onnx"
        inside.write_bytes(PLACES[place]("w.data").SerializeToString())
        outside.write_bytes(PLACES[place](location.format(outside=tmp_path)).SerializeToString())

        assert open_session(inside, 1).run(None, {})[0].tolist() == [0.0, 1.0, 2.0, 3.0]
        with pytest.raises(BundleError, match=r"outside.onnx cannot be loaded by ONNX Runtime"):
            open_session(outside, 1)


def external(location: str) -> TensorProto:
    tensor = numpy_helper.from_array(np.zeros(4, np.float32), "w")
    external_data_helper.set_external_data(tensor, location)
    tensor.ClearField("raw_data")
    return tensor


def graph(*nodes: onnx.NodeProto, initializers: tuple[TensorProto, ...] = ()) -> onnx.GraphProto:
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [4])
    return helper.make_graph(list(nodes), "g", [], [result], list(initializers))


def model(graph: onnx.GraphProto, **parts: Any) -> onnx.ModelProto:
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("d", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10, **parts)


def in_initializer(location: str) -> onnx.ModelProto:
    return model(graph(helper.make_node("Identity", ["w"], ["y"]), initializers=(external(location),)))


def in_constant(location: str) -> onnx.ModelProto:
    return model(graph(helper.make_node("Constant", [], ["y"], value=external(location))))


def in_branch(location: str) -> onnx.ModelProto:
    branch = graph(helper.make_node("Identity", ["w"], ["y"]), initializers=(external(location),))
    condition = numpy_helper.from_array(np.array(True), "c")
    node = helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)
    return model(graph(node, initializers=(condition,)))


def in_function(location: str) -> onnx.ModelProto:
    node = helper.make_node("Constant", [], ["y"], value=external(location))
    function = helper.make_function("d", "f", [], ["y"], [node], [helper.make_opsetid("", 20)])
    return model(graph(helper.make_node("f", [], ["y"], domain="d")), functions=[function])


PLACES: dict[str, Callable[[str], onnx.ModelProto]] = {
    "initializer": in_initializer,
    "constant": in_constant,
    "branch": in_branch,
    "function": in_function,
}
