"""The functions of the native library, with arrays in place of addresses and exceptions in place of numbers."""

import ctypes
import functools
from ctypes import POINTER, c_char_p, c_int32, c_int64, c_void_p
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from service.engine.cpu.native.build import library_path

_NO_MEMORY = 1
PANEL = 16  # outputs whose weights lie together, and the multiple of every width

I32, I64, U64, F32 = np.dtype(np.int32), np.dtype(np.int64), np.dtype(np.uint64), np.dtype(np.float32)
U8, HANDLES, MASKS = np.dtype(np.uint8), np.dtype(np.uintp), np.dtype(np.void)  # masks: of any type
Kinds = dict[str, "np.dtype[Any] | None"]


class Record(ctypes.Structure):
    """A struct of the library's: numbers of 32 bits, and addresses of arrays."""

    kinds: ClassVar[Kinds]  # fields in their order: the type of an array, or None for a number

    def __init__(self, *numbers: int, **fields: "int | npt.NDArray[Any]") -> None:
        super().__init__(*numbers)
        self.set(**fields)

    def set(self, **fields: "int | npt.NDArray[Any]") -> None:
        """Set numbers, and addresses of arrays, which have to stay."""
        for name, value in fields.items():
            kind = self.kinds[name]
            setattr(self, name, value if isinstance(value, int) or kind is None else address(value, kind))


def _fields(kinds: Kinds) -> list[tuple[str, Any]]:
    return [(name, c_int32 if kind is None else c_void_p) for name, kind in kinds.items()]


class Step(Record):
    """`Step` of search_state.h."""

    kinds: ClassVar[Kinds] = {
        "tokens": I64,
        "scores": F32,
        "num_edits": None,
        "edit_rows": I64,
        "edit_tokens": I64,
        "edit_values": F32,
        "edit_factors": F32,
        "num_candidates": None,
        "best": F32,
        "best_tokens": I64,
        "parents": I64,
        "check": F32,
    }
    _fields_ = _fields(kinds)


class BeamsOf(Record):
    """`Beams` of beams.h."""

    kinds: ClassVar[Kinds] = {
        **dict.fromkeys(("beam_size", "num_rooms", "num_columns")),
        "scores": F32,
        "newest": I64,
        "tokens": I64,
        "parents": I64,
        "num_steps": I64,
        "max_steps": I64,
        "still_wanted": I64,
        "waits_for_best": I64,
        "penalties": F32,
    }
    _fields_ = _fields(kinds)


class Endings(Record):
    """`Endings` of beams.h."""

    kinds: ClassVar[Kinds] = {
        **dict.fromkeys(("count", "num_rooms")),
        "sentences": I64,
        "lengths": I64,
        "parents": I64,
        "tokens": I64,
        "scores": F32,
    }
    _fields_ = _fields(kinds)


class SlotsOf(Record):
    """`Slots` of slots.h."""

    kinds: ClassVar[Kinds] = {
        **dict.fromkeys(("num_slots", "beam_size", "num_words", "mask_bytes")),
        "past": U64,
        "seen": U64,
        "numbers": I64,
        "past_lengths": I64,
        "source_lengths": I32,
        "masks": MASKS,
    }
    _fields_ = _fields(kinds)


class SlotStep(Record):
    """`SlotStep` of slots.h."""

    kinds: ClassVar[Kinds] = {
        **dict.fromkeys(("num_slots", "num_words", "num_candidates")),
        "new_places": I64,
        "past_lengths": I64,
        "source_lengths": I32,
        "self_mask": MASKS,
        "tokens": I64,
        "scores": F32,
        "best": F32,
        "ids": I64,
        "check": F32,
    }
    _fields_ = _fields(kinds)


_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "dg_open": (c_int32, c_char_p, POINTER(c_void_p)),
    "dg_encode": (c_void_p, c_int32, c_void_p, c_void_p, c_void_p, c_void_p),
    "dg_new_state": (c_void_p, c_int32, c_int32, c_void_p, POINTER(c_void_p)),
    "dg_append": (c_void_p, c_int32, c_void_p, c_void_p, c_void_p),
    "dg_remove": (c_void_p, c_int32),
    "dg_step": (c_void_p, c_int32, c_void_p),
    "dg_extend": (c_void_p, c_int32, c_void_p, c_int64, c_void_p, c_void_p, c_void_p),
    "dg_advance": (c_void_p, c_int32, c_void_p),
    "dg_run_ahead": (
        *(c_void_p, c_int32, c_void_p, c_void_p, c_int64, c_int32, c_void_p, c_void_p, c_void_p),
        POINTER(c_int32),
    ),
    "dg_score": (c_void_p, c_void_p, c_int32, c_void_p, c_void_p, c_void_p, c_void_p),
    "dg_count_columns": (c_void_p, c_int32, POINTER(c_int32), POINTER(c_int32)),
    "dg_write_step": (c_void_p, c_int32, c_void_p, c_void_p),
    "dg_read_step": (c_void_p, c_int32, c_void_p, c_int64, c_void_p),
    "dg_advance_slots": (c_void_p, c_int32, c_void_p),
}
_RELEASES = ("dg_close", "dg_forget", "dg_close_state")


class LibraryError(RuntimeError):
    """There is no library that this process can use; the message says why."""


@functools.cache
def load() -> ctypes.CDLL:
    """Return the library of this installation, or raise LibraryError."""
    path = library_path()
    if not path.is_file():
        raise LibraryError("it is not built: install g++ and run `make native`")
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise LibraryError(str(error)) from error
    for name, types in _FUNCTIONS.items():
        function = getattr(library, name)
        function.argtypes, function.restype, function.errcheck = types, c_int32, _check
    for name in _RELEASES:
        function = getattr(library, name)
        function.argtypes, function.restype = (c_void_p,), None
    library.dg_instruction_set.argtypes, library.dg_instruction_set.restype = (c_char_p,), c_char_p
    library.dg_most_weight_sum.argtypes, library.dg_most_weight_sum.restype = (c_char_p,), c_int32
    return library


def instruction_set(name: str = "") -> str:
    """Return the name of the best instruction set of this CPU, or this name; empty if this CPU cannot run it."""
    found: bytes = load().dg_instruction_set(name.encode())
    return found.decode()


def most_weight_sum(name: str = "") -> int:
    """Return `Kernels::most_weight_sum` of kernels.h for an instruction set; empty: the best one's."""
    most: int = load().dg_most_weight_sum(name.encode())
    return most


def address(array: "npt.NDArray[Any]", kind: "np.dtype[Any]") -> int:
    """Return where an array lies, which has to stay; raise TypeError unless it is contiguous and of this type."""
    if not array.flags.c_contiguous or (array.dtype != kind and kind is not MASKS):
        raise TypeError(f"the library wants a contiguous array of {kind}, this one is of {array.dtype}")
    return array.ctypes.data


class Handle:
    """Something of the library's that is released with this object."""

    value: c_void_p | int | None = None

    def __init__(self, release: str, value: c_void_p | int) -> None:
        self._release = getattr(load(), release)
        self.value = value

    def __del__(self) -> None:
        if self.value is not None:  # of an object that was not made in full
            self._release(self.value)


def _check(status: int, function: Any, _: object) -> int:
    if status == _NO_MEMORY:
        raise MemoryError(f"{function.__name__} has too little memory")
    if status:
        raise ValueError(f"{function.__name__} was given wrong arguments")
    return status
