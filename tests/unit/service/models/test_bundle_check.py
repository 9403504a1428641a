"""What makes a bundle one that may serve, before its graphs run."""

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

    @pytest.mark.parametrize("location", ["../w.data", "{outside}/w.data", "link", "*/_ORT_MEM_ADDR_/*"])
    def test_onnx_runtime_opens_no_graph_that_reads_a_file_outside_its_directory(self, tmp_path, location):
        directory = tmp_path / "bundle"
        directory.mkdir()
        for path in (tmp_path / "w.data", directory / "w.data"):
            path.write_bytes(np.arange(4, dtype=np.float32).tobytes())
        (directory / "link").symlink_to(tmp_path / "w.data")
        inside, outside = directory / "inside.onnx", directory / "outside.onnx"
        inside.write_bytes(graph_reading("w.data").SerializeToString())
        outside.write_bytes(graph_reading(location.format(outside=tmp_path)).SerializeToString())

        assert open_session(inside, 1).run(None, {})[0].tolist() == [0.0, 1.0, 2.0, 3.0]
        with pytest.raises(BundleError, match=r"outside.onnx cannot be loaded by ONNX Runtime"):
            open_session(outside, 1)


def graph_reading(location: str) -> onnx.ModelProto:
    """A graph that gives back four numbers of a file."""
    tensor = numpy_helper.from_array(np.zeros(4, np.float32), "w")
    external_data_helper.set_external_data(tensor, location)
    tensor.ClearField("raw_data")
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [4])
    graph = helper.make_graph([helper.make_node("Identity", ["w"], ["y"])], "g", [], [result], [tensor])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
