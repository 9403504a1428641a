"""Graphs whose weights are packed beforehand, in files that all engines map: one copy in memory for all of them.

ONNX Runtime packs weights when it loads a graph, as the CPU likes them best, into memory of the process.  It can save a
graph with what it packed, and maps that file when it loads it again.  Such a file is good for the same ONNX Runtime on
the same kind of CPU; it is kept in a directory that nobody but this user can write to:

    KEY/graph.onnx, KEY/graph.data    of one graph; the key says of what, made by what, for what
    lock                              held by the one who makes or removes entries
    .draft.*/                         an entry that is being made, or was when its process died

Each engine has a shared lock on every KEY/ that it maps, as long as it lives; only entries without one are removed.

Runs no graph, and knows nothing of what one computes.
"""

import hashlib
import json
import os
import platform
import shutil
import tempfile
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath

import onnxruntime as ort

from model.bundle import Bundle, BundleError, file_entry
from model.manifest import FileEntry
from service.files import require_own, sync
from service.lock_file import PathLock, locked

_FORMAT = 1  # of an entry; counts up when what is saved, or how, changes
_GRAPH, _WEIGHTS, _LOCK, _DRAFT = "graph.onnx", "graph.data", "lock", ".draft."
# An entry that no engine maps stays this long after one began with it, for servers that start one after the other.  No
# longer: to make it again takes 0.1 to 0.4 s, and in a directory in memory every version that was replaced costs some.
_UNUSED_S = 600.0
_LONGEST_WAIT_S = 20.0  # for others who make an entry; a third of the time that an engine may take to start
_ROOM = 3  # times the weights' bytes must be free: a draft and the entry, which keeps the weights unpacked too


def default_directory() -> Path:
    """This user's, among the temporary files.

    `tempfile` would take the first of several directories, the working one at last, in which it can write just now.
    Entries on a full disk serve, and where there can be none, engines do without.
    """
    parent = os.environ.get("TMPDIR") or "/tmp"  # noqa: S108 - `require_own` before anything is read
    return Path(parent) / f"dragoman-{os.geteuid()}"


class PreparedGraphs:
    """The prepared graphs of one bundle; after the first one that cannot be had, with a warning, the bundle's own.

    Keep it as long as the graphs are used: with it go the locks that keep others from removing them.
    """

    def __init__(
        self,
        bundle: Bundle,
        directory: Path,
        options: Callable[[], ort.SessionOptions],
        *,
        flags: frozenset[str],
        disabled_optimizers: Sequence[str],
    ) -> None:
        """Nothing is made yet.

        Args:
            directory: where entries are kept; made if it is not there.
            options: those with which the graphs will be loaded; of equal `flags`, equal ones.
            flags: of the CPU.
            disabled_optimizers: when the graphs will be loaded.
        """
        self._bundle = bundle
        self._directory = directory
        self._options = options
        self._flags = flags
        self._disabled_optimizers = list(disabled_optimizers)
        self._held: dict[str, PathLock] = {}  # by the graph's name
        self._is_usable = True

    def path(self, name: str) -> Path:
        """Where the prepared graph lies, made now if need be; the bundle's own where that is not possible."""
        if self._is_usable:
            try:
                return self._entry(name) / _GRAPH
            except Exception as error:  # noqa: BLE001 - ONNX Runtime's have no public base; the own graph serves anyway
                self._is_usable = False
                warn_unshared(error)
        return self._bundle.path(name)

    def discard(self, name: str) -> None:
        """Remove a prepared graph that ONNX Runtime refuses: whoever starts next makes it again."""
        held = self._held.pop(name)
        entry = self._directory / self.key(name)
        try:
            with locked(self._directory / _LOCK, _LONGEST_WAIT_S):
                if held.is_of(entry):  # another engine may have done the same, and a third one have made it again
                    shutil.rmtree(entry)
        except OSError as error:  # it stays; and who waited in vain for the lock must not wait again
            self._is_usable = False
            warn_unshared(error)
        finally:
            held.release()

    def _entry(self, name: str) -> Path:
        self._directory.mkdir(mode=0o700, exist_ok=True)
        require_own(self._directory)
        entry = self._directory / self.key(name)
        held = _hold(entry)
        if held is None:
            with locked(self._directory / _LOCK, _LONGEST_WAIT_S):
                held = _hold(entry) or self._make(name, entry)
        self._held[name] = held
        with suppress(OSError):  # a directory that can be read alone serves as well
            for path in (entry, *entry.iterdir()):  # each, as those who clean temporary directories look at files
                os.utime(path)
        return entry

    def key(self, name: str) -> str:
        """What tells an entry from those of other weights, another ONNX Runtime, another kind of CPU, other options."""
        made_of = {file: entry.sha256 for file, entry in self._sources(name).items()}
        made_by = [_FORMAT, ort.__version__, ort.get_build_info(), self._disabled_optimizers]
        made_for = [platform.machine(), sorted(self._flags), str(self._options().graph_optimization_level)]
        return hashlib.sha256(json.dumps([name, made_of, made_by, made_for], sort_keys=True).encode()).hexdigest()

    def _sources(self, name: str) -> dict[str, FileEntry]:
        """All files beside the graph: which of them it reads stands in itself alone."""
        folder = PurePosixPath(name).parent
        files = self._bundle.manifest.files.items()
        return {file: entry for file, entry in files if PurePosixPath(file).is_relative_to(folder)}

    def _make(self, name: str, entry: Path) -> PathLock:
        _remove_unused(self._directory)
        self._require_room(name)
        with tempfile.TemporaryDirectory(prefix=_DRAFT, dir=self._directory) as draft:
            plain, packed = Path(draft) / "plain", Path(draft) / "packed"
            # Twice: what constant folding makes is packed only where it is stored.
            self._save(self._bundle.path(name), plain, with_packed=False)
            self._save(plain / _GRAPH, packed, with_packed=True)
            self._require_same_sources(name)
            for path in (packed / _GRAPH, packed / _WEIGHTS, packed):
                sync(path)  # a power cut must not leave names without contents
            shutil.rmtree(entry, ignore_errors=True)  # what somebody who cleans up left of it
            held = PathLock(packed, shared=True)  # before others can see it
            packed.rename(entry)
        return held

    def _save(self, graph: Path, target: Path, *, with_packed: bool) -> None:
        target.mkdir(mode=0o700)
        options = self._options()
        options.optimized_model_filepath = str(target / _GRAPH)
        options.add_session_config_entry("session.optimized_model_external_initializers_file_name", _WEIGHTS)
        options.add_session_config_entry("session.optimized_model_external_initializers_min_size_in_bytes", "1024")
        if with_packed:
            options.add_session_config_entry("session.save_external_prepacked_constant_initializers", "1")
        ort.InferenceSession(
            graph, options, providers=["CPUExecutionProvider"], disabled_optimizers=self._disabled_optimizers
        )

    def _require_room(self, name: str) -> None:
        wanted = _ROOM * sum(entry.bytes for entry in self._sources(name).values())
        free = shutil.disk_usage(self._directory).free
        if free < wanted:
            raise OSError(f"{self._directory} has room for {free:,} bytes, {wanted:,} are wanted")

    def _require_same_sources(self, name: str) -> None:
        """A bundle replaced meanwhile must not leave its weights under the key of the one before."""
        if any(file_entry(self._bundle.path(file)) != entry for file, entry in self._sources(name).items()):
            raise BundleError(f"{self._bundle.directory} was replaced while {name} was prepared; load it again")


def warn_unshared(error: Exception) -> None:
    """Sharing is a saving, not a need: the engine serves, and its operator is told."""
    message = f"weights are not shared with other engines: {type(error).__name__}: {error}"
    warnings.warn(message, RuntimeWarning, stacklevel=3)


def _hold(entry: Path) -> PathLock | None:
    """Keep a whole entry from being removed; None where there is none, or somebody is removing it."""
    try:
        held = PathLock(entry, shared=True)
    except (FileNotFoundError, BlockingIOError):
        return None
    if held.is_of(entry) and _is_whole(entry):  # and not removed between a look and the lock
        return held
    held.release()
    return None


def _is_whole(entry: Path) -> bool:
    try:
        require_own(entry)
    except OSError:
        return False
    return (entry / _GRAPH).is_file() and (entry / _WEIGHTS).is_file()


def _remove_unused(directory: Path) -> None:
    """And the drafts of those who died; only with the lock."""
    lock = directory / _LOCK
    lock.touch()
    oldest = lock.stat().st_mtime - _UNUSED_S
    for path in directory.iterdir():
        if path.name.startswith(_DRAFT):
            shutil.rmtree(path, ignore_errors=True)
        elif path.lstat().st_mtime < oldest:
            _remove_unless_held(path)


def _remove_unless_held(entry: Path) -> None:
    with suppress(OSError):
        held = PathLock(entry, shared=False)
        try:
            shutil.rmtree(entry)
        finally:
            held.release()
