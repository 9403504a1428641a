"""The functions of the native library, with arrays in place of addresses and exceptions in place of numbers."""

import ctypes
import functools
from ctypes import POINTER, c_char_p, c_int32, c_int64, c_void_p
from typing import TYPE_CHECKING, Any

from service.engine.cpu.native.build import library_path

if TYPE_CHECKING:
    import numpy.typing as npt

_NO_MEMORY = 1
PANEL = 16  # outputs whose weights lie together, and the multiple of every width


def _fields(kind: Any, *names: str) -> tuple[tuple[str, Any], ...]:
    return tuple((name, kind) for name in names)


class Step(ctypes.Structure):
    """`Step` of search_state.h."""

    _fields_ = (
        *_fields(c_void_p, "tokens", "scores"),
        *_fields(c_int32, "num_edits"),
        *_fields(c_void_p, "edit_rows", "edit_tokens", "edit_values", "edit_factors"),
        *_fields(c_int32, "num_candidates"),
        *_fields(c_void_p, "best", "best_tokens", "parents", "check"),
    )


class BeamsOf(ctypes.Structure):
    """`Beams` of beams.h."""

    _fields_ = (
        *_fields(c_int32, "beam_size", "num_rooms", "num_columns"),
        *_fields(c_void_p, "scores", "newest", "tokens", "parents", "num_steps", "max_steps"),
        *_fields(c_void_p, "still_wanted", "waits_for_best", "penalties"),
    )


class Endings(ctypes.Structure):
    """`Endings` of beams.h."""

    _fields_ = (
        *_fields(c_int32, "count", "num_rooms"),
        *_fields(c_void_p, "sentences", "lengths", "parents", "tokens", "scores"),
    )


class SlotsOf(ctypes.Structure):
    """`Slots` of slots.h."""

    _fields_ = (
        *_fields(c_int32, "num_slots", "beam_size", "num_words", "mask_bytes"),
        *_fields(c_void_p, "past", "seen", "numbers", "past_lengths", "source_lengths", "masks"),
    )


class SlotStep(ctypes.Structure):
    """`SlotStep` of slots.h."""

    _fields_ = (
        *_fields(c_int32, "num_slots", "num_words", "num_candidates"),
        *_fields(c_void_p, "new_places", "past_lengths", "source_lengths", "self_mask", "tokens", "scores"),
        *_fields(c_void_p, "best", "ids", "check"),
    )


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


def address(array: "npt.NDArray[Any]") -> int:
    """Return where an array lies; it has to be contiguous, and to stay."""
    assert array.flags.c_contiguous
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
