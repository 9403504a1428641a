"""A bundle is what its manifest says, or it is refused with the file and the fix; it is written whole or not at all."""

import json
import math
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
    staging_directory,
    write_bundle,
    write_golden_sentences,
)
from model.config import USUAL_PROFILE, DecodingProfile, ModelConfig, StopRule
from model.manifest import BUNDLE_FORMAT_VERSION, DecodingDefaults, Manifest, Variant
from tests.fakes.echo_bundle import edit_manifest

# All that belongs to a bundle, of a few bytes each: it loads, and nothing in it can be run.
FILES = {
    "shared.spm": b"pieces",
    "int8/encoder.onnx": b"e8",
    "int8/decoder_step.onnx": b"d8",
    "int8/weights.data": b"w8" * 1_000,
    "fp32/encoder.onnx": b"e32",
    "fp32/decoder_step.onnx": b"d32",
    "fp32/weights.data": b"w32" * 1_000,
}


def manifest(*precisions: str, version: str = "1") -> Manifest:
    """Of a bundle with graphs of these precisions, whose names are those in `FILES`."""
    return Manifest(
        name="tiny",
        version=version,
        source_language="en",
        target_language="de",
        config=ModelConfig(vocab_size=80, d_model=32),
        decoding=DecodingDefaults(beam_size=5),
        variants={
            precision: Variant(
                encoder=f"{precision}/encoder.onnx",
                decoder_step=f"{precision}/decoder_step.onnx",
                parity={"largest_difference": 2.5e-6},
            )
            for precision in precisions
        },
        exported_with={"onnx": "1.23.2"},
    )


def write(destination: Path, described: Manifest | None = None, files: dict[str, bytes] | None = None) -> Bundle:
    """Write `files`, or all of `FILES`, as a bundle that is `described`: in int8 and fp32 if not told otherwise."""
    with staging_directory(destination) as staging:
        for name, content in (FILES if files is None else files).items():
            (staging / name).parent.mkdir(exist_ok=True)
            (staging / name).write_bytes(content)
        return write_bundle(staging, destination, described or manifest("int8", "fp32"))


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return write(tmp_path / "bundle").directory


def refusal(directory, text: str) -> str:
    """Why a bundle with this manifest is refused."""
    (directory / "manifest.json").write_text(text)
    with pytest.raises(BundleError) as refused:
        Bundle.load(directory)
    return str(refused.value)


def changed(**fields: object) -> str:
    return json.dumps(json.loads(manifest("int8").to_json()) | fields)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"format_version": 1}', "null", "[" * 100_000])
def test_a_malformed_manifest_is_refused(directory, text):
    assert "manifest.json" in refusal(directory, text)


@pytest.mark.parametrize("version", [0, BUNDLE_FORMAT_VERSION + 1, str(BUNDLE_FORMAT_VERSION), None])
def test_an_unknown_format_version_is_refused(directory, version):
    assert f"format_version {version!r}, this program reads (1, 2, 3)" in refusal(
        directory, changed(format_version=version)
    )


@pytest.mark.parametrize("name", ["name", "source_language", "tokenizer", "golden"])
def test_a_field_that_is_no_text_is_refused(directory, name):
    assert f"{name} is 5, it must be text" in refusal(directory, changed(**{name: 5}))


@pytest.mark.parametrize("field", ["config", "decoding", "variants", "files"])
@pytest.mark.parametrize("value", [3, [1], {"unknown": 1}])
def test_a_field_of_the_wrong_kind_is_refused(directory, field, value):
    assert "manifest.json" in refusal(directory, changed(**{field: value}))


@pytest.mark.parametrize(
    ("name", "values", "wanted"),
    [
        ("beam_size", (0, 65, 2.5, 4.0, True, "4", None), "an integer from 1 to 64"),
        ("max_target_tokens", (0, 64.5), "an integer from 1 to 2147483647"),
        ("max_source_tokens", (True, 1 << 31), "an integer from 1 to 2147483647"),
        ("reliable_source_tokens", (0, 2.5, True, 1 << 31), "an integer from 1 to 2147483647"),
        ("length_penalty", (-0.1, 9, math.nan, True, "1"), "a number from 0.0 to 5.0"),
        ("patience", (0.05, math.inf, None), "a number from 0.1 to 8.0"),
    ],
)
def test_a_decoding_default_that_no_request_could_give_is_refused(directory, name, values, wanted):
    for value in values:
        assert f"{name} is {value!r}, it must be {wanted}" in refusal(directory, changed(decoding={name: value}))


def test_a_bundle_says_how_its_searches_end_or_they_end_as_those_of_ctranslate2(directory):
    own = Manifest.from_json(changed(decoding={"stop_rule": "hf", "forced_end": True}))

    assert own.profile == DecodingProfile(stop_rule=StopRule.HF, forced_end=True)
    assert Manifest.from_json(changed(decoding={})).profile == USUAL_PROFILE
    assert "'beam' is not a valid StopRule" in refusal(directory, changed(decoding={"stop_rule": "beam"}))
    assert "forced_end is 1, it must be true or false" in refusal(directory, changed(decoding={"forced_end": 1}))


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


@pytest.mark.parametrize(("available", "best"), [(("fp32", "int8"), "int8"), (("fp32",), "fp32"), (("fp16",), "fp16")])
def test_the_best_variant_for_a_cpu_is_int8_then_fp32(tmp_path: Path, available: tuple[str, ...], best: str) -> None:
    files = {**FILES, "fp16/encoder.onnx": b"e", "fp16/decoder_step.onnx": b"d"}
    bundle = write(tmp_path / "bundle", manifest(*available), files)

    assert bundle.variant().encoder == f"{best}/encoder.onnx"


@pytest.mark.promise("E2")
def test_a_changed_byte_is_refused_and_the_file_named(directory: Path) -> None:
    (directory / "int8/weights.data").write_bytes(b"w9" * 1_000)

    with pytest.raises(BundleError, match=r"int8/weights\.data has another SHA-256"):
        Bundle.load(directory)


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


def test_a_graph_without_a_checksum_is_refused(directory: Path) -> None:
    files = json.loads((directory / MANIFEST_NAME).read_text())["files"]
    del files["int8/encoder.onnx"]
    edit_manifest(directory, files=files)

    with pytest.raises(BundleError, match=r"uses 'int8/encoder\.onnx' but does not list its checksum"):
        Bundle.load(directory)


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


@pytest.mark.parametrize("content", [b"\x80\x04\x95payload.", b"\x80\x02}q.", b"PK\x03\x04data.pkl", b"\x93NUMPY\x01"])
def test_a_pickle_or_archive_is_refused_under_any_name(directory: Path, content: bytes) -> None:
    (directory / "notes.txt").write_bytes(content)

    with pytest.raises(BundleError, match=r"notes.txt can run code"):
        Bundle.load(directory)


def test_a_bundle_other_than_the_one_that_is_meant_is_refused(directory: Path) -> None:
    bundle = Bundle.load(directory)
    meant = sha256((directory / MANIFEST_NAME).read_bytes()).hexdigest()
    assert Bundle.load(directory, manifest_sha256=meant).sha256_12 == bundle.sha256_12 == meant[:12]

    write(directory, manifest("int8", version="2"))

    with pytest.raises(BundleError, match="holds another bundle"):
        Bundle.load(directory, manifest_sha256=meant)


def test_golden_sentences_are_read_as_they_were_written(tmp_path: Path) -> None:
    sentences = [
        GoldenSentence(precision=precision, source="The cat sleeps.", translation=translation)
        for precision, translation in (("int8", "Die Katze schläft."), ("fp32", ""))
    ]
    write_golden_sentences(tmp_path / "golden.tsv", sentences)
    files = {**FILES, "golden.tsv": (tmp_path / "golden.tsv").read_bytes()}
    bundle = write(tmp_path / "b", replace(manifest("int8"), golden="golden.tsv"), files)

    assert [bundle.golden_sentences(precision) for precision in ("int8", "fp32", "fp16")] == [
        sentences[:1],
        sentences[1:],
        [],
    ]


def test_an_incomplete_bundle_is_not_written_and_the_old_one_stays(directory: Path) -> None:
    with pytest.raises(BundleError, match=r"uses 'fp32/encoder\.onnx' but does not list"):
        write(directory, manifest("fp32", version="2"), {"shared.spm": b"pieces"})

    assert Bundle.load(directory).manifest.version == "1"
    assert [path.name for path in directory.parent.iterdir()] == ["bundle"]


def test_a_directory_that_is_no_bundle_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "draft.txt").write_text("years of work")

    with pytest.raises(BundleError, match="exists and is not a bundle"):
        write(tmp_path / "thesis")
    assert (tmp_path / "thesis" / "draft.txt").read_text() == "years of work"
