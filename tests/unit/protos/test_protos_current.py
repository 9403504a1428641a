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


def test_missing_generated_files_are_noticed(tmp_path):
    assert generate.stale_files(tmp_path) == list(generate.GENERATED)


def test_only_the_generators_versions_are_ignored():
    code = "# Protobuf Python Version: 7.35.1\n    35,\nGRPC_GENERATED_VERSION = '1.85.1'\nserialized_start=35\n"

    assert generate.without_version_stamps(code) == "\n\n\nserialized_start=35\n"


def test_check_says_what_is_stale(capsys, monkeypatch):
    monkeypatch.setattr(generate, "stale_files", lambda: ["protos/x.py"])

    status = generate.main(["--check"])

    assert (status, capsys.readouterr().err) == (1, "stale: protos/x.py; run: python -m protos.generate\n")


def test_unknown_argument_is_refused(capsys):
    assert generate.main(["--chekc"]) == 2
    assert "usage" in capsys.readouterr().err
