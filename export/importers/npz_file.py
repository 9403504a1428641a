"""A NumPy .npz file, read array by array: an archive of .npy files that are not compressed.

The format is that of numpy.lib.format.  Nothing in a file is run, and no header is believed: an array is as large as
its place in the file.  Knows no names of arrays.
"""

import math
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tokenize import TokenError
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy

from export.builder import Array
from export.importers.foreign import ForeignModelError, stored_float32

_MAX_TEXT_BYTES = 1 << 20  # the settings of a model are a few thousand
_DAMAGE = (zipfile.BadZipFile, ValueError, OSError, EOFError, RuntimeError, KeyError)  # of zipfile and NumPy
_DAMAGED_HEADER = (SyntaxError, TokenError, TypeError, MemoryError)  # what NumPy lets through


class NpzFile:
    """The arrays of a file by name; it remembers which of them were read."""

    def __init__(self, path: Path) -> None:
        """Read the table of contents.

        Raises:
            ForeignModelError: the file is no archive, or a damaged or compressed one.
        """
        self.path = path
        self._unread: set[str] = set()
        self._members: dict[str, zipfile.ZipInfo] = {}
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
            if name in self._members:
                raise ForeignModelError(f"{path} has two arrays {name!r:.60}")
            self._members[name] = member
        self._unread = set(self._members)

    def __contains__(self, name: str) -> bool:
        return name in self._members

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    @property
    def unread(self) -> list[str]:
        """Names of the arrays that nobody asked for, sorted."""
        return sorted(self._unread)

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of an array, or raise ForeignModelError."""
        with self._opened(name) as file:
            return self._header(name, file)[0]

    def array(self, name: str, shape: tuple[int, ...]) -> Array:
        """Return an array of floats, which must have this shape but for axes of length 1.

        Raises:
            ForeignModelError: it is missing, has another shape or type, or is damaged.
        """
        with self._opened(name) as file:
            found, dtype = self._header(name, file)
            if [size for size in found if size != 1] != [size for size in shape if size != 1]:
                raise ForeignModelError(f"{self.path}: {name} has shape {found}, {shape} is needed")
            if dtype.kind != "f":
                raise ForeignModelError(f"{self.path}: {name} has numbers of type {dtype}, not floats")
            row_bytes = math.prod(shape[1:]) * dtype.itemsize

            def rows(first: int, last: int) -> Array:
                return np.frombuffer(file.read((last - first) * row_bytes), dtype).reshape(last - first, -1)

            array = stored_float32(rows, shape)
            file.read()  # compares the checksum
        self._unread.discard(name)
        return array

    def text(self, name: str) -> str:
        """Return the text that an array of bytes is, without zeros at its end.

        Raises:
            ForeignModelError: it is missing, too long, or no text.
        """
        with self._opened(name) as file:
            _, dtype = self._header(name, file)
            if dtype.itemsize != 1 or self._members[name].file_size > _MAX_TEXT_BYTES:
                raise ForeignModelError(f"{self.path}: {name} is no text of at most {_MAX_TEXT_BYTES} bytes")
            found = file.read().rstrip(b"\0").decode()
        self._unread.discard(name)
        return found

    @contextmanager
    def _opened(self, name: str) -> Iterator[IO[bytes]]:
        """Open an array; whatever is wrong with it becomes a ForeignModelError."""
        if name not in self._members:
            raise ForeignModelError(f"{self.path} has no array {name!r}")
        try:
            with self._archive.open(self._members[name]) as file:
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
        num_bytes = self._members[name].file_size - file.tell()
        if min(shape, default=1) < 1 or math.prod(shape) * dtype.itemsize != num_bytes:
            raise ValueError(f"shape {shape!s:.60} of {dtype}, which {num_bytes} bytes do not hold")
        return shape, dtype
