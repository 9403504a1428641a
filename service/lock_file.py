"""A lock between processes, on a file; the kernel lets go of it when its holder dies."""

import fcntl
import threading
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
    is_held, is_done = threading.Event(), threading.Event()
    stream = file.open("ab")

    def hold() -> None:  # in a thread of its own, as flock knows no timeout
        with stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            is_held.set()
            is_done.wait()

    holder = threading.Thread(target=hold, name="lock", daemon=True)
    holder.start()
    try:
        if not is_held.wait(timeout_s):
            raise TimeoutError(f"{file} has been locked by another for {timeout_s:g} s")
        yield
    finally:
        is_done.set()
        if is_held.is_set():
            holder.join()
