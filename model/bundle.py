"""The bundle: the directory that carries a model from training to serving, and the only thing that does.

    manifest.json        what this file describes, with the SHA-256 of every other file
    shared.spm           the tokenizer
    int8/, fp32/         graphs of one precision: encoder.onnx, decoder_step.onnx and the weights.data they share;
                         shortlist_step.onnx and projection.onnx for a step with a part of the vocabulary
    fp16/                graphs for a GPU: encoder.onnx, decoder_step.onnx, and arrange.onnx and extend.onnx, which move
                         keys and values there
    shortlist.csr        optional: which part, by source token
    weights.safetensors  optional: all parameters in half precision, to export other precisions from

A bundle is read as untrusted input: nothing outside the directory, no links, no pickles, nothing that differs from the
manifest.  Knows files and numbers; imports neither torch nor ONNX, and does not open the graphs.
"""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any, Self

from model.config import ModelConfig

BUNDLE_FORMAT_VERSION = 2  # 2: hypotheses share their cache columns, and the step graph ranks a sentence's candidates
READABLE_FORMAT_VERSIONS = (1, 2)  # of a manifest; graphs can be run in the newest format only
MANIFEST_NAME = "manifest.json"
TOKENIZER_NAME = "shared.spm"
WEIGHTS_NAME = "weights.safetensors"
PREFERRED_PRECISIONS = ("int8", "fp32")  # on a CPU
GPU_PRECISION = "fp16"  # the one whose graphs a GPU runs
PICKLE_SUFFIXES = frozenset({".pt", ".pth", ".bin", ".pkl", ".pickle", ".ckpt", ".npy", ".joblib"})


class BundleError(ValueError):
    """A bundle that cannot be used; the message says which file, what is wrong, and how to fix it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodingDefaults:
    """Search parameters of a request that names none.

    Raises:
        ValueError: one is not a positive number.
    """

    beam_size: int = 4
    length_penalty: float = 1.0
    patience: float = 1.0
    max_target_tokens: int = 256
    max_source_tokens: int = 512

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not isinstance(value, (int, float)) or not value > 0:
                raise ValueError(f"{name} is {value!r}, it must be a number above 0")


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

    @classmethod
    def load(cls, directory: Path, *, verify: bool = True) -> Self:
        """Read and check the bundle in `directory`.

        Args:
            directory: where `manifest.json` lies.
            verify: compare every file's SHA-256 with the manifest's; without it, only presence and size.

        Raises:
            BundleError: the bundle cannot be used as it is.
        """
        manifest = _read_manifest(directory)
        _refuse_pickles(directory)
        for name in _referenced_files(manifest):
            if name not in manifest.files:
                raise BundleError(
                    f"{directory / MANIFEST_NAME} uses {name!r} but does not list its checksum; export again"
                )
        for name, entry in manifest.files.items():
            _check_file(directory, name, entry, verify=verify)
        return cls(directory, manifest)

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
            how = "draws them again" if WEIGHTS_NAME in self.manifest.files else "of the checkpoint makes new ones"
            raise BundleError(
                f"{self.directory} has graphs of format_version {found}, this program runs {BUNDLE_FORMAT_VERSION}; "
                f"`python -m export` {how}"
            )

    def path(self, name: str) -> Path:
        """Where a file of the bundle lies."""
        return self.directory / name

    @property
    def tokenizer_path(self) -> Path:
        """The SentencePiece model."""
        return self.path(self.manifest.tokenizer)

    @property
    def sha256_12(self) -> str:
        """Twelve hexadecimal digits that tell this bundle from any other."""
        return _sha256(self.path(MANIFEST_NAME))[:12]


def default_bundle_dir() -> Path:
    """The English-German model that comes with the package."""
    return Path(__file__).parent / "pretrained" / "en-de"


@contextmanager
def staging_directory(destination: Path) -> Iterator[Path]:
    """An empty directory beside `destination`, for `write_bundle`; whatever is left in it at the end is deleted."""
    destination.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=f".{destination.name}.", dir=destination.parent))
    staging.chmod(0o755)
    try:
        yield staging
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def write_bundle(staging: Path, destination: Path, manifest: Manifest) -> Bundle:
    """Make the files in `staging` a bundle, and put it at `destination` in one rename.

    An older bundle there is replaced; files beside it that its manifest does not list (a model card) are kept.

    Args:
        staging: from `staging_directory(destination)`, with every file in place.
        destination: the bundle's directory; absent, empty, or a bundle.
        manifest: everything but `files`, which is computed here.

    Raises:
        BundleError: `destination` holds something else, or the result would not load.
    """
    entries = {name: _entry(staging / name) for name in _file_names(staging)}
    staged_manifest = staging / MANIFEST_NAME
    staged_manifest.write_text(replace(manifest, files=entries).to_json(), encoding="utf-8")
    Bundle.load(staging, verify=False)
    _keep_unlisted_files(destination, staging)
    _sync(staging)
    _replace_directory(staging, destination)
    return Bundle.load(destination)


def _read_manifest(directory: Path) -> Manifest:
    path = directory / MANIFEST_NAME
    if not path.is_file():
        raise BundleError(f"{directory} is not a bundle: it has no {MANIFEST_NAME}; `python -m export` makes one")
    try:
        text = path.read_text(encoding="utf-8")
        _require_format_version(path, json.loads(text).get("format_version"))
        return Manifest.from_json(text)
    except BundleError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, OSError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise BundleError(f"{path} is not a manifest ({reason}); restore the file or export again") from error


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
    return [manifest.tokenizer, *graphs, *filter(None, [*optional, manifest.shortlist])]


def _refuse_pickles(directory: Path) -> None:
    """Formats that can run code when they are opened have no place in a bundle, listed or not."""
    for path in sorted(directory.rglob("*")):
        if path.suffix.lower() in PICKLE_SUFFIXES:
            raise BundleError(f"{path} can run code when it is opened; convert it to safetensors and remove it")


def _check_file(directory: Path, name: str, entry: FileEntry, *, verify: bool) -> None:
    path = _inside(directory, name)
    if not path.is_file():
        raise BundleError(f"{path} is missing; restore the file or export again")
    size = path.stat().st_size
    if size != entry.bytes:
        raise BundleError(f"{path} has {size} bytes, the manifest says {entry.bytes}; restore the file or export again")
    if verify and _sha256(path) != entry.sha256:
        raise BundleError(f"{path} has another SHA-256 than the manifest says; restore the file or export again")


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


def _file_names(directory: Path) -> list[str]:
    return sorted(path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file())


def _entry(path: Path) -> FileEntry:
    return FileEntry(sha256=_sha256(path), bytes=path.stat().st_size)


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _keep_unlisted_files(old: Path, new: Path) -> None:
    if not old.exists() or not any(old.iterdir()):
        return
    if not (old / MANIFEST_NAME).is_file():
        raise BundleError(f"{old} exists and is not a bundle; remove it or choose another directory")
    listed = {*_read_manifest(old).files, MANIFEST_NAME}
    for name in _file_names(old):
        if name not in listed and not (new / name).exists():
            (new / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(old / name, new / name)


def _sync(directory: Path) -> None:
    """Make sure that a power cut after the rename finds the files' contents on disk."""
    for path in [*directory.rglob("*"), directory]:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _replace_directory(new: Path, destination: Path) -> None:
    """Rename `new` to `destination`; an older directory steps aside first and is put back if that fails."""
    if not destination.exists():
        new.rename(destination)
        return
    with staging_directory(destination) as aside:
        old = destination.rename(aside / "old")
        try:
            new.rename(destination)
        except OSError:
            old.rename(destination)
            raise
