"""Damaged copies of a good file, and what a reader says of them.

Not a test.
"""

import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np

NUM_MUTATIONS = int(os.environ.get("DRAGOMAN_TEST_MUTATIONS", "200"))
_MAX_BYTES = 256 << 10  # Python's objects at work on a file of some hundred bytes


def refusals(
    path: Path, good: bytes, read: Callable[[], None], *, num_header_bytes: int | None = None, watch_memory: bool = True
) -> list[str]:
    """Let `read` read the good file and damaged copies at `path`; return the messages of its ValueErrors.

    One to four bytes have other values, in the first `num_header_bytes` or anywhere, and one copy in five is cut.

    Raises:
        AssertionError: reading took more memory than a file of this size deserves, or a message is not one line that
            names the directory.
    """
    random, refused = np.random.default_rng(5), list[str]()
    path.write_bytes(good)
    read()
    for number in range(NUM_MUTATIONS):
        content = bytearray(good)
        for at in random.integers(0, num_header_bytes or len(good), random.integers(1, 5)):
            content[at] = random.integers(0, 256)
        cut = len(content) if random.random() < 0.8 else int(random.integers(1, len(content)))
        path.unlink()  # what is mapped from it stays, and no file system flushes it
        path.write_bytes(content[:cut])
        message, taken = _refusal(read)
        if taken > _MAX_BYTES:
            taken = _refusal(read)[1]  # Python's table of names may have grown by megabytes
        assert taken <= _MAX_BYTES or not watch_memory, f"mutation {number} takes {taken} bytes"
        if message:
            assert "\n" not in message, f"mutation {number}: {message!r}"
            assert str(path.parent) in message, f"mutation {number}: {message!r}"
            refused.append(message)
    return refused


def _refusal(read: Callable[[], None]) -> tuple[str, int]:
    """Return what was refused, or nothing, and the most bytes that were taken."""
    message = ""
    tracemalloc.start()
    try:
        read()
    except ValueError as error:
        message = str(error)
    finally:
        taken = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return message, taken
