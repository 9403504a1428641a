"""The two formats in which Marian keeps the arrays of a model: read where they lie, checked before they are believed.

Knows no names of a model's parts but that of embeddings, which one format stores otherwise.
"""

import math
import warnings
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tokenize import TokenError
from typing import IO, Any, Generic, TypeVar

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from export.builder import Array
from export.importers.foreign import ForeignModelError, stored_float32

_MAX_TEXT_BYTES = 1 << 20  # the settings of a model are a few thousand
_DAMAGE = (zipfile.BadZipFile, ValueError, OSError, EOFError, RuntimeError, KeyError)  # of zipfile and NumPy
_DAMAGED_HEADER = (SyntaxError, TokenError, TypeError, MemoryError)  # what NumPy lets through
_VERSION = np.uint64(1).tobytes()
_MAX_ITEMS = 100_000  # a model of 100 layers has some 5,000
_MAX_NAME_BYTES = 1_000
_MAX_RANK = 8
_ACTIVATION_SCALE = "_QuantMultA"  # how Marian quantises the input of a product, which stays float here

# Types by number, of src/common/types.h in marian-nmt/marian-dev and in browsermt/marian-dev, where intgemm has others.
_TYPES = {
    0x101: "int8",
    0x402: "float16",
    0x404: "float32",
    0x4101: "intgemm8",
    0x10001: "intgemm8",
    0x4102: "intgemm16",
    0x10002: "intgemm16",
}
_NUMPY_TYPES = {"int8": "i1", "float16": "<f2", "float32": "<f4", "intgemm8": "i1", "intgemm16": "<i2"}

_Place = TypeVar("_Place")


class ArrayFile(ABC, Generic[_Place]):
    """The arrays of a file by name; it remembers which of them were read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._places: dict[str, _Place] = {}  # where each array lies
        self._read: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    @property
    def unread(self) -> list[str]:
        """Names of the arrays that nobody asked for, sorted."""
        return sorted(self._places.keys() - self._read)

    @abstractmethod
    def array(self, name: str, shape: tuple[int, ...]) -> Array:
        """Return an array of numbers as floats; it must have this shape but for axes of length 1.

        Raises:
            ForeignModelError: it is missing, has another shape or type, or is damaged.
        """

    @abstractmethod
    def text(self, name: str) -> str:
        """Return the text that an array of bytes is, without zeros at its end.

        Raises:
            ForeignModelError: it is missing, too long, or no text.
        """

    def _place(self, name: str) -> _Place:
        if name not in self._places:
            raise ForeignModelError(f"{self.path} has no array {name!r}")
        return self._places[name]

    def _require_shape(self, name: str, found: tuple[int, ...], shape: tuple[int, ...]) -> None:
        if [size for size in found if size != 1] != [size for size in shape if size != 1]:
            raise ForeignModelError(f"{self.path}: {name} has shape {found}, {shape} is needed")


class NpzFile(ArrayFile[zipfile.ZipInfo]):
    """A NumPy .npz file: an archive of .npy files that are not compressed, in the format of numpy.lib.format.

    Nothing in it is run, and no header is believed: an array is as large as its place in the file.
    """

    def __init__(self, path: Path) -> None:
        """Read the table of contents.

        Raises:
            ForeignModelError: the file is no archive, or a damaged or compressed one.
        """
        super().__init__(path)
        try:
            self._archive = zipfile.ZipFile(path)
        except _DAMAGE as error:
            raise ForeignModelError(f"{path} is no .npz file: {error}") from error
        members = self._archive.infolist()
        if sum(member.compress_size for member in members) > path.stat().st_size:
            raise ForeignModelError(f"{path} is damaged: its arrays claim more bytes than the file has")
        for member in members:
            name = member.filename.removesuffix(".npy")
            if member.compress_type != zipfile.ZIP_STORED or member.file_size != member.compress_size:
                raise ForeignModelError(f"{path}: {name!r:.60} is compressed: write the file with numpy.savez")
            if name in self._places:
                raise ForeignModelError(f"{path} has two arrays {name!r:.60}")
            self._places[name] = member

    def array(self, name: str, shape: tuple[int, ...]) -> Array:
        with self._opened(name) as file:
            found, dtype = self._header(name, file)
            self._require_shape(name, found, shape)
            if dtype.kind != "f":
                raise ForeignModelError(f"{self.path}: {name} has numbers of type {dtype}, not floats")
            row_bytes = math.prod(shape[1:]) * dtype.itemsize

            def rows(first: int, last: int) -> Array:
                return np.frombuffer(file.read((last - first) * row_bytes), dtype).reshape(last - first, -1)

            array = stored_float32(rows, shape)
            file.read()  # compares the checksum
        self._read.add(name)
        return array

    def text(self, name: str) -> str:
        with self._opened(name) as file:
            _, dtype = self._header(name, file)
            if dtype.itemsize != 1 or self._places[name].file_size > _MAX_TEXT_BYTES:
                raise ForeignModelError(f"{self.path}: {name} is no text of at most {_MAX_TEXT_BYTES} bytes")
            found = file.read().rstrip(b"\0").decode()
        self._read.add(name)
        return found

    @contextmanager
    def _opened(self, name: str) -> Iterator[IO[bytes]]:
        """Open an array; whatever is wrong with it becomes a ForeignModelError."""
        member = self._place(name)
        try:
            with self._archive.open(member) as file:
                yield file
        except ForeignModelError:
            raise
        except _DAMAGE as error:
            reason = " ".join(str(error).split())[:200]
            raise ForeignModelError(f"{self.path}: {name} is damaged, or holds more than numbers: {reason}") from error

    def _header(self, name: str, file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """Read shape and type, which must fit the number of bytes that follow."""
        read = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}.get(npy.read_magic(file))
        if read is None:
            raise ValueError("a version of .npy that is not known")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about headers that Python 2 wrote
                shape, is_fortran, dtype = read(file)
        except _DAMAGED_HEADER as error:
            raise ValueError("its header is no description of an array") from error
        if dtype.hasobject or dtype.names or is_fortran:
            raise ValueError(f"numbers of type {dtype!s:.60}{' by columns' if is_fortran else ''}")
        num_bytes = self._places[name].file_size - file.tell()
        if min(shape, default=1) < 1 or math.prod(shape) * dtype.itemsize != num_bytes:
            raise ValueError(f"shape {shape!s:.60} of {dtype}, which {num_bytes} bytes do not hold")
        return shape, dtype


@dataclass(frozen=True, slots=True)
class _Item:
    """Where an item lies in the file, and as what."""

    kind: str
    shape: tuple[int, ...]
    offset: int
    num_bytes: int

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(_NUMPY_TYPES[self.kind])

    @property
    def multiplier_at(self) -> int:
        """Offset behind the numbers."""
        return self.offset + math.prod(self.shape) * self.dtype.itemsize


def is_marian_bin(path: Path) -> bool:
    """Return whether a file begins as Marian's binary models do, and no CTranslate2 model does."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(_VERSION)) == _VERSION


class BinFile(ArrayFile[_Item]):
    """Marian's binary format, .bin, in the layout of marian-dev's src/common/binary.cpp.  Little endian:

        uint64 version (1), uint64 number of items
        each item: uint64 length of its name, type, rank, number of bytes
        names, each with a zero at its end; int32 dimensions
        uint64 number of bytes to skip, and those; the items' bytes

    Integers of intgemm that fit every CPU become floats: behind them stands what the floats were multiplied with, and
    all matrices but embeddings are transposed (src/tensors/cpu/integer_common.h).
    """

    def __init__(self, path: Path) -> None:
        """Read all headers.

        Raises:
            ForeignModelError: the file is damaged, or its items fit one kind of CPU alone.
        """
        if not is_marian_bin(path):
            raise ForeignModelError(f"{path} is no binary model of Marian, version 1")
        super().__init__(path)
        self._bytes = np.memmap(path, np.uint8, mode="r")
        self._places = {name: item for name, item in self._read_items().items() if not name.endswith(_ACTIVATION_SCALE)}

    def array(self, name: str, shape: tuple[int, ...]) -> Array:
        item = self._place(name)
        self._require_shape(name, item.shape, shape)
        if item.kind == "int8":
            raise ForeignModelError(f"{self.path}: {name} has numbers of type int8, not floats")
        numbers: NDArray[Any] = self._bytes[item.offset : item.multiplier_at].view(item.dtype)
        factor = np.float32(1)
        if item.kind.startswith("intgemm"):
            factor = self._factor(name, item)
            if "Wemb" not in name:
                numbers = numbers.reshape(item.shape[-1], -1).T
        matrix = numbers.reshape(shape[0], -1)
        try:
            array = stored_float32(lambda first, last: matrix[first:last] * factor, shape)
        except ValueError as error:
            raise ForeignModelError(f"{self.path}: {name} is damaged: {error}") from error
        self._read.add(name)
        return array

    def text(self, name: str) -> str:
        item = self._place(name)
        if item.kind != "int8" or item.num_bytes > _MAX_TEXT_BYTES:
            raise ForeignModelError(f"{self.path}: {name} is no text of at most {_MAX_TEXT_BYTES} bytes")
        try:
            found = self._bytes[item.offset : item.multiplier_at].tobytes().rstrip(b"\0").decode()
        except UnicodeDecodeError as error:
            raise ForeignModelError(f"{self.path}: {name} is no UTF-8 text") from error
        self._read.add(name)
        return found

    def _factor(self, name: str, item: _Item) -> np.float32:
        """Return what makes floats of an item's integers."""
        multiplier = self._bytes[item.multiplier_at : item.multiplier_at + 4].view("<f4")[0]
        if not 0 < multiplier < np.inf:
            raise ForeignModelError(f"{self.path}: {name} is damaged: its integers were multiplied with {multiplier}")
        return np.float32(1) / np.float32(multiplier)

    def _read_items(self) -> dict[str, _Item]:
        num_items = int(self._numbers(8, 1, "<u8")[0])
        if num_items > _MAX_ITEMS:
            raise ForeignModelError(f"{self.path} claims {num_items} items, at most {_MAX_ITEMS} are accepted")
        headers = self._numbers(16, 4 * num_items, "<u8").reshape(-1, 4).tolist()
        at, names, shapes = 16 + 32 * num_items, list[str](), list[tuple[int, ...]]()
        for length, *_ in headers:
            names.append(self._name(at, length))
            at += length
        for name, (_, _, rank, _) in zip(names, headers, strict=True):
            if rank > _MAX_RANK:
                raise ForeignModelError(
                    f"{self.path}: {name!r} has {rank} dimensions, at most {_MAX_RANK} are accepted"
                )
            shapes.append(tuple(self._numbers(at, rank, "<i4").tolist()))
            at += 4 * rank
        at += 8 + int(self._numbers(at, 1, "<u8")[0])
        items: dict[str, _Item] = {}
        for name, (_, number, _, num_bytes), shape in zip(names, headers, shapes, strict=True):
            if name in items:
                raise ForeignModelError(f"{self.path} has two items {name!r}")
            items[name] = _Item(self._kind(name, number), shape, at, num_bytes)
            self._require_room(name, items[name])
            at += num_bytes
        if at != self._bytes.size:
            raise ForeignModelError(f"{self.path} is damaged: it has {self._bytes.size} bytes, its headers say {at}")
        return items

    def _require_room(self, name: str, item: _Item) -> None:
        """Refuse an item whose numbers, and the multiplier behind integers, do not fit into its bytes."""
        needed = item.multiplier_at - item.offset + (4 if item.kind.startswith("intgemm") else 0)
        if min(item.shape, default=0) < 1 or needed > item.num_bytes:
            raise ForeignModelError(
                f"{self.path}: {name!r} has shape {item.shape} of {item.kind}, which {item.num_bytes} bytes do not hold"
            )

    def _kind(self, name: str, number: int) -> str:
        if number in _TYPES:
            return _TYPES[number]
        raise ForeignModelError(
            f"{self.path}: {name!r} has type {number:#x}, which is not supported: float32, float16, intgemm8 and "
            "intgemm16 are, those of one kind of CPU are not: convert the model again, marian-conv --gemm-type float32"
        )

    def _name(self, offset: int, length: int) -> str:
        if not 1 < length <= _MAX_NAME_BYTES:
            raise ForeignModelError(f"{self.path} is damaged: a name of {length} bytes")
        content = self._numbers(offset, length, "u1").tobytes()
        try:
            name, end = content[:-1].decode(), content[-1]
        except UnicodeDecodeError as error:
            raise ForeignModelError(f"{self.path} is damaged: a name is no UTF-8 text") from error
        if end != 0 or not name.isprintable():
            raise ForeignModelError(f"{self.path} is damaged: {name[:60]!r} is no name")
        return name

    def _numbers(self, offset: int, count: int, dtype: str) -> NDArray[Any]:
        """Return numbers at a place that the file must have."""
        end = offset + count * np.dtype(dtype).itemsize
        if end > self._bytes.size:
            raise ForeignModelError(f"{self.path} is damaged: it ends at byte {self._bytes.size}, before {end}")
        return self._bytes[offset:end].view(dtype)
