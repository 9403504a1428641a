"""The committed generated code is what the contract gives today."""

import shutil

from protos import generate


def test_generated_code_is_current():
    assert generate.stale_files() == []


def test_changed_generated_file_is_noticed(tmp_path):
    shutil.copytree(generate.ROOT / "protos", tmp_path / "protos")
    stub = tmp_path / "protos" / "translation_pb2.pyi"
    stub.write_text(stub.read_text().replace("beam_size", "beam_width"))

    assert generate.stale_files(tmp_path) == ["protos/translation_pb2.pyi"]


def test_only_the_generators_versions_are_ignored():
    code = "# Protobuf Python Version: 7.35.1\n    35,\nGRPC_GENERATED_VERSION = '1.85.1'\nserialized_start=35\n"

    assert generate.without_version_stamps(code) == "\n\n\nserialized_start=35\n"
