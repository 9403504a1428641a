"""Arrays that lie in a file and take no memory of their own: the parameters of a model that is imported.

Knows numbers; knows no model.
"""

import math
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

_BLOCK_NUMBERS = 4 << 20  # converted at a time
_SMALL_NUMBERS = 1 << 16  # stay in memory


def stored_float32(rows: Callable[[int, int], NDArray[Any]], shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Return an array whose rows are asked for some at a time.

    A large one is mapped from a file without a name in the directory for temporary files (TMPDIR); the system removes
    the file with the array.

    Args:
        rows: rows [first, last) of a matrix with as many rows as the first of `shape`, any number type.
        shape: of the result; a scalar has one row of one number.

    Raises:
        ValueError: a number is not finite.
    """
    size = math.prod(shape)
    num_rows = shape[0] if shape else 1
    array: NDArray[np.float32]
    if size <= _SMALL_NUMBERS:
        array = np.empty(size, np.float32)
    else:
        with tempfile.TemporaryFile() as file:  # the mapping keeps it open
            array = np.memmap(file, np.float32, "w+", shape=(size,))
    matrix = array.reshape(num_rows, -1)
    for first, last in _parts(num_rows, size):
        with np.errstate(all="ignore"):  # refused below
            matrix[first:last] = rows(first, last)
        if not np.isfinite(matrix[first:last]).all():
            raise ValueError("numbers that are not finite")
    return array.reshape(shape)


def _parts(num_rows: int, size: int) -> Iterator[tuple[int, int]]:
    step = max(1, _BLOCK_NUMBERS * num_rows // max(size, 1))
    for first in range(0, num_rows, step):
        yield first, min(first + step, num_rows)
