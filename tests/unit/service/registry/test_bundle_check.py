"""What makes a bundle one that may serve, before its graphs run."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from onnx import TensorProto, external_data_helper, helper, numpy_helper

from export.sign import sign_bundle
from model.bundle import MANIFEST_NAME, SIGNATURE_NAME, Bundle, BundleError
from service.config import EngineConfig, ModelsConfig, ServerConfig
from service.engine.cpu.session import open_session
from service.registry.bundle_check import BundleChecker, KeyFileError, Signatures
from service.registry.repository import BundleCandidate
from tests.fakes.certificates import write_keys
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
        with pytest.raises(BundleError, match="has no 'int8' graphs"):
            check(bundle, engine=EngineConfig(precision="int8"))


class TestSignature:
    """Who may have made a bundle."""

    def test_signed_bundle_is_accepted_and_an_unsigned_one_is_not(self, bundle, tmp_path):
        private, public = write_keys(tmp_path)
        with pytest.raises(BundleError, match=r"manifest.sig is missing and models.public_key asks for it"):
            check(bundle, models=ModelsConfig(public_key=public))

        sign_bundle(private, bundle)

        assert check(bundle, models=ModelsConfig(public_key=public)).manifest.name == "echo"

    def test_signature_can_be_made_with_openssl(self, bundle, tmp_path):
        """Whoever signs bundles needs no program of ours."""
        private, public = write_keys(tmp_path)
        command = ["openssl", "pkeyutl", "-sign", "-rawin", "-inkey", private, "-in", bundle / MANIFEST_NAME]
        try:
            subprocess.run([*command, "-out", bundle / SIGNATURE_NAME], check=True, capture_output=True)
        except FileNotFoundError:
            pytest.skip("no openssl here")

        assert Signatures(public).check(bundle) == Bundle.load(bundle).manifest_sha256

    @pytest.mark.parametrize("content", [None, b"", b"short", b"0" * 64, b"0" * 65], ids=repr)
    def test_signature_by_another_key_or_none_at_all_is_refused(self, bundle, tmp_path, content):
        sign_bundle(write_keys(tmp_path / "theirs")[0], bundle)
        if content is not None:
            (bundle / SIGNATURE_NAME).write_bytes(content)

        with pytest.raises(BundleError, match=r"manifest.sig is no signature of the manifest by .*key.pub.pem"):
            Signatures(write_keys(tmp_path)[1]).check(bundle)

    def test_bundle_that_is_replaced_behind_the_check_of_its_signature_is_refused(self, bundle, tmp_path, monkeypatch):
        private, public = write_keys(tmp_path)
        sign_bundle(private, bundle)
        check_signature = Signatures.check

        def check_and_replace(signatures: Signatures, directory: Path) -> str:
            signed = check_signature(signatures, directory)
            write_echo_bundle(directory, version="2")
            return signed

        monkeypatch.setattr(Signatures, "check", check_and_replace)

        with pytest.raises(BundleError, match="holds another bundle than when this one was checked"):
            check(bundle, models=ModelsConfig(public_key=public))

    @pytest.mark.parametrize(
        ("content", "message"), [(None, "cannot be read: No such file"), (b"x", "no public key in PEM")]
    )
    def test_file_without_a_key_is_refused(self, tmp_path, content, message):
        path = tmp_path / "key.pem"
        if content is not None:
            path.write_bytes(content)

        with pytest.raises(KeyFileError, match=message):
            Signatures(path)

    def test_key_of_another_kind_is_refused(self, tmp_path):
        _, public = write_keys(tmp_path, ec.generate_private_key(ec.SECP256R1()))

        with pytest.raises(KeyFileError, match="an Ed25519 key is needed"):
            Signatures(public)


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
