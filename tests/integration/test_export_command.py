"""`python -m export`: from a checkpoint to a bundle, and what it refuses."""

import gzip
import itertools
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.main import get_command
from typer.testing import CliRunner, Result

from export.__main__ import app
from export.heads import usual_heads
from export.samples import NUM_SENTENCES, read_samples
from export.source import FIRST_VERSION, ExportSource
from export.verify import TOLERANCES
from model.bundle import MANIFEST_NAME, WEIGHTS_NAME, Bundle, BundleError
from model.manifest import BUNDLE_FORMAT_VERSION
from model.tokenizer import Tokenizer
from tests.fakes.tiny_model import SENTENCES, tiny_config, write_tiny_checkpoint


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


def test_the_version_is_the_bundle_s_and_of_a_checkpoint_the_first(bundle: Bundle, tmp_path: Path) -> None:
    (option,) = (option for option in get_command(app).params if option.name == "version")
    for destination, arguments in (("second", ["--version", "2"]), ("again", [])):
        source = bundle.directory if arguments else tmp_path / "second"
        assert run(source, tmp_path / destination, "--precision", "fp32", *arguments).exit_code == 0

    assert bundle.manifest.version == FIRST_VERSION
    assert Bundle.load(tmp_path / "again").manifest.version == "2"
    assert f"default: the bundle's, else {FIRST_VERSION}." in getattr(option, "help", "")


def test_the_reliable_length_is_the_given_one_or_the_bundle_s(bundle: Bundle, tmp_path: Path) -> None:
    for destination, source, arguments in (
        ("given", bundle.directory, ["--reliable-source-tokens", "40"]),
        ("again", tmp_path / "given", []),
    ):
        assert run(source, tmp_path / destination, "--precision", "fp32", *arguments).exit_code == 0

    assert bundle.manifest.decoding.reliable_source_tokens is None
    assert Bundle.load(tmp_path / "again").manifest.decoding.reliable_source_tokens == 40


def test_int8_graphs_that_are_exported_again_without_calibration_are_those_of_the_bundle(
    bundle: Bundle, checkpoint: Path, tmp_path: Path
) -> None:
    again = run(bundle.directory, tmp_path / "again", "--precision", "int8")
    refused = run(checkpoint, tmp_path / "refused", "--precision", "int8")

    assert (again.exit_code, refused.exit_code) == (0, 1), again.output
    new = Bundle.load(tmp_path / "again").manifest
    assert {new.files[name] == bundle.manifest.files[name] for name in new.files if name.startswith("int8/")} == {True}
    assert new.exported_with == bundle.manifest.exported_with
    assert "int8 needs calibration sentences" in refused.output


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


def test_graphs_have_a_scorer_whatever_their_device(bundle: Bundle, tmp_path: Path) -> None:
    assert run(bundle.directory, tmp_path / "gpu", "--precision", "fp16").exit_code == 0

    assert Bundle.load(tmp_path / "gpu").manifest.variants["fp16"].scorer == "fp16/scorer.onnx"
    assert {precision: variant.scorer for precision, variant in bundle.manifest.variants.items()} == {
        "int8": "int8/scorer.onnx",
        "fp32": "fp32/scorer.onnx",
    }
    assert bundle.manifest.variants["fp32"].parity["attention_largest_difference"] < 1e-4


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


def test_a_bundle_without_golden_sentences_is_said_to_have_none(
    bundle: Bundle, checkpoint: Path, calibration: Path, tmp_path: Path
) -> None:
    without = run(checkpoint, tmp_path / "without", "--precision", "fp32")
    given = run(checkpoint, tmp_path / "given", "--precision", "fp32", "--calibration", calibration)
    kept = run(bundle.directory, tmp_path / "kept", "--precision", "fp32")  # those that it had
    for_a_gpu = run(checkpoint, tmp_path / "gpu", "--precision", "fp16")  # nothing here can translate them

    assert without.exit_code == given.exit_code == kept.exit_code == for_a_gpu.exit_code == 0
    assert "has no golden sentences" in " ".join(without.stderr.split())
    assert "`python -m export.golden BUNDLE SENTENCES` adds" in " ".join(without.stderr.split())
    assert "golden" not in given.stderr + kept.stderr + for_a_gpu.stderr


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


def test_a_parameter_too_large_for_half_precision_is_refused(checkpoint: Path) -> None:
    source = ExportSource.load(checkpoint)
    huge = replace(source, state={**source.state, "encoder.norm.bias": np.array([7e4], np.float32)})

    with pytest.raises(ValueError, match=r"encoder\.norm\.bias has values beyond float16's largest"):
        huge.in_half_precision()


def test_a_long_file_is_sampled_from_end_to_end(tiny_tokenizer_path: Path, tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(tiny_tokenizer_path)
    words = ("red", "old", "small", "long", "fresh")
    lines = [" ".join(words) for words in itertools.islice(itertools.product(words, repeat=5), NUM_SENTENCES * 3)]
    path = tmp_path / "long.en.gz"
    path.write_bytes(gzip.compress("\n".join(lines).encode()))
    samples = read_samples(path, tokenizer, tiny_config(vocab_size=120))

    assert (len(samples.calibration), len(samples.verification)) == (NUM_SENTENCES * 4 // 5, NUM_SENTENCES // 5)
    assert samples.calibration[0] == tokenizer.encode(lines[0])
    assert samples.verification[-1] == tokenizer.encode(lines[-3])
    assert not {tuple(ids) for ids in samples.calibration} & {tuple(ids) for ids in samples.verification}
