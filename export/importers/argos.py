"""An Argos Translate package: a CTranslate2 model with its tokenizer, in a folder or in a zip archive (.argosmodel).

Names and defaults as in Argos Translate's package.py and translate.py.  Data of sentence splitters (stanza) is ignored.
"""

import io
import re
import shutil
import stat
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from export.importers.foreign import ForeignModelError, read_settings

METADATA_NAME, PIECES_NAME, PAIRS_NAME = "metadata.json", "sentencepiece.model", "bpe.model"
_VOCABULARIES = [f"{side}_vocabulary.{ending}" for side in ("shared", "source", "target") for ending in ("json", "txt")]
_NEEDED = (
    METADATA_NAME,
    PIECES_NAME,
    PAIRS_NAME,
    *(f"model/{name}" for name in ("model.bin", "config.json", *_VOCABULARIES)),
)
_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,63}")  # becomes a directory's name in a repository
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # others unpack without a bound on memory
_OWN_CODES = {"pb": "pt-BR", "zt": "zh-Hant"}  # that no standard has
# What zipfile raises; NotImplementedError for a later version of the format, or patched data.
_DAMAGED = (zipfile.BadZipFile, zlib.error, struct.error, NotImplementedError, EOFError, OverflowError, UnicodeError)
_MAX_RATIO = 10  # of a file to its archive: numbers hardly shrink, and vocabularies are small beside them
_MAX_READ = 1 << 20  # bytes at once: the directory of an archive with 1,000 files has a tenth of it


@dataclass(frozen=True, slots=True, kw_only=True)
class ArgosPackage:
    """What a package's `metadata.json` says, and how Argos Translate searches."""

    name: str  # as in Argos's own index
    version: str
    languages: tuple[str, str]  # source and target
    target_prefix: tuple[str, ...] = ()
    length_penalty: float = 0.2

    @classmethod
    def read(cls, directory: Path) -> Self | None:
        """Return what is said in a directory; None if it is no package.

        Raises:
            ForeignModelError: the package is damaged, or of a kind that is not supported.
        """
        path = directory / METADATA_NAME
        settings = read_settings(path) if path.is_file() else {}
        if "from_code" not in settings:
            return None
        if (kind := settings.get("type", "translate")) != "translate":
            raise ForeignModelError(f"{path}: type is {kind!r:.60}, only 'translate' is supported")
        if (directory / PAIRS_NAME).is_file() and not (directory / PIECES_NAME).is_file():
            raise ForeignModelError(
                f"{directory} has {PAIRS_NAME}: tokens of Moses and subword-nmt are not supported, only {PIECES_NAME}"
            )
        found = {name: settings.get(name, "") for name in ("from_code", "to_code", "package_version")}
        found["package_version"] = str(found["package_version"] or 1)
        for name, value in found.items():
            if not isinstance(value, str) or not _SAFE.fullmatch(value):
                raise ForeignModelError(f"{path}: {name} is {value!r:.60}, it must be a plain name such as en")
        source, target, version = found.values()
        prefix = settings.get("target_prefix")
        return cls(
            name=f"translate-{source}_{target}",
            version=version,
            languages=(_OWN_CODES.get(source, source), _OWN_CODES.get(target, target)),
            target_prefix=(prefix,) if prefix else (),
        )


@contextmanager
def model_directory(source: Path, beside: Path) -> Iterator[Path]:
    """Give the directory of a model: the source, or where its archive is unpacked until the context ends.

    Args:
        source: a directory, or an archive of Argos Translate.
        beside: the directory in which a temporary one is made for an archive.

    Raises:
        ForeignModelError: the archive is damaged, or plays tricks with paths and sizes.  Where the context raises it,
            its message gets the archive's name in place of the temporary one.
    """
    if source.is_dir():
        yield source
        return
    beside.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".import-", dir=beside) as directory:
        try:
            _unpack(source, Path(directory))
        except _DAMAGED as error:
            raise ForeignModelError(f"{source} is no zip archive, or damaged: {error}") from error
        try:
            _require_package(Path(directory))
            yield Path(directory)
        except ForeignModelError as error:
            raise ForeignModelError(str(error).replace(directory, str(source))) from error


def _require_package(directory: Path) -> None:
    if ArgosPackage.read(directory) is None:
        raise ForeignModelError(f"{directory / METADATA_NAME} has no from_code")


class _Archive(io.FileIO):
    """A file of which nobody reads much at once, since an archive's directory could claim all of it."""

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Go to a byte."""
        try:
            return super().seek(offset, whence)
        except OSError as error:
            raise zipfile.BadZipFile(f"it refers to byte {offset}") from error

    def read(self, size: int | None = -1, /) -> bytes:
        """Return at most so many bytes."""
        if size is not None and size > _MAX_READ:
            raise ForeignModelError(f"{self.name} has a directory of {size} bytes, at most {_MAX_READ} are accepted")
        return super().read(_MAX_READ if size is None or size < 0 else size)


def _unpack(source: Path, directory: Path) -> None:
    """Write the needed files of an archive with one folder under their usual names."""
    with _Archive(source) as file, zipfile.ZipFile(file) as archive:
        entries = archive.infolist()
        _require_plain(entries, source)
        by_name = {one.filename: one for one in entries}
        folders = [name.partition("/")[0] for name in by_name if name.partition("/")[2] == METADATA_NAME]
        if len(folders) != 1:
            raise ForeignModelError(f"{source} has {len(folders)} folders with {METADATA_NAME}, a package has one")
        needed = {name: by_name[f"{folders[0]}/{name}"] for name in _NEEDED if f"{folders[0]}/{name}" in by_name}
        size, most = sum(one.file_size for one in needed.values()), _MAX_RATIO * source.stat().st_size + _MAX_READ
        if size > most:
            raise ForeignModelError(f"{source} would fill {size} bytes, at most {most} are accepted of its size")
        (directory / "model").mkdir()
        for name, entry in needed.items():
            with archive.open(entry) as packed, (directory / name).open("wb") as out:
                shutil.copyfileobj(packed, out)  # stops at the size that the entry claims
            if (written := (directory / name).stat().st_size) != entry.file_size:
                raise ForeignModelError(f"{source}: {name} has {written} bytes, its entry says {entry.file_size}")


def _require_plain(entries: list[zipfile.ZipInfo], source: Path) -> None:
    """Refuse entries that no honest archive of files has, needed or not."""
    seen: set[str] = set()
    for entry in entries:
        name = entry.orig_filename.removesuffix("/")
        parts = name.split("/")
        reasons = {
            "leads out of the archive": name.startswith("/") or ".." in parts or "\\" in name or ":" in parts[0],
            "is no plain name": entry.orig_filename != entry.filename or "" in parts or "." in parts,
            "is there twice": name in seen,
            "is a link": stat.S_ISLNK(entry.external_attr >> 16),
            "is encrypted": bool(entry.flag_bits & 1),
            "is packed by another method than deflate": entry.compress_type not in _METHODS,
        }
        for reason, is_so in reasons.items():
            if is_so:
                raise ForeignModelError(f"{source}: the entry {name[:80]!r} {reason}")
        seen.add(name)
