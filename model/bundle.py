"""The bundle: the directory that carries a model from training to serving, and the only thing that does.

    manifest.json        what this file describes, with the SHA-256 of every other file
    shared.spm           the tokenizer
    int8/, fp32/         graphs of one precision: encoder.onnx, decoder_step.onnx and the weights.data they share;
                         shortlist_step.onnx and projection.onnx for a step with a part of the vocabulary
    fp16/                graphs for a GPU: encoder.onnx, decoder_step.onnx, and arrange.onnx and extend.onnx, which move
                         keys and values there
    shortlist.csr        optional: which part, by source token
    golden.tsv           optional: sentences with the translations that the graphs must give, for a server to try
    manifest.sig         optional: the signature of manifest.json, which does not list it
    weights.safetensors  optional: all parameters in half precision, to export other precisions from; listed or not, a
                         server does without

A bundle is read as untrusted input: nothing outside the directory, no links, no pickles, nothing that differs from the
manifest.  Knows files and numbers; imports neither torch nor ONNX, and does not open the graphs.
"""

import hashlib
import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Self

from model.config import ModelConfig
from model.golden import GoldenSentence, from_tsv

BUNDLE_FORMAT_VERSION = 2  # 2: hypotheses share their cache columns, and the step graph ranks a sentence's candidates
READABLE_FORMAT_VERSIONS = (1, 2)  # of a manifest; graphs can be run in the newest format only
MANIFEST_NAME = "manifest.json"
SIGNATURE_NAME = "manifest.sig"
TOKENIZER_NAME = "shared.spm"
WEIGHTS_NAME = "weights.safetensors"
PRETRAINED_DIR = Path(__file__).parent / "pretrained"
DEFAULT_NAME = "en-de"  # of the included bundles
PREFERRED_PRECISIONS = ("int8", "fp32")  # on a CPU
GPU_PRECISION = "fp16"  # the one whose graphs a GPU runs
PICKLE_SUFFIXES = frozenset({".pt", ".pth", ".bin", ".pkl", ".pickle", ".ckpt", ".npy", ".npz", ".joblib"})
# What no file of a bundle is, by its first bytes: a zip archive (of torch.save, among others) and a NumPy array.
_ARCHIVE_MAGIC = (b"PK\x03\x04", b"\x93NUMPY")
_PICKLE_PROTOCOLS = range(2, 6)
# Ranges of search parameters, both ends included, in requests and as defaults; translation.proto says the same.
MAX_BEAM_SIZE = 64  # a server's own limit may be lower
LENGTH_PENALTY_RANGE = (0.0, 5.0)
PATIENCE_RANGE = (0.1, 8.0)
_TOKENS_RANGE = (1, (1 << 31) - 1)  # lengths are 32-bit integers; the model's positions are what limits them
_COUNT_RANGES = {
    "beam_size": (1, MAX_BEAM_SIZE),
    "max_target_tokens": _TOKENS_RANGE,
    "max_source_tokens": _TOKENS_RANGE,
}
_NUMBER_RANGES = {"length_penalty": LENGTH_PENALTY_RANGE, "patience": PATIENCE_RANGE}
_TEXT_FIELDS = ("name", "version", "source_language", "target_language", "tokenizer", "shortlist", "golden")


class BundleError(ValueError):
    """A bundle that cannot be used; the message says which file, what is wrong, and how to fix it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodingDefaults:
    """Search parameters of a request that names none, in the ranges of a request.

    Raises:
        ValueError: one is of another kind, or outside its range.
    """

    beam_size: int = 4
    length_penalty: float = 1.0
    patience: float = 1.0
    max_target_tokens: int = 256
    max_source_tokens: int = 512

    def __post_init__(self) -> None:
        for name, (low, high) in _COUNT_RANGES.items():
            value = getattr(self, name)
            if type(value) is not int or not low <= value <= high:  # a bool is an int by inheritance
                raise ValueError(f"{name} is {value!r}, it must be an integer from {low} to {high}")
        for name, (least, most) in _NUMBER_RANGES.items():
            value = getattr(self, name)
            if type(value) not in (int, float) or not least <= value <= most:  # also refuses NaN
                raise ValueError(f"{name} is {value!r}, it must be a number from {least} to {most}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """The graphs of one precision, and how far they are from the reference."""

    encoder: str
    decoder_step: str
    shortlist_step: str = ""  # the step with a part of the vocabulary, and
    projection: str = ""  # what that part is taken from
    arrange: str = ""  # for graphs that run on a GPU: moves keys and values there, and
    extend: str = ""  # the same with those of sentences that join
    parity: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileEntry:
    """What a file must be."""

    sha256: str
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """All that is known about a model without opening its graphs."""

    name: str
    version: str
    source_language: str
    target_language: str
    config: ModelConfig
    decoding: DecodingDefaults
    variants: dict[str, Variant]  # by precision
    tokenizer: str = TOKENIZER_NAME
    shortlist: str = ""  # empty: the model has none
    golden: str = ""  # likewise: nothing to try it with
    exported_with: dict[str, str] = field(default_factory=dict)
    files: dict[str, FileEntry] = field(default_factory=dict)
    format_version: int = BUNDLE_FORMAT_VERSION

    def to_json(self) -> str:
        """The text of `manifest.json`."""
        return json.dumps({**asdict(self), "config": self.config.to_dict()}, indent=2, sort_keys=True) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The inverse of `to_json`.

        Raises:
            ValueError, TypeError, KeyError: the text is no manifest; the message names the part.
        """
        fields: dict[str, Any] = json.loads(text)
        for name in _TEXT_FIELDS:
            if not isinstance(fields.get(name, ""), str):
                raise TypeError(f"{name} is {fields[name]!r}, it must be text")
        fields["config"] = ModelConfig.from_dict(fields["config"])
        fields["decoding"] = DecodingDefaults(**fields["decoding"])
        fields["variants"] = {precision: Variant(**variant) for precision, variant in fields["variants"].items()}
        fields["files"] = {name: FileEntry(**entry) for name, entry in fields["files"].items()}
        return cls(**fields)


@dataclass(frozen=True, slots=True)
class Bundle:
    """A model on disk whose files are what its manifest says."""

    directory: Path
    manifest: Manifest
    manifest_sha256: str  # of the file as it was read: tells this bundle from any other

    @classmethod
    def load(cls, directory: Path, *, verify: bool = True, manifest_sha256: str = "") -> Self:
        """Read and check the bundle in `directory`.

        Args:
            directory: where `manifest.json` lies.
            verify: compare every file's SHA-256 with the manifest's; without it, only presence and size.
            manifest_sha256: of the bundle that is meant; empty: whichever lies there.

        Raises:
            BundleError: the bundle cannot be used as it is, or is not the one that is meant.
        """
        manifest, found_sha256 = _read_manifest(directory)
        if manifest_sha256 not in ("", found_sha256):
            raise BundleError(f"{directory} holds another bundle than when this one was checked; reload the models")
        _refuse_pickles(directory)
        used = _referenced_files(manifest)
        for name in used:
            if name not in manifest.files:
                raise BundleError(
                    f"{directory / MANIFEST_NAME} uses {name!r} but does not list its checksum; export again"
                )
        for name, entry in manifest.files.items():
            is_optional = name == WEIGHTS_NAME and name not in used  # a server does without
            _check_file(directory, name, entry, verify=verify, is_optional=is_optional)
        return cls(directory, manifest, found_sha256)

    def variant(self, precision: str | None = None) -> Variant:
        """The graphs of a precision; without one, the best there is for a CPU.

        Raises:
            BundleError: the bundle has no such variant, or its graphs are of an older format.
        """
        self._require_current_graphs()
        available = self.manifest.variants
        if precision is not None and precision not in available:
            raise BundleError(f"{self.directory} has no {precision!r} graphs, only {sorted(available)}; export them")
        wanted = [precision] if precision is not None else [*PREFERRED_PRECISIONS, *available]
        return next(available[name] for name in wanted if name in available)

    def _require_current_graphs(self) -> None:
        found = self.manifest.format_version
        if found != BUNDLE_FORMAT_VERSION:
            how = "draws them again" if self.has_weights else "of the checkpoint makes new ones"
            raise BundleError(
                f"{self.directory} has graphs of format_version {found}, this program runs {BUNDLE_FORMAT_VERSION}; "
                f"`python -m export` {how}"
            )

    def path(self, name: str) -> Path:
        """Where a file of the bundle lies."""
        return self.directory / name

    @property
    def has_weights(self) -> bool:
        """Whether other precisions can be exported from it: images leave the weights out, and the manifest as it is."""
        return WEIGHTS_NAME in self.manifest.files and self.path(WEIGHTS_NAME).is_file()

    @property
    def tokenizer_path(self) -> Path:
        """The SentencePiece model."""
        return self.path(self.manifest.tokenizer)

    def golden_sentences(self, precision: str) -> list[GoldenSentence]:
        """What the graphs of this precision must translate as it says; empty where the bundle has nothing of the kind.

        Raises:
            BundleError: the file is none of golden sentences.
        """
        if not self.manifest.golden:
            return []
        path = self.path(self.manifest.golden)
        try:
            sentences = from_tsv(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise BundleError(f"{path} has no golden sentences: {error}; export again") from error
        return [sentence for sentence in sentences if sentence.precision == precision]

    @property
    def sha256_12(self) -> str:
        """The first twelve digits of the manifest's SHA-256."""
        return self.manifest_sha256[:12]


def default_bundle_dir() -> Path:
    """The English-German model that comes with the package."""
    return PRETRAINED_DIR / DEFAULT_NAME


def included_bundle_dirs(parent: Path = PRETRAINED_DIR) -> list[Path]:
    """The models that come with the package: the English-German one first, the others by name."""
    found = [path.parent for path in parent.glob(f"*/{MANIFEST_NAME}") if not path.parent.name.startswith(".")]
    return sorted(found, key=lambda directory: (directory.name != DEFAULT_NAME, directory.name))


def named_bundle_dir(name: str) -> Path:
    """The directory that people mean: of the included model of that name, or else the one at that path.

    Args:
        name: `default` is the English-German model.

    Raises:
        BundleError: there are both.
    """
    included = {**{path.name: path for path in included_bundle_dirs()}, "default": default_bundle_dir()}
    path = Path(name)
    if name not in included:
        return path
    if path.is_dir() and not (included[name].is_dir() and path.samefile(included[name])):
        raise BundleError(
            f"{name} is an included model and a directory here: write ./{name} for the directory, "
            f"{included[name]} for the included model"
        )
    return included[name]


def read_manifest(directory: Path) -> Manifest:
    """The manifest of a bundle, whose other files are not looked at.

    Raises:
        BundleError: there is none that can be read.
    """
    return _read_manifest(directory)[0]


def _read_manifest(directory: Path) -> tuple[Manifest, str]:
    """And the SHA-256 of the very bytes that it was read from."""
    path = directory / MANIFEST_NAME
    try:
        is_there, is_directory = path.is_file(), directory.is_dir()
    except OSError as error:
        raise BundleError(f"{directory} cannot be read: {error.strerror}") from error
    if not is_directory:
        raise BundleError(_no_directory(directory))
    if not is_there:
        raise BundleError(f"{directory} is not a bundle: it has no {MANIFEST_NAME}; `python -m export` makes one")
    try:
        content = path.read_bytes()
        text = content.decode("utf-8")
        _require_format_version(path, json.loads(text).get("format_version"))
        return Manifest.from_json(text), hashlib.sha256(content).hexdigest()
    except BundleError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, OSError, RecursionError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise BundleError(f"{path} is not a manifest ({reason}); restore the file or export again") from error


def _no_directory(path: Path) -> str:
    """What to say of it: a word alone is likely the name of an included model, mistyped."""
    if len(path.parts) > 1:
        return f"{path} is no directory; `python -m export` makes a bundle"
    names = ", ".join(sorted(directory.name for directory in included_bundle_dirs()))
    return f"{path} is no directory, and no included model ({names})"


def _require_format_version(path: Path, found: object) -> None:
    if found not in READABLE_FORMAT_VERSIONS:
        raise BundleError(
            f"{path} has format_version {found!r}, this program reads {READABLE_FORMAT_VERSIONS}; "
            "export the model again with this version of Dragoman"
        )


def _referenced_files(manifest: Manifest) -> list[str]:
    variants = manifest.variants.values()
    graphs = [name for graph in variants for name in (graph.encoder, graph.decoder_step)]
    optional = [
        name for graph in variants for name in (graph.shortlist_step, graph.projection, graph.arrange, graph.extend)
    ]
    return [manifest.tokenizer, *graphs, *filter(None, [*optional, manifest.shortlist, manifest.golden])]


def _refuse_pickles(directory: Path) -> None:
    """Formats that can run code when they are opened have no place in a bundle, listed or not."""
    for path in sorted(directory.rglob("*")):
        if path.suffix.lower() in PICKLE_SUFFIXES or (path.is_file() and _is_pickle(path)):
            raise BundleError(f"{path} can run code when it is opened; convert it to safetensors and remove it")


def _is_pickle(path: Path) -> bool:
    """Whether it looks like one from inside: a pickle begins with its protocol and ends with a full stop."""
    with path.open("rb") as stream:
        head = stream.read(8)
        if head.startswith(_ARCHIVE_MAGIC):
            return True
        if len(head) < 3 or head[0] != 0x80 or head[1] not in _PICKLE_PROTOCOLS:
            return False
        stream.seek(-1, os.SEEK_END)
        return stream.read() == b"."


def _check_file(directory: Path, name: str, entry: FileEntry, *, verify: bool, is_optional: bool) -> None:
    path = _inside(directory, name)
    if is_optional and not path.exists():
        return
    if not path.is_file():
        raise BundleError(f"{path} is missing; restore the file or export again")
    size = path.stat().st_size
    if size != entry.bytes:
        raise BundleError(f"{path} has {size} bytes, the manifest says {entry.bytes}; restore the file or export again")
    if verify and (found := _sha256(path)) != entry.sha256:
        digests = f"{found[:12]}, not {entry.sha256[:12]}"
        raise BundleError(
            f"{path} has another SHA-256 than the manifest says ({digests}); restore the file or export again"
        )


def _inside(directory: Path, name: str) -> Path:
    """The path of `name`, if it is a plain path below the directory and no link leads away from it."""
    parts = PurePosixPath(name).parts
    if not parts or name.startswith("/") or ".." in parts or "\\" in name or ":" in name:
        raise BundleError(
            f"{directory / MANIFEST_NAME} lists {name!r}, which is not a path inside the bundle; remove it"
        )
    path = directory
    for part in parts:
        path = path / part
        if path.is_symlink():
            raise BundleError(f"{path} is a symbolic link, which a bundle may not contain; put the file itself there")
    return path


def file_entry(path: Path) -> FileEntry:
    """What the manifest says of a file that is as it should be."""
    return FileEntry(sha256=_sha256(path), bytes=path.stat().st_size)


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
