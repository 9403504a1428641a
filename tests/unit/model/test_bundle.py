"""A bundle is what its manifest says, or it is refused with the file and the fix."""

import json
import math
import re
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from model.bundle import (
    MANIFEST_NAME,
    WEIGHTS_NAME,
    Bundle,
    BundleError,
    GoldenSentence,
    default_bundle_dir,
    included_bundle_dirs,
)
from model.config import ModelConfig
from model.manifest import BUNDLE_FORMAT_VERSION, DecodingDefaults
from tests.fakes.hollow_bundle import FILES, directory, manifest, write
from tests.fakes.model_repository import edit_manifest

__all__ = ["directory"]


def list_file(directory: Path, name: str) -> None:
    """Add a file to the manifest, as an attacker would."""
    files = json.loads((directory / MANIFEST_NAME).read_text())["files"]
    edit_manifest(directory, files={**files, name: {"sha256": "0" * 64, "bytes": 1}})


def test_a_written_bundle_loads_with_every_field(directory: Path) -> None:
    loaded = Bundle.load(directory).manifest

    assert loaded.config == ModelConfig(vocab_size=80, d_model=32)
    assert loaded.decoding == DecodingDefaults(beam_size=5)
    assert loaded.variants == manifest("int8", "fp32").variants
    assert (loaded.name, loaded.version, loaded.source_language, loaded.target_language) == ("tiny", "1", "en", "de")
    assert loaded.exported_with == {"onnx": "1.23.2"}
    assert set(loaded.files) == set(FILES)
    assert loaded.files["int8/weights.data"].bytes == 2_000


def test_paths_lead_to_the_files(directory: Path) -> None:
    bundle = Bundle.load(directory)

    assert bundle.tokenizer_path.read_bytes() == b"pieces"
    assert bundle.path(bundle.variant("int8").encoder).read_bytes() == b"e8"
    assert bundle.path(bundle.variant("fp32").decoder_step).read_bytes() == b"d32"


@pytest.mark.parametrize(("available", "best"), [(("fp32", "int8"), "int8"), (("fp32",), "fp32"), (("fp16",), "fp16")])
def test_the_best_variant_for_a_cpu_is_int8_then_fp32(tmp_path: Path, available: tuple[str, ...], best: str) -> None:
    files = {**FILES, "fp16/encoder.onnx": b"e", "fp16/decoder_step.onnx": b"d"}
    bundle = write(tmp_path / "bundle", manifest(*available), files)

    assert bundle.variant().encoder == f"{best}/encoder.onnx"


def test_an_absent_precision_is_refused_with_those_there_are(directory: Path) -> None:
    with pytest.raises(BundleError, match=r"no 'fp16' graphs, only \['fp32', 'int8'\]"):
        Bundle.load(directory).variant("fp16")


def test_short_checksum_tells_bundles_apart(tmp_path: Path) -> None:
    first = write(tmp_path / "a", manifest("int8"))
    same = write(tmp_path / "b", manifest("int8"))
    other = write(tmp_path / "c", manifest("int8", version="2"))

    assert re.fullmatch("[0-9a-f]{12}", first.sha256_12)
    assert first.sha256_12 == same.sha256_12 != other.sha256_12


def test_checksum_is_that_of_the_manifest_that_was_read(directory: Path) -> None:
    bundle = Bundle.load(directory)
    before = sha256((directory / "manifest.json").read_bytes()).hexdigest()

    write(directory, manifest("int8", version="2"))

    assert (bundle.manifest_sha256, bundle.sha256_12) == (before, before[:12])
    assert Bundle.load(directory).manifest_sha256 != before


def test_a_bundle_other_than_the_one_that_is_meant_is_refused(directory: Path) -> None:
    meant = Bundle.load(directory).manifest_sha256
    assert Bundle.load(directory, manifest_sha256=meant).manifest_sha256 == meant

    write(directory, manifest("int8", version="2"))

    with pytest.raises(BundleError, match="holds another bundle than when this one was checked"):
        Bundle.load(directory, manifest_sha256=meant)


@pytest.mark.promise("E2")
def test_a_changed_byte_is_refused_and_the_file_named(directory: Path) -> None:
    (directory / "int8/weights.data").write_bytes(b"w9" * 1_000)

    with pytest.raises(BundleError, match=r"int8/weights\.data has another SHA-256"):
        Bundle.load(directory)


def test_without_verification_a_changed_byte_passes_but_a_changed_size_does_not(directory: Path) -> None:
    (directory / "int8/weights.data").write_bytes(b"w9" * 1_000)
    Bundle.load(directory, verify=False)

    (directory / "int8/weights.data").write_bytes(b"w9" * 999)
    with pytest.raises(BundleError, match="has 1998 bytes, the manifest says 2000"):
        Bundle.load(directory, verify=False)


@pytest.mark.promise("E2")
def test_a_missing_file_is_refused(directory: Path) -> None:
    (directory / "fp32/encoder.onnx").unlink()

    with pytest.raises(BundleError, match=r"fp32/encoder\.onnx is missing"):
        Bundle.load(directory)


def test_weights_may_be_left_out_and_must_be_the_right_ones_where_they_are(tmp_path: Path) -> None:
    bundle = write(tmp_path / "bundle", files={**FILES, WEIGHTS_NAME: b"all parameters"})
    assert bundle.has_weights

    bundle.path(WEIGHTS_NAME).unlink()
    assert not Bundle.load(bundle.directory).has_weights

    bundle.path(WEIGHTS_NAME).write_bytes(b"others of them")
    with pytest.raises(BundleError, match=r"weights\.safetensors has another SHA-256 than the manifest says"):
        Bundle.load(bundle.directory)
    bundle.path(WEIGHTS_NAME).unlink()
    bundle.path(WEIGHTS_NAME).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BundleError, match=r"weights\.safetensors is a symbolic link"):
        Bundle.load(bundle.directory)


@pytest.mark.parametrize("use", ["tokenizer", "golden"])
def test_weights_may_not_be_left_out_where_the_manifest_uses_them(tmp_path: Path, use: str) -> None:
    bundle = write(tmp_path / "bundle", files={**FILES, WEIGHTS_NAME: b"all parameters"})
    edit_manifest(bundle.directory, **{use: WEIGHTS_NAME})
    bundle.path(WEIGHTS_NAME).unlink()

    with pytest.raises(BundleError, match=r"weights\.safetensors is missing"):
        Bundle.load(bundle.directory)


def test_a_graph_without_a_checksum_is_refused(directory: Path) -> None:
    files = json.loads((directory / MANIFEST_NAME).read_text())["files"]
    del files["int8/encoder.onnx"]
    edit_manifest(directory, files=files)

    with pytest.raises(BundleError, match=r"uses 'int8/encoder\.onnx' but does not list its checksum"):
        Bundle.load(directory)


@pytest.mark.parametrize("version", [0, BUNDLE_FORMAT_VERSION + 1, str(BUNDLE_FORMAT_VERSION), None])
def test_an_unknown_format_version_is_refused(directory: Path, version: object) -> None:
    edit_manifest(directory, format_version=version)

    with pytest.raises(
        BundleError, match=rf"format_version {version!r}, this program reads \(1, 2\); export the model"
    ):
        Bundle.load(directory)


@pytest.mark.parametrize(
    ("keeps_weights", "fix"),
    [(True, "`python -m export` draws them again"), (False, "`python -m export` of the checkpoint makes new ones")],
)
def test_a_bundle_of_an_older_format_can_be_read_but_its_graphs_cannot_be_run(
    tmp_path: Path, *, keeps_weights: bool, fix: str
) -> None:
    files = {**FILES, WEIGHTS_NAME: b"all parameters"} if keeps_weights else FILES
    directory = write(tmp_path / "bundle", files=files).directory
    edit_manifest(directory, format_version=1)

    bundle = Bundle.load(directory)

    assert bundle.manifest.name == "tiny"
    assert bundle.tokenizer_path.read_bytes() == b"pieces"
    for precision in (None, "int8", "fp16"):
        with pytest.raises(BundleError, match=f"graphs of format_version 1, this program runs 2; {fix}"):
            bundle.variant(precision)


@pytest.mark.promise("E3")
@pytest.mark.parametrize("name", ["../outside", "int8/../../outside", "/etc/hostname", "..\\outside", "C:/x", ""])
def test_a_path_out_of_the_directory_is_refused(directory: Path, name: str) -> None:
    (directory.parent / "outside").write_bytes(b"x")
    list_file(directory, name)

    with pytest.raises(BundleError, match="not a path inside the bundle"):
        Bundle.load(directory)


@pytest.mark.promise("E3")
@pytest.mark.parametrize("linked", ["shared.spm", "int8"])
def test_a_link_is_refused_even_to_the_right_content(directory: Path, linked: str) -> None:
    moved = (directory / linked).rename(directory.parent / "elsewhere")
    (directory / linked).symlink_to(moved)

    with pytest.raises(BundleError, match=f"{linked} is a symbolic link"):
        Bundle.load(directory)


@pytest.mark.promise("E8")
@pytest.mark.parametrize("name", ["model.pt", "int8/pytorch_model.bin", "extra.PKL"])
def test_a_pickle_is_refused_though_no_one_lists_it(directory: Path, name: str) -> None:
    (directory / name).write_bytes(b"x")

    with pytest.raises(BundleError, match="can run code when it is opened; convert it to safetensors"):
        Bundle.load(directory)


@pytest.mark.parametrize(
    "content", [b"\x80\x04\x95payload.", b"\x80\x02}q\x00.", b"PK\x03\x04data.pkl", b"\x93NUMPY\x01\x00"]
)
def test_a_pickle_or_archive_is_refused_under_any_name(directory: Path, content: bytes) -> None:
    (directory / "notes.txt").write_bytes(content)

    with pytest.raises(BundleError, match=r"notes.txt can run code when it is opened"):
        Bundle.load(directory)


@pytest.mark.parametrize("content", [b"", b"\x80", b"\x80\x02", b"\x80\x02numbers", b"\x80\x07numbers.", b"text."])
def test_other_bytes_are_no_pickle(directory: Path, content: bytes) -> None:
    (directory / "notes.txt").write_bytes(content)

    Bundle.load(directory)


def test_golden_sentences_are_those_of_the_precision(tmp_path: Path) -> None:
    lines = b"int8\ta\tb\nfp32\tc\td\n"
    bundle = write(tmp_path / "b", replace(manifest("int8"), golden="golden.tsv"), {**FILES, "golden.tsv": lines})

    assert bundle.golden_sentences("fp32") == [GoldenSentence(precision="fp32", source="c", translation="d")]
    assert bundle.golden_sentences("fp16") == []


def test_a_file_without_golden_sentences_is_refused(tmp_path: Path) -> None:
    bundle = write(tmp_path / "b", replace(manifest("int8"), golden="golden.tsv"), {**FILES, "golden.tsv": b"int8"})

    with pytest.raises(BundleError, match=r"golden.tsv has no golden sentences: line 1 has 1 fields"):
        bundle.golden_sentences("int8")


@pytest.mark.parametrize("name", ["name", "version", "source_language", "target_language", "tokenizer", "golden"])
def test_a_manifest_field_that_is_no_text_is_refused(directory: Path, name: str) -> None:
    edit_manifest(directory, **{name: 5})

    with pytest.raises(BundleError, match=f"{name} is 5, it must be text"):
        Bundle.load(directory)


def test_a_manifest_nested_beyond_reason_is_refused(directory: Path) -> None:
    (directory / MANIFEST_NAME).write_text("[" * 100_000)

    with pytest.raises(BundleError, match="is not a manifest"):
        Bundle.load(directory)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"format_version": 1}', "null"])
def test_a_malformed_manifest_is_refused(directory: Path, text: str) -> None:
    (directory / MANIFEST_NAME).write_text(text)

    with pytest.raises(BundleError, match=r"manifest\.json"):
        Bundle.load(directory)


@pytest.mark.parametrize("field", ["config", "decoding", "variants", "files"])
@pytest.mark.parametrize("value", [3, [1], {"unknown": 1}])
def test_a_manifest_field_of_the_wrong_kind_is_refused(directory: Path, field: str, value: object) -> None:
    edit_manifest(directory, **{field: value})

    with pytest.raises(BundleError, match=r"manifest\.json"):
        Bundle.load(directory)


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("beam_size", 0, "an integer from 1 to 64"),
        ("beam_size", -1, "an integer from 1 to 64"),
        ("beam_size", 65, "an integer from 1 to 64"),
        ("beam_size", 2.5, "an integer from 1 to 64"),
        ("beam_size", 4.0, "an integer from 1 to 64"),
        ("beam_size", True, "an integer from 1 to 64"),
        ("beam_size", "4", "an integer from 1 to 64"),
        ("beam_size", None, "an integer from 1 to 64"),
        ("max_target_tokens", 0, "an integer from 1 to 2147483647"),
        ("max_target_tokens", 64.5, "an integer from 1 to 2147483647"),
        ("max_source_tokens", True, "an integer from 1 to 2147483647"),
        ("max_source_tokens", 1 << 31, "an integer from 1 to 2147483647"),
        ("length_penalty", -0.1, "a number from 0.0 to 5.0"),
        ("length_penalty", 9, "a number from 0.0 to 5.0"),
        ("length_penalty", math.nan, "a number from 0.0 to 5.0"),
        ("length_penalty", True, "a number from 0.0 to 5.0"),
        ("length_penalty", "1", "a number from 0.0 to 5.0"),
        ("patience", 0.05, "a number from 0.1 to 8.0"),
        ("patience", math.inf, "a number from 0.1 to 8.0"),
        ("patience", None, "a number from 0.1 to 8.0"),
    ],
)
def test_a_decoding_default_that_no_request_could_give_is_refused(
    directory: Path, name: str, value: object, wanted: str
) -> None:
    edit_manifest(directory, decoding={name: value})

    with pytest.raises(BundleError, match=re.escape(f"{name} is {value!r}, it must be {wanted}")):
        Bundle.load(directory)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("beam_size", 1),
        ("beam_size", 64),
        ("length_penalty", 0),
        ("length_penalty", 5.0),
        ("patience", 0.1),
        ("patience", 8),
    ],
)
def test_a_decoding_default_may_be_whatever_a_request_may_say(directory: Path, name: str, value: float) -> None:
    edit_manifest(directory, decoding={name: value})

    assert getattr(Bundle.load(directory).manifest.decoding, name) == value


def test_a_directory_without_manifest_is_no_bundle(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=r"is not a bundle: it has no manifest\.json"):
        Bundle.load(tmp_path)


def test_a_mistyped_name_is_answered_with_those_of_the_included_models(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("model.bundle.included_bundle_dirs", lambda: [Path("models/en-de"), Path("models/cs-en")])

    with pytest.raises(BundleError) as refused:
        Bundle.load(Path("fr-de"))

    assert str(refused.value) == "fr-de is no directory, and no included model (cs-en, en-de)"


def test_a_path_that_leads_nowhere_is_no_name(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    for path in (tmp_path / "none", tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(BundleError) as refused:
            Bundle.load(path)

        assert str(refused.value) == f"{path} is no directory; `python -m export` makes a bundle"


def test_the_default_bundle_lies_in_the_package() -> None:
    assert default_bundle_dir().parts[-3:] == ("model", "pretrained", "en-de")
    assert included_bundle_dirs()[0] == default_bundle_dir()
