"""The records of the binding lie in memory as the library's structs do, and hold arrays of the types that it reads."""

import ctypes
import subprocess

import numpy as np
import pytest

from service.engine.cpu.native.build import FLAGS, SOURCES, BuildError, find_compiler
from service.engine.cpu.native.library import (
    _HAS_ENDED,
    _MAY_END,
    _NO_MEMORY,
    _NON_FINITE,
    F32,
    I32,
    I64,
    MASKS,
    PANEL,
    U64,
    BeamsOf,
    Endings,
    SlotsOf,
    SlotStep,
    Step,
    address,
)
from service.engine.cpu.native.pack import _HEADER

STRUCTS = {"Step": Step, "Beams": BeamsOf, "Endings": Endings, "Slots": SlotsOf, "SlotStep": SlotStep}
POINTEES = {I32: "int32_t", I64: "int64_t", U64: "uint64_t", F32: "float", MASKS: "char"}
NUMBERS = {
    "kNoMemory": _NO_MEMORY,
    "kMayEnd": _MAY_END,
    "kNonFinite": _NON_FINITE,
    "kHasEnded": _HAS_ENDED,
    "kPanel": PANEL,
    "sizeof(Header)": _HEADER.size,
}


def test_records_have_the_fields_places_and_types_of_the_structs(tmp_path):
    try:
        compiler = find_compiler()
    except BuildError as error:
        pytest.skip(str(error))
    facts = [f"{name} == {value}" for name, value in NUMBERS.items()]
    for name, record in STRUCTS.items():
        facts.append(f"sizeof({name}) == {ctypes.sizeof(record)}")
        for field, kind in record.kinds.items():
            facts.append(f"offsetof({name}, {field}) == {getattr(record, field).offset}")
            wanted = "int32_t" if kind is None else f"const {POINTEES[kind]}*"
            facts.append(f"is<decltype({name}::{field}), {wanted}>")
    source = tmp_path / "records.cpp"
    source.write_text(
        '#include "beams.h"\n#include "slots.h"\n#include <type_traits>\nusing namespace dragoman;\n'
        "template <class T> using Constant = std::conditional_t<std::is_pointer_v<T>,\n"
        "    const std::remove_pointer_t<T>*, T>;\n"
        "template <class T, class U> constexpr bool is = std::is_same_v<Constant<T>, U>;\n"
        + "".join(f'static_assert({fact}, "");\n' for fact in facts)
    )

    done = subprocess.run(
        [*compiler, *FLAGS, "-fsyntax-only", "-I", str(SOURCES), str(source)],
        check=False,
        capture_output=True,
        text=True,
    )

    assert done.stderr == ""


@pytest.mark.parametrize("array", [np.zeros(4, np.int32), np.zeros((4, 4), np.int64).T, np.zeros(8, np.int64)[::2]])
def test_an_array_of_another_type_or_with_holes_is_refused(array):
    with pytest.raises(TypeError, match="a contiguous array of int64"):
        address(array, I64)


def test_a_record_refuses_an_array_of_another_type():
    with pytest.raises(TypeError, match="array of float32, this one is of float64"):
        Step(num_candidates=1, scores=np.zeros(2))
