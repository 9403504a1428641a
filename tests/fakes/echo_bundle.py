"""A bundle for `echo_runner`: a tokenizer with a token per character, and graphs that nobody opens."""

import string
from pathlib import Path

from model.bundle import DecodingDefaults, Manifest, Variant, staging_directory, write_bundle
from model.config import ModelConfig
from model.tokenizer import train_tokenizer

CHARACTERS = string.ascii_letters + string.digits + ".,!?-"
MAX_SOURCE_TOKENS = 512


def write_echo_bundle(destination: Path) -> Path:
    """The bundle's directory.  "Hi." has five source tokens: a word mark, three characters, end-of-sentence."""
    with staging_directory(destination) as staging:
        vocab_size = len(CHARACTERS) + 5  # four special ids and the word mark
        sentences = [" ".join(CHARACTERS), CHARACTERS] * 10
        train_tokenizer(sentences, staging / "shared.spm", vocab_size=vocab_size, model_type="char")
        for name in ("encoder.onnx", "decoder_step.onnx"):
            (staging / name).write_bytes(b"not a graph")
        write_bundle(staging, destination, _manifest(vocab_size))
    return destination


def _manifest(vocab_size: int) -> Manifest:
    return Manifest(
        name="echo",
        version="1.2.3",
        source_language="en",
        target_language="de",
        config=ModelConfig(vocab_size=vocab_size),
        decoding=DecodingDefaults(beam_size=2, max_target_tokens=256, max_source_tokens=MAX_SOURCE_TOKENS),
        variants={"fp32": Variant(encoder="encoder.onnx", decoder_step="decoder_step.onnx")},
    )
