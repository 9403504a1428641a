"""Reads what the counted GPU has counted, in this process and in those that it started."""

import os
from pathlib import Path
from typing import NamedTuple

import numpy as np

_HEADER_BYTES = 128
_COUNTER = np.dtype([("count", np.uint64), ("amount", np.uint64), ("name", "S112")])  # as in native/cudart.cpp


class Count(NamedTuple):
    """How often something happened, and its amount: bytes, kernels of a graph, or nanoseconds."""

    number: int = 0
    amount: int = 0


Counts = dict[str, Count]


def read() -> Counts:
    """Return all counts since the file of counters was made."""
    path = Path(os.environ["COUNTED_GPU_FILE"])
    table = np.fromfile(path, _COUNTER, offset=_HEADER_BYTES) if path.is_file() else np.zeros(0, _COUNTER)
    return {row["name"].decode(): Count(int(row["count"]), int(row["amount"])) for row in table[table["name"] != b""]}


class Measured:
    """What happens from now on: `since()` is asked again and again."""

    def __init__(self) -> None:
        self._before = read()

    def since(self) -> Counts:
        """Return what was counted since this object was made."""
        found = {}
        for name, now in read().items():
            before = self._before.get(name, Count())
            if now.number > before.number:
                found[name] = Count(now.number - before.number, now.amount - before.amount)
        return found


def total(counts: Counts, beginning: str) -> Count:
    """Return the sum over all names that begin so."""
    some = [count for name, count in counts.items() if name.startswith(beginning)]
    return Count(sum(count.number for count in some), sum(count.amount for count in some))
