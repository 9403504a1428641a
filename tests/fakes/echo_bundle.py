"""A bundle for `echo_runner`: a tokenizer with a token per character, and graphs that nobody runs."""

import string
from collections.abc import Sequence
from pathlib import Path

from model.bundle import GOLDEN_NAME, GoldenSentence, staging_directory, write_bundle, write_golden_sentences
from model.config import ModelConfig
from model.manifest import DecodingDefaults, Manifest, Variant
from model.tokenizer import train_tokenizer

CHARACTERS = string.ascii_letters + string.digits + ".,!?-"
MAX_SOURCE_TOKENS = 512
NOT_A_GRAPH = b"\x12\x09echo echo"  # an ONNX file of nothing but its producer's name


def write_echo_bundle(
    destination: Path,
    *,
    name: str = "echo",
    version: str = "1.2.3",
    languages: tuple[str, str] = ("en", "de"),
    golden: Sequence[tuple[str, str]] = (),
) -> Path:
    """The bundle's directory.  "Hi." has five source tokens: a word mark, three characters, end-of-sentence.

    Args:
        golden: texts and what is expected of them; the echo runner gives each text back.
    """
    with staging_directory(destination) as staging:
        vocab_size = len(CHARACTERS) + 5  # four special ids and the word mark
        sentences = [" ".join(CHARACTERS), CHARACTERS] * 10
        train_tokenizer(sentences, staging / "shared.spm", vocab_size=vocab_size, model_type="char")
        for graph in ("encoder.onnx", "decoder_step.onnx"):
            (staging / graph).write_bytes(NOT_A_GRAPH)
        if golden:
            rows = [GoldenSentence(precision="fp32", source=source, translation=text) for source, text in golden]
            write_golden_sentences(staging / GOLDEN_NAME, rows)
        manifest = Manifest(
            name=name,
            version=version,
            source_language=languages[0],
            target_language=languages[1],
            config=ModelConfig(vocab_size=vocab_size),
            decoding=DecodingDefaults(beam_size=2, max_target_tokens=256, max_source_tokens=MAX_SOURCE_TOKENS),
            variants={"fp32": Variant(encoder="encoder.onnx", decoder_step="decoder_step.onnx")},
            golden=GOLDEN_NAME if golden else "",
        )
        write_bundle(staging, destination, manifest)
    return destination
