"""Marian's binary files, as marian-conv writes them: float32, or the integers of `--gemm-type intgemm8`.

Not a test.  Byte by byte after src/common/binary.cpp and src/data/shortlist.cpp of marian-dev; intgemm8 and the blocks
of 256 bytes after src/tensors/cpu/expression_graph_packable.h of browsermt/marian-dev.
"""

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

FLOAT32, INT8, INTGEMM8, INTGEMM8_NEW = 0x404, 0x101, 0x4101, 0x10001
MAGIC = 0xF11A48D5013417F5

Floats = NDArray[np.float32]
Item = tuple[str, int, Sequence[int], bytes]  # name, type, shape, bytes


def write_bin(npz: Path, path: Path, *, integers: int = 0) -> dict[str, Floats]:
    """Write the model of an .npz file; return what its arrays are after it, with integers rounded.

    Args:
        npz: a model.
        path: where the file goes.
        integers: number of the type that matrices get; 0: all are floats.
    """
    items, rounded = list[Item](), dict[str, Floats]()
    with np.load(npz) as arrays:
        for name in sorted(set(arrays) - {"special:model.yml"}):
            array = arrays[name]
            rounded[name] = array
            if integers and (name.rpartition("_")[2].startswith("W")):
                multiplier = np.float32(127) / np.abs(array).max()
                found = np.clip(np.rint(array * multiplier), -127, 127).astype(np.int8)
                rounded[name] = found * (np.float32(1) / multiplier)
                stored = found if "Wemb" in name else np.ascontiguousarray(found.T)
                items.append((name, integers, array.shape, padded(stored.tobytes() + multiplier.tobytes())))
                alpha = f"{name}_QuantMultA"  # that of an embedding is an integer, too
                items.append((alpha, integers if "Wemb" in name else FLOAT32, (1, 1), padded(b"\x7f" * 5)))
            else:
                items.append((name, FLOAT32, array.shape, padded(array.tobytes())))
        settings = arrays["special:model.yml"]
        items.append(("special:model.yml", INT8, settings.shape, settings.tobytes()))
    path.write_bytes(binary(items))
    return {**rounded, "special:model.yml": settings}


def padded(content: bytes) -> bytes:
    """Fill a block of memory with what happens to be there."""
    return content + b"\xa5" * (-len(content) % 256)


def binary(items: Sequence[Item]) -> bytes:
    """Return a file with these items."""
    content = struct.pack("<QQ", 1, len(items))
    for name, kind, shape, numbers in items:
        content += struct.pack("<QQQQ", len(name) + 1, kind, len(shape), len(numbers))
    content += b"".join(name.encode() + b"\0" for name, *_ in items)
    content += b"".join(struct.pack(f"<{len(shape)}i", *shape) for _, _, shape, _ in items)
    skipped = (len(content) + 8) // 256 * 256 + 256 - len(content) - 8
    return content + struct.pack("<Q", skipped) + bytes(skipped) + b"".join(numbers for *_, numbers in items)


def shortlist_bytes(num_first: int, lists: Sequence[Sequence[int]], **changed: Any) -> bytes:
    """Return a binary shortlist with the target tokens of each source token."""
    ends = np.cumsum([0, *map(len, lists)])
    ids = np.array([token for one in lists for token in sorted(one)], "<u4")
    header = {"first": num_first, "best": max(map(len, lists)), "offsets": len(ends), "ids": len(ids), **changed}
    return sealed(struct.pack("<4Q", *header.values()) + ends.astype("<u8").tobytes() + ids.tobytes())


def sealed(content: bytes) -> bytes:
    """Return what follows a shortlist's checksum behind that."""
    checksum = 0
    for (word,) in struct.iter_unpack("<Q", content[: len(content) // 8 * 8]):
        checksum ^= (word + 0x9E3779B9 + (checksum << 6) + (checksum >> 2)) % 2**64
    return struct.pack("<QQ", MAGIC, checksum) + content
