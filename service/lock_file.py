"""Locks between processes, on files and directories; the kernel lets go of them when their holder dies."""

import fcntl
import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def locked(file: Path, timeout_s: float) -> Iterator[None]:
    """Whoever asks for the same file, here or in another process, waits until this ends.

    Raises:
        TimeoutError: another holds it for too long; a process that is stopped, say.
        OSError: the file cannot be written.
    """
    with _held(os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666), file, timeout_s):
        yield


@contextmanager
def locked_directory(directory: Path, timeout_s: float) -> Iterator[None]:
    """The same for a directory, in which nothing is left behind: for files of it that are replaced, like by `files`.

    Raises:
        TimeoutError: another holds it for too long.
        OSError: there is no such directory, or it cannot be read.
    """
    with _held(os.open(directory, os.O_RDONLY | os.O_DIRECTORY), directory, timeout_s):
        yield


@contextmanager
def _held(descriptor: int, path: Path, timeout_s: float) -> Iterator[None]:
    """Lock what is open, and close it in the end."""
    is_held, is_done = threading.Event(), threading.Event()
    refusals: list[OSError] = []

    def hold() -> None:  # in a thread of its own, as flock knows no timeout
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError as error:  # the file system knows no locks
            refusals.append(error)
        try:
            is_held.set()
            is_done.wait()
        finally:
            os.close(descriptor)

    holder = threading.Thread(target=hold, name="lock", daemon=True)
    holder.start()
    try:
        if not is_held.wait(timeout_s):
            raise TimeoutError(f"{path} has been locked by another for {timeout_s:g} s")
        if refusals:
            raise refusals[0]
        yield
    finally:
        is_done.set()
        if is_held.is_set():
            holder.join()


class PathLock:
    """A lock on what stands at a path now, a file or a directory, until it is released or this object is gone."""

    def __init__(self, path: Path, *, shared: bool) -> None:
        """Have it at once or not at all.

        Args:
            shared: with others who share it; else with nobody.

        Raises:
            FileNotFoundError: nothing is there.
            BlockingIOError: somebody has it who does not share it, or it is to be had alone and somebody has it.
            OSError: it is a link, or cannot be read or locked.
        """
        self._descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        self._close = weakref.finalize(self, os.close, self._descriptor)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_NB | (fcntl.LOCK_SH if shared else fcntl.LOCK_EX))
        except OSError:
            self.release()
            raise

    def is_of(self, path: Path) -> bool:
        """Whether what is locked still stands there."""
        try:
            return os.path.samestat(os.fstat(self._descriptor), path.lstat())
        except FileNotFoundError:
            return False

    def release(self) -> None:
        """Let others have it; once or more often."""
        self._close()
