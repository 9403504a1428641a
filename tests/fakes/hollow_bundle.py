"""A bundle with all that belongs to one, of a few bytes each: it loads, and nothing in it can be run."""

from pathlib import Path

import pytest

from model.bundle import Bundle, staging_directory, write_bundle
from model.config import ModelConfig
from model.manifest import DecodingDefaults, Manifest, Variant

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
