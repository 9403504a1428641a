"""The functions of the native library, with arrays in place of addresses and exceptions in place of numbers.

At the end stand the arrays of a decoder step that the library reads and writes, and what it makes of a step's
candidates, which may be its own or those of a GPU.  Axes: B sentences, K hypotheses, C candidates.
"""

import ctypes
import functools
from ctypes import POINTER, c_char_p, c_int32, c_int64, c_void_p
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from service.engine.beams import Beams, Candidates, Ending, Ints, StepOutcome
from service.engine.cpu.native.build import library_path
from service.engine.logits import Edits

_NO_MEMORY = 1
_MAY_END, _NON_FINITE, _HAS_ENDED = 1, 2, 3  # `Mark` of beams.h
_ENDING_STEPS = 4  # that there is room for if all hypotheses end in each
PANEL = 16  # outputs whose weights lie together, and the multiple of every width

I32, I64, U64, F32 = np.dtype(np.int32), np.dtype(np.int64), np.dtype(np.uint64), np.dtype(np.float32)
U8, HANDLES, MASKS = np.dtype(np.uint8), np.dtype(np.uintp), np.dtype(np.void)  # masks: of any type
Kinds = dict[str, "np.dtype[Any] | None"]
_KINDS: Kinds = {"i32": I32, "i64": I64, "u64": U64, "f32": F32, "masks": MASKS, "": None}


def _struct(declaration: str) -> tuple[list[tuple[str, Any]], Kinds]:
    """Return the fields that a declaration lists: numbers of 32 bits, and arrays with their type behind the name."""
    pairs = (word.partition(":") for word in declaration.split())
    kinds = {name: _KINDS[kind] for name, _, kind in pairs}
    return [(name, c_int32 if kind is None else c_void_p) for name, kind in kinds.items()], kinds


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


class Step(Record):
    """`Step` of search_state.h."""

    _fields_, kinds = _struct(
        "tokens:i64 scores:f32 num_edits edit_rows:i64 edit_tokens:i64 edit_values:f32 edit_factors:f32"
        " num_candidates best:f32 best_tokens:i64 parents:i64 check:f32"
    )


class BeamsOf(Record):
    """`Beams` of beams.h."""

    _traced: "npt.NDArray[np.int64] | None" = None

    _fields_, kinds = _struct(
        "beam_size num_rooms num_columns scores:f32 newest:i64 tokens:i64 parents:i64"
        " num_steps:i64 max_steps:i64 still_wanted:i64 waits_for_best:i64 penalties:f32"
    )

    def trace(self, index: int, length: int, place: int) -> list[int]:
        """Do as `Beams.trace`."""
        if self._traced is None:
            self._traced = np.zeros(self.num_columns, np.int64)
            self._traced_address = address(self._traced, I64)
        load().dg_trace(ctypes.addressof(self), index, length, place, self._traced_address)
        found: list[int] = self._traced[: length - 1].tolist()
        return found


class Endings(Record):
    """`Endings` of beams.h."""

    _fields_, kinds = _struct("count num_rooms sentences:i64 lengths:i64 parents:i64 tokens:i64 scores:f32")


class SlotsOf(Record):
    """`Slots` of slots.h."""

    _fields_, kinds = _struct(
        "num_slots beam_size num_words mask_bytes past:u64 seen:u64 numbers:i64 past_lengths:i64 source_lengths:i32"
        " masks:masks"
    )


class SlotStep(Record):
    """`SlotStep` of slots.h."""

    _fields_, kinds = _struct(
        "num_slots num_words num_candidates new_places:i64 past_lengths:i64 source_lengths:i32 self_mask:masks"
        " tokens:i64 scores:f32 best:f32 ids:i64 check:f32"
    )


_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "dg_open": (c_int32, c_char_p, POINTER(c_void_p)),
    "dg_encode": (c_void_p, c_int32, c_void_p, c_void_p, c_void_p, c_void_p),
    "dg_new_state": (c_void_p, c_int32, c_int32, c_void_p, POINTER(c_void_p)),
    "dg_append": (c_void_p, c_int32, c_void_p, c_void_p, c_void_p),
    "dg_remove": (c_void_p, c_int32),
    "dg_step": (c_void_p, c_int32, c_void_p),
    "dg_extend": (c_void_p, c_int32, c_void_p, c_int64, c_void_p, c_void_p, c_void_p),
    "dg_trace": (c_void_p, c_int32, c_int64, c_int64, c_void_p),
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


class StepArrays:
    """What crosses to and from the library in a step of so many sentences, at addresses that stay."""

    def __init__(self, num_sentences: int, beam_size: int, num_candidates: int) -> None:
        rows, ranks = (num_sentences, beam_size), (num_sentences, num_candidates)
        self.tokens, self.scores = np.zeros(rows, np.int64), np.zeros(rows, np.float32)
        self.best, self.check = np.zeros(ranks, np.float32), np.zeros(num_sentences, np.float32)
        self.best_tokens, self.parents = np.zeros(ranks, np.int64), np.zeros(ranks, np.int64)
        self.step = Step(num_candidates=num_candidates)
        names = "tokens", "scores", "best", "best_tokens", "parents", "check"
        self.step.set(**{name: getattr(self, name) for name in names})
        self.step_address = ctypes.addressof(self.step)
        self.next_parents = np.zeros(rows, np.int64)  # what `extend` finds
        self.next_parents_address = address(self.next_parents, I64)
        self.marks = np.zeros(num_sentences, np.uint8)
        self.marks_address = address(self.marks, U8)
        num_rooms = _ENDING_STEPS * num_sentences * beam_size
        self.ended = np.zeros((4, num_rooms), np.int64)  # sentences, lengths, parents and tokens of `Endings`
        self.ended_scores = np.zeros(num_rooms, np.float32)
        ended = dict(zip(("sentences", "lengths", "parents", "tokens"), self.ended, strict=True))
        self.endings = Endings(0, num_rooms, **ended, scores=self.ended_scores)
        self.endings_address = ctypes.addressof(self.endings)
        self.candidates = NativeCandidates(self.best, self.best_tokens, self.parents, self.check, self)  # of each step

    def edit(self, edits: Edits | None) -> None:
        """Have the next step change these logits."""
        self.step.num_edits = 0 if edits is None else len(edits.rows)
        if edits is not None:
            self._edits = [np.ascontiguousarray(array) for array in edits]  # kept: the library holds addresses
            self.step.set(**{f"edit_{name}": array for name, array in zip(Edits._fields, self._edits, strict=True)})

    def address_of_parents(self, parents: Ints) -> int:
        """Return where these parents lie, which are those that `extend` has found or are copied there."""
        if parents is not self.next_parents:
            self.next_parents[:] = parents
        return self.next_parents_address

    @property
    def outcome(self) -> StepOutcome:
        """What the library has made of the candidates."""
        found: tuple[list[int], ...] = [], [], [], []  # sentences by mark
        marked = self.marks.nonzero()[0]
        for index, mark in zip(marked.tolist(), self.marks[marked].tolist(), strict=True):
            found[mark].append(index)
        outcome = StepOutcome(self.next_parents, found[_HAS_ENDED], found[_NON_FINITE], found[_MAY_END])
        if count := self.endings.count:
            sentences, *ended = self.ended[:, :count].tolist()
            endings = map(Ending, self.ended_scores[:count].tolist(), *ended)
            outcome.endings.extend(zip(sentences, endings, strict=True))
        return outcome


@dataclass(frozen=True, slots=True)
class NativeCandidates(Candidates):
    """Candidates that lie where the library has put them."""

    arrays: StepArrays

    def extend(self, beams: Beams, end: int, *, ends_usually: bool) -> StepOutcome:
        """Do as `Candidates.extend` and, with `ends_usually`, `BeamSearch._end`, to the bit."""
        arrays = self.arrays
        arrays.endings.count = 0
        outputs = arrays.next_parents_address, arrays.marks_address, arrays.endings_address if ends_usually else None
        load().dg_extend(arrays.step_address, len(self.scores), address_of(beams), end, *outputs)
        return arrays.outcome


def address_of(beams: Beams) -> int:
    """Return where the library finds these arrays, which keep the record with their addresses."""
    if beams.addresses is None:
        rooms, columns, beam_size = beams.tokens.shape
        beams.addresses = BeamsOf(beam_size, rooms, columns, **beams.arrays)
    return ctypes.addressof(beams.addresses)
