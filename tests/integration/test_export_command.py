"""`python -m export`: from a checkpoint to a bundle, and what it refuses."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from export.__main__ import app
from export.golden import add_golden
from export.heads import usual_heads
from export.verify import TOLERANCES
from model.bundle import MANIFEST_NAME, WEIGHTS_NAME, Bundle, BundleError
from model.manifest import BUNDLE_FORMAT_VERSION, Manifest
from model.tokenizer import Tokenizer
from tests.fakes.tiny_model import SENTENCES, write_tiny_checkpoint


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_checkpoint(tmp_path_factory.mktemp("run") / "tiny")


@pytest.fixture(scope="module")
def calibration(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "calibration.en"
    path.write_text("\n".join([*SENTENCES[:20], "", *SENTENCES[20:40]]), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def bundle(checkpoint: Path, calibration: Path) -> Bundle:
    destination = checkpoint.parent / "bundle"
    result = run(checkpoint, destination, "--calibration", calibration)
    assert result.exit_code == 0, result.output
    return Bundle.load(destination)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_a_checkpoint_becomes_a_bundle_with_both_precisions(bundle: Bundle) -> None:
    manifest = bundle.manifest
    fp32, int8 = (manifest.variants[precision].parity for precision in ("fp32", "int8"))

    assert (manifest.name, manifest.source_language, manifest.target_language) == ("tiny", "en", "de")
    assert Tokenizer.load(bundle.tokenizer_path).vocab_size == manifest.config.vocab_size
    assert manifest.decoding.max_source_tokens == manifest.decoding.max_target_tokens == 64
    assert manifest.exported_with.keys() >= {"onnx", "onnxruntime", "torch", "opset", "calibration_sentences"}
    assert 0 < fp32["largest_difference"] < 1e-4
    assert 1e-4 < int8["mean_difference"] < 0.1
    assert fp32["positions"] > int8["positions"] > 0  # fp32 is compared on seeded inputs too


def test_what_cannot_be_exported_is_refused(bundle: Bundle, checkpoint: Path, tmp_path: Path) -> None:
    assert run(checkpoint, tmp_path / "small", "--precision", "fp32", "--no-keep-weights").exit_code == 0
    assert WEIGHTS_NAME not in Bundle.load(tmp_path / "small").manifest.files
    lost = shutil.copytree(bundle.directory, tmp_path / "lost")
    (lost / WEIGHTS_NAME).unlink()

    for source, precision, code, reason in (
        (checkpoint, "int8", 1, "int8 needs calibration sentences"),
        (checkpoint, "int4", 2, "'int4' is none of int8, fp32"),
        (tmp_path, "fp32", 1, "is no checkpoint"),
        (tmp_path / "small", "fp32", 1, "was exported without"),
        (lost, "fp32", 1, "or installed without; give the checkpoint instead"),
    ):
        result = run(source, tmp_path / "next", "--precision", precision)
        assert result.exit_code == code
        assert reason in " ".join(result.output.split())
        assert not (tmp_path / "next").exists()


def test_a_bundle_that_kept_its_weights_gives_the_same_graphs_again(bundle: Bundle, tmp_path: Path) -> None:
    result = run(bundle.directory, tmp_path / "again", "--precision", "fp32", "--name", "renamed", "--version", "7")
    again = Bundle.load(tmp_path / "again")

    assert result.exit_code == 0, result.output
    assert (again.manifest.name, again.manifest.version, list(again.manifest.variants)) == ("renamed", "7", ["fp32"])
    for name in ("fp32/encoder.onnx", "fp32/decoder_step.onnx", "fp32/weights.data", WEIGHTS_NAME):
        assert again.manifest.files[name] == bundle.manifest.files[name]


def test_alignment_heads_are_chosen_with_parallel_text_and_kept(bundle: Bundle, tmp_path: Path) -> None:
    for name in ("text.en", "text.de"):
        (tmp_path / name).write_text("\n".join(SENTENCES), encoding="utf-8")
    text = (tmp_path / "text.en", tmp_path / "text.de")
    measured = run(bundle.directory, tmp_path / "measured", "--precision", "fp32", "--align-with", *text)
    kept = run(tmp_path / "measured", tmp_path / "kept", "--precision", "fp32")
    (tmp_path / "text.de").write_text("one line", encoding="utf-8")
    refused = run(bundle.directory, tmp_path / "refused", "--precision", "fp32", "--align-with", *text)

    assert (measured.exit_code, kept.exit_code, refused.exit_code) == (0, 0, 1), measured.output
    found = Bundle.load(tmp_path / "measured").manifest.alignment
    assert found is not None
    assert (found.pairs, found == Bundle.load(tmp_path / "kept").manifest.alignment) == (len(SENTENCES), True)
    assert 0 < found.agreement <= 1
    assert bundle.manifest.alignment == usual_heads(bundle.manifest.config)
    assert "they must be parallel" in " ".join(refused.output.split())


def test_a_bundle_of_an_older_format_gets_new_graphs_from_its_kept_weights(bundle: Bundle, tmp_path: Path) -> None:
    old = Path(shutil.copytree(bundle.directory, tmp_path / "old"))
    manifest = json.loads((old / MANIFEST_NAME).read_text())
    (old / MANIFEST_NAME).write_text(json.dumps({**manifest, "format_version": 1}))
    with pytest.raises(BundleError, match="`python -m export` draws them again"):
        Bundle.load(old).variant()

    for destination in (tmp_path / "new", old):  # also in its own place
        result = run(old, destination, "--precision", "fp32")
        new = Bundle.load(destination)

        assert result.exit_code == 0, result.output
        assert new.manifest.format_version == BUNDLE_FORMAT_VERSION
        assert new.manifest.files["fp32/decoder_step.onnx"] == bundle.manifest.files["fp32/decoder_step.onnx"]
        assert new.variant().encoder == "fp32/encoder.onnx"


def test_graphs_over_the_tolerance_leave_the_old_bundle_as_it_was(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    destination = tmp_path / "bundle"
    assert run(checkpoint, destination, "--precision", "fp32", "--version", "1").exit_code == 0
    strict = replace(TOLERANCES["fp32"], largest_difference=0.0)
    monkeypatch.setitem(TOLERANCES, "fp32", strict)
    result = run(checkpoint, destination, "--precision", "fp32", "--version", "2")

    assert result.exit_code == 1
    assert "largest_difference is" in " ".join(result.output.split())
    assert Bundle.load(destination).manifest.version == "1"
    assert [path.name for path in tmp_path.iterdir()] == ["bundle"]


def test_a_bundle_gets_other_golden_sentences_whole_or_not_at_all(
    bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied = Bundle.load(Path(shutil.copytree(bundle.directory, tmp_path / "bundle")))
    copied.path("MODEL_CARD.md").write_text("what it can do")

    changed = add_golden(add_golden(copied, SENTENCES[:1]), SENTENCES[1:3])
    monkeypatch.setattr(Manifest, "to_json", lambda _: pytest.fail("killed on the way"))
    with pytest.raises(pytest.fail.Exception):
        add_golden(changed, SENTENCES[:1])

    assert {one.source for one in Bundle.load(changed.directory).golden_sentences("fp32")} == set(SENTENCES[1:3])
    assert changed.path("MODEL_CARD.md").read_text() == "what it can do"
    assert [path.name for path in tmp_path.iterdir()] == ["bundle"]
