"""A bundle for `echo_runner`, a model repository of such bundles, and the ways in which a bundle can be bad."""

import hashlib
import json
import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from model.bundle import GOLDEN_NAME, GoldenSentence, staging_directory, write_bundle, write_golden_sentences
from model.config import ModelConfig
from model.manifest import DecodingDefaults, Manifest, Variant
from model.tokenizer import train_tokenizer

CHARACTERS = string.ascii_letters + string.digits + ".,!?-"
VOCABULARY = len(CHARACTERS) + 5  # four special ids and the word mark
MAX_SOURCE_TOKENS = 512
NOT_A_GRAPH = b"\x12\x09echo echo"  # an ONNX file of nothing but its producer's name


@cache
def tokenizer() -> bytes:
    """Return a SentencePiece model of single characters."""
    with TemporaryDirectory() as directory:
        path = Path(directory) / "shared.spm"
        train_tokenizer([" ".join(CHARACTERS), CHARACTERS] * 10, path, vocab_size=VOCABULARY, model_type="char")
        return path.read_bytes()


def write_echo_bundle(
    destination: Path,
    *,
    name: str = "echo",
    version: str = "1.2.3",
    languages: tuple[str, str] = ("en", "de"),
    golden: Sequence[tuple[str, str]] = (),
    has_scorer: bool = True,
) -> Path:
    """The bundle's directory.  "Hi." has five source tokens: a word mark, three characters, end-of-sentence.

    Args:
        golden: texts and what is expected of them; the echo runner gives each text back.
        has_scorer: whether the manifest says so; the echo runner scores in any case.
    """
    with staging_directory(destination) as staging:
        (staging / "shared.spm").write_bytes(tokenizer())
        for graph in ("encoder.onnx", "decoder_step.onnx", *["scorer.onnx"] * has_scorer):
            (staging / graph).write_bytes(NOT_A_GRAPH)
        if golden:
            rows = [GoldenSentence(precision="fp32", source=source, translation=text) for source, text in golden]
            write_golden_sentences(staging / GOLDEN_NAME, rows)
        manifest = Manifest(
            name=name,
            version=version,
            source_language=languages[0],
            target_language=languages[1],
            config=ModelConfig(vocab_size=VOCABULARY),
            decoding=DecodingDefaults(beam_size=2, max_target_tokens=256, max_source_tokens=MAX_SOURCE_TOKENS),
            variants={
                "fp32": Variant(
                    encoder="encoder.onnx",
                    decoder_step="decoder_step.onnx",
                    scorer="scorer.onnx" if has_scorer else "",
                    attention_weights=has_scorer,
                )
            },
            golden=GOLDEN_NAME if golden else "",
        )
        write_bundle(staging, destination, manifest)
    return destination


@dataclass(frozen=True)
class ModelRepository:
    """NAME/VERSION/ below a directory."""

    directory: Path

    def put(self, name: str, version: str, **details: object) -> Path:
        """Publish a bundle, in one rename; `details` as in `write_echo_bundle`."""
        return write_echo_bundle(self.directory / name / version, name=name, version=version, **details)  # type: ignore[arg-type]

    def put_bad(self, name: str, version: str, spoil: Callable[[Path], object]) -> Path:
        """Publish a bundle that has been spoilt before."""
        draft = write_echo_bundle(self.directory / name / f".{version}", name=name, version=version)
        spoil(draft)
        return draft.rename(self.directory / name / version)


def edit_manifest(bundle: Path, **changes: object) -> None:
    path = bundle / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def replacing(name: str, content: bytes) -> Callable[[Path], object]:
    """Writes this file, and leaves its checksum."""
    return lambda bundle: (bundle / name).write_bytes(content)


tamper = replacing("encoder.onnx", NOT_A_GRAPH.replace(b"echo", b"ECHO"))


def cut_tokenizer(bundle: Path) -> None:
    """A tokenizer that is none, with the checksum that belongs to it."""
    (bundle / "shared.spm").write_bytes(b"\x00" * 100)
    files = json.loads((bundle / "manifest.json").read_text())["files"]
    files["shared.spm"] = {"sha256": hashlib.sha256(b"\x00" * 100).hexdigest(), "bytes": 100}
    edit_manifest(bundle, files=files)
