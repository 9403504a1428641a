"""Where bundles are found: a directory of NAME/VERSION/, those that come with the package, or one bundle alone.

Says what there is and in which order it is tried; opens nothing but manifests, to tell their contents apart, and judges
nothing.  Names that begin with a dot are left out: writers keep what is not finished there.  So is lost+found, which
every ext4 volume has.  Another directory that cannot be read, or link that cannot be followed, is a candidate that
will be refused, like a bad bundle: it stops no other, and what has been served from it serves on.
"""

import hashlib
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from model.bundle import DEFAULT_NAME, MANIFEST_NAME, PRETRAINED_DIR, included_bundle_dirs

_NUMBERS = re.compile(r"(\d+)")
_OF_THE_FILE_SYSTEM = "lost+found"


class RepositoryError(ValueError):
    """There is no repository, or nothing in it; `str(error)` is one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A directory that may hold a bundle."""

    directory: Path
    name: str = ""  # that its manifest must have; empty: any
    version: str = ""  # likewise
    manifest_sha256: str = ""  # empty: it has no manifest that can be read
    fingerprint: str = ""  # changes whenever a file of it does: paths, sizes, times
    is_default: bool = False  # of several models that fit a request it answers, whatever their names
    is_required: bool = False  # no server without it: a start fails if it is refused, and it is never retired

    @property
    def label(self) -> str:
        """What people call it."""
        return "/".join(filter(None, (self.name, self.version))) or str(self.directory)


# By name, the default one first and then in order of names; of each name the highest version first.
Candidates = dict[str, tuple[Candidate, ...]]


class Source(Protocol):
    """Where candidates come from."""

    def scan(self) -> Candidates:
        """What there is now.

        Raises:
            RepositoryError: nothing.
        """
        ...


@dataclass(frozen=True, slots=True)
class SingleBundle:
    """One bundle, of whatever name; the key of its candidate is the empty string."""

    directory: Path

    def scan(self) -> Candidates:
        """See `Source.scan`."""
        return {"": (_candidate(self.directory),)}


@dataclass(frozen=True, slots=True)
class IncludedBundles:
    """Those that come with the package, by the names of their directories; the English-German one is the default."""

    directory: Path = PRETRAINED_DIR

    def scan(self) -> Candidates:
        """See `Source.scan`."""
        found = included_bundle_dirs(self.directory)
        if not found:
            raise RepositoryError(f"there is no included model in {self.directory}; install Dragoman again")
        # The default one in any case: without it, others would answer requests that name nothing.
        names = dict.fromkeys([DEFAULT_NAME, *(path.name for path in found)])
        return {name: (self._candidate(name),) for name in names}

    def _candidate(self, name: str) -> Candidate:
        candidate = _candidate(self.directory / name, name=name)
        return replace(candidate, is_default=name == DEFAULT_NAME, is_required=True)


@dataclass(frozen=True, slots=True)
class Repository:
    """NAME/VERSION/ under a directory."""

    directory: Path

    def scan(self) -> Candidates:
        """See `Source.scan`."""
        try:
            found = {name.name: _versions(name) for name in _directories(self.directory)}
        except OSError as error:
            raise RepositoryError(f"model repository {self.directory} cannot be read: {error.strerror}") from error
        candidates = {name: found[name] for name in sorted(found) if found[name]}
        if not candidates:
            raise RepositoryError(
                f"model repository {self.directory} is empty; put bundles at {self.directory}/NAME/VERSION/"
            )
        return candidates


def version_order(version: str) -> tuple[tuple[int, int, str], ...]:
    """A key by which versions sort as people read them: numbers by value, everything else as text.

    "9" < "10", "1.9" < "1.10", "1" < "1.0", and letters come after digits.
    """
    return tuple(
        (0, int(part), part) if part.isascii() and part.isdecimal() else (1, 0, part)
        for part in _NUMBERS.split(version)
        if part
    )


def _versions(name: Path) -> tuple[Candidate, ...]:
    """The highest version first; of a directory that cannot be read, the directory itself."""
    try:
        found = _directories(name)
    except FileNotFoundError:  # gone meanwhile
        return ()
    except OSError:
        return (_candidate(name, name=name.name),)
    directories = sorted(found, key=lambda path: version_order(path.name), reverse=True)
    return tuple(_candidate(path, name=name.name, version=path.name) for path in directories)


def _directories(parent: Path) -> list[Path]:
    return [path for path in parent.iterdir() if _may_hold_bundles(path.name) and _is_directory(path)]


def _is_directory(path: Path) -> bool:
    """Also what cannot be asked, like a link into a directory that may not be entered: looking into it says why."""
    try:
        return stat.S_ISDIR(path.stat().st_mode)  # of is_dir, it depends on Python's version which errors it raises
    except (FileNotFoundError, NotADirectoryError):  # gone, or a link to what is not there
        return False
    except OSError:
        return True


def _may_hold_bundles(name: str) -> bool:
    return not name.startswith(".") and name != _OF_THE_FILE_SYSTEM


def _candidate(directory: Path, *, name: str = "", version: str = "") -> Candidate:
    digest = hashlib.sha256("\n".join(sorted(_traces(directory))).encode("utf-8", "surrogateescape"))
    return Candidate(
        directory=directory,
        name=name,
        version=version,
        manifest_sha256=_manifest_sha256(directory),
        fingerprint=digest.hexdigest(),
    )


def _traces(directory: Path) -> Iterator[str]:
    """A line for each file: what changes when somebody writes to it or puts another in its place."""
    for parent, _, names in os.walk(directory):
        for name in names:
            path = os.path.join(parent, name)  # noqa: PTH118 - os.walk's own strings
            try:
                status = os.lstat(path)
            except OSError:  # gone meanwhile, which the next scan sees
                continue
            yield f"{path} {status.st_ino} {status.st_size} {status.st_mtime_ns}"


def _manifest_sha256(directory: Path) -> str:
    try:
        return hashlib.sha256((directory / MANIFEST_NAME).read_bytes()).hexdigest()
    except OSError:
        return ""
