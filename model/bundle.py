"""The bundle: the directory that carries a model from training to serving, and the only thing that does.

    manifest.json        what `manifest.py` describes, with the SHA-256 of every other file
    shared.spm           the tokenizer
    int8/, fp32/         graphs of one precision: encoder.onnx, decoder_step.onnx and the weights.data they share
    fp16/                graphs for a GPU: encoder.onnx and decoder_step.onnx
    shortlist.csr        optional: likely target tokens, by source token
    golden.tsv           optional: sentences with the translations that the graphs must give, for a server to try
    weights.safetensors  optional: all parameters in half precision, to export other precisions from; a server needs
                         no such file, even if the manifest lists it

A bundle is read as untrusted input: nothing outside the directory, no links, no pickles, nothing that differs from the
manifest.  Imports neither torch nor ONNX, and does not open the graphs.
"""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Self

from model.manifest import (
    PREFERRED_PRECISIONS,
    READABLE_FORMAT_VERSIONS,
    RUNNABLE_FORMAT_VERSIONS,
    FileEntry,
    Manifest,
    Variant,
)

MANIFEST_NAME = "manifest.json"
WEIGHTS_NAME = "weights.safetensors"
GOLDEN_NAME = "golden.tsv"
GOLDEN_MAX_TARGET_TOKENS = 64  # of a golden translation, end-of-sentence included
PRETRAINED_DIR = Path(__file__).parent / "pretrained"
DEFAULT_NAME = "en-de"  # of the included bundles
PICKLE_SUFFIXES = frozenset({".pt", ".pth", ".bin", ".pkl", ".pickle", ".ckpt", ".npy", ".npz", ".joblib"})
# First bytes that no file of a bundle has: those of a zip archive (of torch.save, among others) and of a NumPy array.
_ARCHIVE_MAGIC = (b"PK\x03\x04", b"\x93NUMPY")
_PICKLE_PROTOCOLS = range(2, 6)


class BundleError(ValueError):
    """A bundle that cannot be used; the message says which file, what is wrong, and how to fix it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldenSentence:
    """The translation that the graphs of one precision must give of a text: greedy, of limited length."""

    precision: str
    source: str
    translation: str


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
            directory: contains `manifest.json`.
            verify: compare every file's SHA-256 with the manifest's; without it, only presence and size.
            manifest_sha256: digest that the manifest must have; empty: any.

        Raises:
            BundleError: the bundle cannot be used, or its manifest has another digest.
        """
        manifest, found_sha256 = read_manifest(directory)
        if manifest_sha256 not in ("", found_sha256):
            raise BundleError(f"{directory} holds another bundle than when this one was checked; reload the models")
        used = manifest.used_files
        for name in used:
            if name not in manifest.files:
                raise BundleError(
                    f"{directory / MANIFEST_NAME} uses {name!r} but does not list its checksum; export again"
                )
        try:
            _refuse_pickles(directory)
            for name, entry in manifest.files.items():
                path = _inside(directory, name)
                is_optional = name == WEIGHTS_NAME and name not in used
                if not (is_optional and not path.exists()):
                    _check_file(path, entry, verify=verify)
        except OSError as error:
            raise BundleError(f"{error.filename or directory} cannot be read: {error.strerror}") from error
        return cls(directory, manifest, found_sha256)

    def variant(self, precision: str | None = None) -> Variant:
        """Return the graphs of a precision; without one, the best ones for a CPU.

        Raises:
            BundleError: the bundle has no such variant, or its graphs are of an older format.
        """
        found = self.manifest.format_version
        if found not in RUNNABLE_FORMAT_VERSIONS:
            how = "draws them again" if self.has_weights else "of the checkpoint makes new ones"
            raise BundleError(
                f"{self.directory} has graphs of format_version {found}, this program runs {RUNNABLE_FORMAT_VERSIONS}; "
                f"`python -m export` {how}"
            )
        available = self.manifest.variants
        if precision is not None and precision not in available:
            some = ", ".join(sorted(available))
            raise BundleError(
                f"{self.directory} has no graphs in {precision!r}, only in {some}; `python -m export` makes others"
            )
        wanted = [precision] if precision is not None else [*PREFERRED_PRECISIONS, *available]
        return next(available[name] for name in wanted if name in available)

    def path(self, name: str) -> Path:
        """Return where a file of the bundle lies."""
        return self.directory / name

    @property
    def has_weights(self) -> bool:
        """Whether other precisions can be exported from it: images leave out the weights, not their manifest entry."""
        return WEIGHTS_NAME in self.manifest.files and self.path(WEIGHTS_NAME).is_file()

    @property
    def tokenizer_path(self) -> Path:
        """The SentencePiece model, or that of the source."""
        return self.path(self.manifest.tokenizer.source)

    def golden_sentences(self, precision: str) -> list[GoldenSentence]:
        """Return the golden sentences of a precision; empty where the bundle has none.

        Raises:
            BundleError: a line of the file does not have three fields.
        """
        if not self.manifest.golden:
            return []
        path = self.path(self.manifest.golden)
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
            sentences = [_golden_sentence(number, line) for number, line in enumerate(lines, start=1)]
        except ValueError as error:
            raise BundleError(f"{path} has no golden sentences: {error}; export again") from error
        return [sentence for sentence in sentences if sentence.precision == precision]

    @property
    def sha256_12(self) -> str:
        """The first twelve digits of the manifest's SHA-256."""
        return self.manifest_sha256[:12]


def _golden_sentence(number: int, line: str) -> GoldenSentence:
    fields = line.split("\t")
    if len(fields) != 3:
        raise ValueError(f"line {number} has {len(fields)} fields, precision, source and translation are 3")
    precision, source, translation = fields
    return GoldenSentence(precision=precision, source=source, translation=translation)


def write_golden_sentences(path: Path, sentences: Iterable[GoldenSentence]) -> None:
    """Write the file that `Bundle.golden_sentences` reads.

    Raises:
        ValueError: a field has a tab or a line break.
    """
    lines = [f"{one.precision}\t{one.source}\t{one.translation}" for one in sentences]
    for number, line in enumerate(lines, start=1):
        if line.count("\t") != 2 or len(line.splitlines()) != 1:
            raise ValueError(f"golden sentence {number} has a tab or a line break: {line!a}")
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def default_bundle_dir() -> Path:
    """Return the directory of the included English-German model."""
    return PRETRAINED_DIR / DEFAULT_NAME


def included_bundle_dirs(parent: Path = PRETRAINED_DIR) -> list[Path]:
    """Return the directories of the included models: the English-German one first, the others by name."""
    found = [path.parent for path in parent.glob(f"*/{MANIFEST_NAME}") if not path.parent.name.startswith(".")]
    return sorted(found, key=lambda directory: (directory.name != DEFAULT_NAME, directory.name))


def named_bundle_dir(name: str) -> Path:
    """Return the directory of the included model of that name (`default`: English-German), or else the path itself.

    Raises:
        BundleError: an included model and a directory have that name.
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


def read_manifest(directory: Path) -> tuple[Manifest, str]:
    """Return a bundle's manifest and the SHA-256 of the bytes it was read from, without a look at the other files.

    Raises:
        BundleError: there is no manifest that can be read.
    """
    path = directory / MANIFEST_NAME
    try:
        is_there, is_directory = path.is_file(), directory.is_dir()
    except OSError as error:
        raise BundleError(f"{directory} cannot be read: {error.strerror}") from error
    if not is_directory and len(directory.parts) > 1:
        raise BundleError(f"{directory} is no directory; `python -m export` makes a bundle")
    if not is_directory:  # a word alone is likely the mistyped name of an included model
        names = ", ".join(sorted(included.name for included in included_bundle_dirs()))
        raise BundleError(f"{directory} is no directory, and no included model ({names})")
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


def _require_format_version(path: Path, found: object) -> None:
    if found not in READABLE_FORMAT_VERSIONS:
        raise BundleError(
            f"{path} has format_version {found!r}, this program reads {READABLE_FORMAT_VERSIONS}; "
            "export the model again with this version of Dragoman"
        )


def _refuse_pickles(directory: Path) -> None:
    """Refuse formats that can run code when they are opened, listed in the manifest or not."""
    for path in sorted(directory.rglob("*")):
        if path.suffix.lower() in PICKLE_SUFFIXES or (path.is_file() and _is_pickle(path)):
            raise BundleError(f"{path} can run code when it is opened; convert it to safetensors and remove it")


def _is_pickle(path: Path) -> bool:
    """Whether the content looks like a pickle, which begins with its protocol and ends with a full stop."""
    with path.open("rb") as stream:
        head = stream.read(8)
        if head.startswith(_ARCHIVE_MAGIC):
            return True
        if len(head) < 3 or head[0] != 0x80 or head[1] not in _PICKLE_PROTOCOLS:
            return False
        stream.seek(-1, os.SEEK_END)
        return stream.read() == b"."


def _check_file(path: Path, entry: FileEntry, *, verify: bool) -> None:
    if not path.is_file():
        raise BundleError(f"{path} is missing; restore the file or export again")
    size = path.stat().st_size
    if size != entry.bytes:
        raise BundleError(f"{path} has {size} bytes, the manifest says {entry.bytes}; restore the file or export again")
    if verify and (found := file_entry(path).sha256) != entry.sha256:
        digests = f"{found[:12]}, not {entry.sha256[:12]}"
        raise BundleError(
            f"{path} has another SHA-256 than the manifest says ({digests}); restore the file or export again"
        )


def _inside(directory: Path, name: str) -> Path:
    """Return the path of `name`, which must be a plain path below the directory without a link on its way."""
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
    """Return the size and checksum of a file, for the manifest."""
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    return FileEntry(sha256=digest, bytes=path.stat().st_size)


@contextmanager
def staging_directory(destination: Path) -> Iterator[Path]:
    """Make an empty directory beside `destination` for `write_bundle`; delete at the end what is left in it."""
    destination.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=f".{destination.name}.", dir=destination.parent))
    staging.chmod(0o755)
    try:
        yield staging
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def write_bundle(staging: Path, destination: Path, manifest: Manifest) -> Bundle:
    """Make the files in `staging` a bundle and put it at `destination`, whole or not at all.

    An older bundle there is replaced; files in it that its manifest does not list (a model card) are kept.  The
    replacement takes two renames: a kill between them leaves the older bundle as `old` in a hidden directory beside.

    Args:
        staging: from `staging_directory(destination)`, with every file in place.
        destination: the bundle's directory; absent, empty, or a bundle.
        manifest: everything but `files`, which is computed here.

    Raises:
        BundleError: `destination` holds something else, or the result would not load.
    """
    entries = {name: file_entry(staging / name) for name in _file_names(staging)}
    staged_manifest = staging / MANIFEST_NAME
    staged_manifest.write_text(replace(manifest, files=entries).to_json(), encoding="utf-8")
    Bundle.load(staging, verify=False)
    _keep_unlisted_files(destination, staging)
    for path in [*staging.rglob("*"), staging]:  # a power cut after the rename must find the contents on disk
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    _replace_directory(staging, destination)
    return Bundle.load(destination)


def _keep_unlisted_files(old: Path, new: Path) -> None:
    if not old.exists() or not any(old.iterdir()):
        return
    if not (old / MANIFEST_NAME).is_file():
        raise BundleError(f"{old} exists and is not a bundle; remove it or choose another directory")
    manifest, _ = read_manifest(old)
    listed = {*manifest.files, MANIFEST_NAME}
    for name in _file_names(old):
        if name not in listed and not (new / name).exists():
            (new / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(old / name, new / name)


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


def _file_names(directory: Path) -> list[str]:
    return sorted(path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file())
