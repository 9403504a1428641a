"""Where bundles are found, and whether one may serve.

A source (a directory of NAME/VERSION/, the package's own models, or one single bundle) lists candidates in the order in
which the server tries them.  It reads their manifests to notice changes, and checks nothing.  It skips lost+found,
which every ext4 volume has, and names that begin with a dot, where writers keep unfinished files.  Any other directory
that cannot be read, or link that cannot be followed, becomes a candidate that the check refuses.  It stops no other
model, and a version of it that serves goes on.

The check runs no graph.  Files that could crash their parser, such as the tokenizer, are opened in an engine process
first (`check_in_engine`).  ONNX Runtime itself refuses a graph that reads a file outside its own directory, and
`BundleChecker` refuses every file beside a graph that has no checksum in the manifest.  An engine process imports this
module, so it imports little.
"""

import hashlib
import os
import re
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from model.bundle import DEFAULT_NAME, MANIFEST_NAME, PRETRAINED_DIR, Bundle, BundleError, included_bundle_dirs
from model.manifest import GPU_PRECISION, TokenizerKind
from model.tokenizer import SupportsTokens
from model.tokenizer import load_tokenizer as open_tokenizer
from service.engine.choice import DeviceChoice, choose_device
from service.engine.wire import EngineSpec

if TYPE_CHECKING:
    from service.config import ServerConfig

_NUMBERS = re.compile(r"(\d+)")


class RepositoryError(ValueError):
    """A source without any candidate; `str(error)` is one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleCandidate:
    """A directory that may contain a version of a model; the check says whether it may serve."""

    directory: Path
    name: str = ""  # that its manifest must have; empty: any
    version: str = ""  # that its manifest must have; empty: any
    manifest_sha256: str = ""  # empty: no manifest can be read
    fingerprint: str = ""  # of paths, sizes and times: changes whenever one of the files does
    is_default: bool = False  # answers requests that several models fit, whatever their names
    is_required: bool = False  # the start fails if it is refused, and it is never retired

    @property
    def label(self) -> str:
        """What people call it: NAME/VERSION, or the directory."""
        return "/".join(filter(None, (self.name, self.version))) or str(self.directory)


# By name, the default first and the others in alphabetical order; each name has its highest version first.
BundleCandidates = dict[str, tuple[BundleCandidate, ...]]


# Lists the candidates that are there now; raises RepositoryError where there is none.
BundleSource = Callable[[], BundleCandidates]


def bundle_source(config: "ServerConfig") -> BundleSource:
    """Return the source that the settings name; without one, the included models."""
    if config.models.directory is not None:
        return partial(scan_repository, config.models.directory)
    bundle = config.engine.bundle
    return scan_included if bundle is None else lambda: {"": (_candidate(bundle),)}  # of any name


def scan_included(directory: Path = PRETRAINED_DIR) -> BundleCandidates:
    """Return the package's models, named after their directories, all required; English-German is the default."""
    found = included_bundle_dirs(directory)
    if not found:
        raise RepositoryError(f"there is no included model in {directory}; install Dragoman again")
    # The default is a candidate even if it is missing: otherwise another model would answer unspecific requests.
    names = dict.fromkeys([DEFAULT_NAME, *(path.name for path in found)])
    candidates = {name: _candidate(directory / name, name=name) for name in names}
    return {
        name: (replace(candidate, is_default=name == DEFAULT_NAME, is_required=True),)
        for name, candidate in candidates.items()
    }


def scan_repository(directory: Path) -> BundleCandidates:
    """Return what lies at NAME/VERSION/ in a directory, or raise RepositoryError."""
    try:
        found = {name.name: _versions(name) for name in _directories(directory)}
    except OSError as error:
        raise RepositoryError(f"model repository {directory} cannot be read: {error.strerror}") from error
    candidates = {name: found[name] for name in sorted(found) if found[name]}
    if not candidates:
        raise RepositoryError(f"model repository {directory} is empty; put bundles at {directory}/NAME/VERSION/")
    return candidates


def version_order(version: str) -> tuple[tuple[int, int, str], ...]:
    """Return a sort key that compares the numbers in a version by value and everything else as text.

    "9" < "10", "1.9" < "1.10", "1" < "1.0", and letters come after digits.
    """
    return tuple(
        (0, int(part), part) if part.isascii() and part.isdecimal() else (1, 0, part)
        for part in _NUMBERS.split(version)
        if part
    )


def _versions(name: Path) -> tuple[BundleCandidate, ...]:
    """Candidates of one name, the highest version first; a directory that cannot be read is a candidate itself."""
    try:
        found = _directories(name)
    except FileNotFoundError:  # gone meanwhile
        return ()
    except OSError:
        return (_candidate(name, name=name.name),)
    directories = sorted(found, key=lambda path: version_order(path.name), reverse=True)
    return tuple(_candidate(path, name=name.name, version=path.name) for path in directories)


def _directories(parent: Path) -> list[Path]:
    names = (path for path in parent.iterdir() if not path.name.startswith(".") and path.name != "lost+found")
    return [path for path in names if _is_directory(path)]


def _is_directory(path: Path) -> bool:
    """Also true of a path that gives no answer, such as a link into a closed directory: the check will say why."""
    try:
        return stat.S_ISDIR(path.stat().st_mode)  # which errors Path.is_dir raises depends on Python's version
    except (FileNotFoundError, NotADirectoryError):  # gone, or a link to nothing
        return False
    except OSError:
        return True


def _candidate(directory: Path, *, name: str = "", version: str = "") -> BundleCandidate:
    traces = []  # a line for each file, which changes when somebody writes to the file or replaces it
    for parent, _, files in os.walk(directory):
        for file in files:
            path = os.path.join(parent, file)  # noqa: PTH118 - os.walk's own strings
            try:
                status = os.lstat(path)
            except OSError:  # gone meanwhile, which the next scan sees
                continue
            traces.append(f"{path} {status.st_ino} {status.st_size} {status.st_mtime_ns}")
    try:
        manifest_sha256 = hashlib.sha256((directory / MANIFEST_NAME).read_bytes()).hexdigest()
    except OSError:
        manifest_sha256 = ""
    fingerprint = hashlib.sha256("\n".join(sorted(traces)).encode("utf-8", "surrogateescape")).hexdigest()
    return BundleCandidate(
        directory=directory, name=name, version=version, manifest_sha256=manifest_sha256, fingerprint=fingerprint
    )


IN_ENGINE = f"{__name__}:check_in_engine"  # for `EngineSpec.preflight`


class BundleChecker:
    """Opens the bundle of a candidate if it may serve with these settings; callable from any thread."""

    def __init__(self, config: "ServerConfig") -> None:
        self._device = config.engine.device
        self._precision = config.engine.precision

    def __call__(self, candidate: BundleCandidate) -> Bundle:
        """Return the checked bundle, or raise BundleError."""
        name_directory = candidate.directory.parent
        if candidate.version and (name_directory / MANIFEST_NAME).is_file():
            raise BundleError(f"{name_directory} is a bundle, and bundles are at NAME/VERSION/; move it one level down")
        bundle = Bundle.load(candidate.directory)
        check_identity(bundle, candidate)
        if device_for(bundle, self._device).device == "cpu":
            bundle.variant(self._precision)  # raises if there is none
        _require_all_listed(bundle)
        return bundle


def check_until_good(
    check: Callable[[BundleCandidate], Bundle], candidates: Sequence[BundleCandidate]
) -> dict[BundleCandidate, Bundle | Exception]:
    """Check candidates in their order until one is good; return the bundle or the error of each one checked."""
    checked: dict[BundleCandidate, Bundle | Exception] = {}
    for candidate in candidates:
        try:
            checked[candidate] = check(candidate)
            break
        except (ValueError, OSError) as error:
            checked[candidate] = error
    return checked


def check_identity(bundle: Bundle, candidate: BundleCandidate) -> None:
    """Raise BundleError unless the bundle is the model and version that its directory is named after."""
    manifest = bundle.manifest
    for what, wanted, found in (
        ("name", candidate.name, manifest.name),
        ("version", candidate.version, manifest.version),
    ):
        if wanted and found != wanted:
            raise BundleError(f"{candidate.directory} has a manifest of {what} {found[:80]!a}; rename one of the two")


def _require_all_listed(bundle: Bundle) -> None:
    """Refuse files without a checksum where graphs can reach them: in the directory of a graph and below it."""
    listed = {bundle.path(name) for name in (*bundle.manifest.files, MANIFEST_NAME)}
    for directory in {path.parent for path in listed if path.suffix == ".onnx"}:
        for path in sorted(directory.rglob("*")):
            if path not in listed and (path.is_symlink() or not path.is_dir()):
                raise BundleError(f"{path} lies beside the graphs and the manifest does not list it; remove it")


def device_for(bundle: Bundle, setting: str) -> DeviceChoice:
    """Choose where a bundle's graphs run; for `auto`, the first call takes a process and a second."""
    return _choose_device(setting, has_graphs=GPU_PRECISION in bundle.manifest.variants)


_choose_device = lru_cache(choose_device)


def load_tokenizer(bundle: Bundle) -> SupportsTokens:
    """Return the bundle's tokenizer, or raise ValueError."""
    files, config = bundle.manifest.tokenizer, bundle.manifest.config
    tokenizer = open_tokenizer(bundle.directory, files).between(*bundle.manifest.languages)
    rows = config.vocab_size
    is_complete = files.kind is TokenizerKind.SHARED  # other models may have rows that no text reaches
    if tokenizer.vocab_size > rows or (is_complete and tokenizer.vocab_size < rows):
        pieces = f"{bundle.tokenizer_path} has {tokenizer.vocab_size} pieces"
        raise ValueError(f"{pieces}, the model's embedding has {rows} rows; restore the file or export again")
    return tokenizer


def check_in_engine(spec: EngineSpec) -> None:
    """Raise ValueError, in the engine process, if the bundle has been replaced or its tokenizer cannot be used."""
    bundle = Bundle.load(spec.bundle_dir, verify=False, manifest_sha256=spec.manifest_sha256)
    load_tokenizer(bundle).encode("a")
