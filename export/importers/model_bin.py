"""The file `model.bin` of CTranslate2: named variables, read where they lie and checked before they are believed.

The layout is described in CTranslate2's python/ctranslate2/specs/model_spec.py and src/models/model.cc.  Little endian:

    version, then from version 2 on the name of the specification and its revision, then the number of variables
    each variable: name, rank, dimensions, type, size, bytes
    from version 3 on: the number of aliases, each with the name of a variable

Knows bytes, types and scales; not what a variable means.
"""

import math
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from export.builder import Array
from export.importers.foreign import ForeignModelError, stored_float32

NEWEST_VERSION = 6
_MAX_RANK = 8
_MAX_VARIABLES = 100_000  # a model of 100 layers has some 5,000
_TYPES = ("float32", "int8", "int16", "int32", "float16", "bfloat16")  # by their number, from version 4 on
_TYPES_BY_SIZE = {1: "int8", 2: "int16", 4: "float32"}  # before version 4
_NUMPY_TYPES = {name: np.dtype("<u2" if name == "bfloat16" else name).newbyteorder("<") for name in _TYPES}
_OLD_INT16_SCALE = 1000.0  # of files without scales


@dataclass(frozen=True, slots=True)
class Variable:
    """Where a variable lies in the file, and as what."""

    dtype: str
    shape: tuple[int, ...]
    offset: int

    @property
    def num_bytes(self) -> int:
        """Size in the file."""
        return math.prod(self.shape) * _NUMPY_TYPES[self.dtype].itemsize

    @property
    def num_rows(self) -> int:
        """The first dimension; 1 for a scalar."""
        return self.shape[0] if self.shape else 1


class ModelFile:
    """The variables of one file, which is mapped into memory: only what is read takes memory."""

    def __init__(self, path: Path) -> None:
        """Read all headers.

        Raises:
            ForeignModelError: the file is damaged or of a newer version.
        """
        self.path = path
        if not path.is_file():
            raise ForeignModelError(f"{path} does not exist")
        if path.stat().st_size == 0:
            raise ForeignModelError(f"{path} is empty")
        self._bytes = np.memmap(path, np.uint8, mode="r")
        headers = _Headers(path, self._bytes)
        self.version = headers.number(4, "the file's version")
        if not 1 <= self.version <= NEWEST_VERSION:
            headers.refuse(f"version {self.version}, this program reads 1 to {NEWEST_VERSION}; is it a model.bin?")
        self.specification, self.revision = "", 1
        if self.version >= 2:
            self.specification = headers.text("the specification's name")
            self.revision = headers.number(4, "the specification's revision")
        self._variables = headers.variables(self.version)
        self.aliases = headers.aliases(self._variables) if self.version >= 3 else {}
        headers.require_end()
        self._unread = set(self._variables)

    def rename(self, names: Mapping[str, str]) -> None:
        """Give variables the names of a newer revision; names that the file does not have are ignored.

        Raises:
            ForeignModelError: two variables get one name.
        """
        renamed = {names.get(name, name): variable for name, variable in self._variables.items()}
        if len(renamed) != len(self._variables):
            raise ForeignModelError(f"{self.path} has two variables of the same meaning; it is damaged")
        self._variables, self._unread = renamed, set(renamed)

    def __contains__(self, name: str) -> bool:
        return self._named(name) in self._variables

    def __iter__(self) -> Iterator[str]:
        return iter(self._variables)

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the dimensions of a variable.

        Raises:
            ForeignModelError: there is none of that name.
        """
        return self._variable(name).shape

    def is_same(self, first: str, second: str) -> bool:
        """Return whether two names mean one variable."""
        return self._named(first) == self._named(second)

    def array(self, name: str, shape: tuple[int, ...] | None = None) -> Array:
        """Return a variable as float32, with its scale applied.

        Args:
            name: of the variable or an alias.
            shape: that it must have; None: any.

        Raises:
            ForeignModelError: it is missing, has another shape, or numbers that are not finite.
        """
        name, variable = self._named(name), self._variable(name)
        if shape is not None and variable.shape != shape:
            raise ForeignModelError(f"{self.path}: {name} has shape {variable.shape}, {shape} is needed")
        self._unread.discard(name)
        matrix = self._raw(variable).view(_NUMPY_TYPES[variable.dtype]).reshape(variable.num_rows, -1)
        scales = self._scales(name, variable)
        is_brain = variable.dtype == "bfloat16"

        def rows(first: int, last: int) -> NDArray[Any]:
            block = matrix[first:last]
            if is_brain:  # the upper half of a float32
                return (block.astype(np.uint32) << 16).view(np.float32)
            return block if scales is None else block.astype(np.float32) * scales[first:last]

        try:
            return stored_float32(rows, variable.shape)
        except ValueError as error:
            raise ForeignModelError(f"{self.path}: {name} has {error}") from error

    def scalar(self, name: str, default: float) -> float:
        """Return a variable of one number, or the default where the file does not have it."""
        if name not in self:
            return default
        if math.prod(self.shape(name)) != 1:
            raise ForeignModelError(f"{self.path}: {name} has shape {self.shape(name)}, one number is needed")
        return float(self.array(name).item())

    def is_float(self, name: str) -> bool:
        """Return whether a variable has fractions; flags are stored as integers."""
        return "float" in self._variable(name).dtype

    def text(self, name: str, default: str) -> str:
        """Return a variable of characters, or the default where the file does not have it."""
        if name not in self:
            return default
        variable = self._variable(name)
        self._unread.discard(self._named(name))
        try:
            return self._raw(variable).tobytes().decode("utf-8")
        except UnicodeDecodeError as error:
            raise ForeignModelError(f"{self.path}: {name} is no text") from error

    @property
    def unread(self) -> list[str]:
        """Names of the variables that nobody has asked for."""
        return sorted(self._unread)

    def _named(self, name: str) -> str:
        return self.aliases.get(name, name)

    def _variable(self, name: str) -> Variable:
        variable = self._variables.get(self._named(name))
        if variable is None:
            raise ForeignModelError(f"{self.path} has no variable {name!r}")
        return variable

    def _raw(self, variable: Variable) -> NDArray[np.uint8]:
        return self._bytes[variable.offset : variable.offset + variable.num_bytes]

    def _scales(self, name: str, variable: Variable) -> Array | None:
        """Return what each row of an integer weight is multiplied by, [rows, 1]; None: it is no such weight."""
        if variable.dtype not in ("int8", "int16") or not name.endswith("weight"):
            return None
        rows = variable.num_rows
        if f"{name}_scale" not in self._variables:
            if variable.dtype == "int16":
                return np.full((rows, 1), 1.0 / _OLD_INT16_SCALE, np.float32)
            raise ForeignModelError(f"{self.path}: {name} is int8 and has no {name}_scale")
        scale = self.array(f"{name}_scale").reshape(-1, 1)
        if (scale == 0).any():
            raise ForeignModelError(f"{self.path}: {name}_scale has zeros")
        if scale.size not in (1, rows):
            raise ForeignModelError(f"{self.path}: {name}_scale has {scale.size} numbers for {rows} rows")
        with np.errstate(all="ignore"):  # `array` refuses what is not finite
            return np.broadcast_to(np.float32(1.0) / scale, (rows, 1))


class _Headers:
    """A walk through a file that says where it was when something is wrong."""

    def __init__(self, path: Path, content: NDArray[np.uint8]) -> None:
        self._path, self._bytes, self._at = path, content, 0

    def refuse(self, what: str, at: int | None = None) -> None:
        """Raise ForeignModelError with the place."""
        raise ForeignModelError(f"{self._path}: at byte {self._at if at is None else at}: {what}")

    def number(self, size: int, what: str) -> int:
        """Return an unsigned integer of so many bytes."""
        return int.from_bytes(self._take(size, what), "little")

    def text(self, what: str) -> str:
        """Return a string, which is stored with its length and a zero behind it."""
        at = self._at
        content = self._take(self.number(2, f"the length of {what}"), what)
        if not content or content[-1] != 0 or 0 in content[:-1]:
            self.refuse(f"{what} does not end with the zero of a string", at)
        try:
            return content[:-1].decode("utf-8")
        except UnicodeDecodeError:
            self.refuse(f"{what} is no text", at)
            raise

    def variables(self, version: int) -> dict[str, Variable]:
        """Return where each variable lies."""
        found: dict[str, Variable] = {}
        for number in range(self._count("variables")):
            at, name = self._at, self.text(f"the name of variable {number}")
            if name in found:
                self.refuse(f"variable {name!r} is there twice", at)
            found[name] = self._variable(name, version)
        return found

    def aliases(self, variables: Mapping[str, Variable]) -> dict[str, str]:
        """Return the variable of each alias; scales follow their weights."""
        found: dict[str, str] = {}
        for number in range(self._count("aliases")):
            at, alias = self._at, self.text(f"alias {number}")
            name = self.text(f"the variable of alias {alias!r}")
            if name not in variables:
                self.refuse(f"alias {alias!r} means {name!r}, which is no variable", at)
            if alias in variables or alias in found:
                self.refuse(f"alias {alias!r} is there twice", at)
            found[alias] = name
        return found

    def require_end(self) -> None:
        """Refuse bytes that belong to nothing."""
        if left := len(self._bytes) - self._at:
            self.refuse(f"{left} bytes follow the last part")

    def _variable(self, name: str, version: int) -> Variable:
        at, rank = self._at, self.number(1, f"the rank of {name!r}")
        if rank > _MAX_RANK:
            self.refuse(f"{name!r} has rank {rank}, at most {_MAX_RANK} is accepted", at)
        shape = struct.unpack(f"<{rank}I", self._take(4 * rank, f"the dimensions of {name!r}"))
        if 0 in shape:
            self.refuse(f"{name!r} has shape {shape}, without any number", at)
        dtype = self._dtype(name, version)
        size = self.number(4, f"the size of {name!r}")
        num_bytes = size if version >= 4 else size * _NUMPY_TYPES[dtype].itemsize
        variable = Variable(dtype, shape, self._at)
        if num_bytes != variable.num_bytes:
            self.refuse(f"{name!r} has {num_bytes} bytes, its shape {shape} of {dtype} needs {variable.num_bytes}", at)
        self._skip(num_bytes, f"the numbers of {name!r}")
        return variable

    def _dtype(self, name: str, version: int) -> str:
        at, number = self._at, self.number(1, f"the type of {name!r}")
        if version >= 4 and number < len(_TYPES):
            return _TYPES[number]
        if version < 4 and number in _TYPES_BY_SIZE:
            return _TYPES_BY_SIZE[number]
        self.refuse(f"{name!r} has type {number}, which is none of {', '.join(_TYPES)}", at)
        raise AssertionError

    def _count(self, what: str) -> int:
        at, count = self._at, self.number(4, f"the number of {what}")
        if count > _MAX_VARIABLES:
            self.refuse(f"{count} {what}, at most {_MAX_VARIABLES} are accepted", at)
        return count

    def _take(self, size: int, what: str) -> bytes:
        at = self._at
        self._skip(size, what)
        return self._bytes[at : self._at].tobytes()

    def _skip(self, size: int, what: str) -> None:
        left = len(self._bytes) - self._at
        if size > left:
            self.refuse(f"{what} needs {size} bytes, {left} are left; the file is cut or damaged")
        self._at += size
