"""The kernel that copies between slots is what its source says and takes what the engine gives it."""

import re
import shutil
import subprocess

import pytest

from service.engine.cuda.memory import _COPY_ROWS, _SLOTS_AT_ONCE

PTX = _COPY_ROWS.read_text(encoding="ascii")
MADE_BY = re.search(r"Cuda compilation tools, .*", PTX)
LARGEST_ARGUMENT = 4_096  # bytes


def nvcc(*arguments: str) -> str:
    return subprocess.run(["nvcc", *arguments], capture_output=True, text=True, check=True).stdout


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc here")
def test_the_kernel_is_what_its_source_gives(tmp_path):
    assert MADE_BY
    if MADE_BY[0] not in nvcc("--version"):
        pytest.skip(f"another nvcc than that of the kernel: {MADE_BY[0]}")

    nvcc("-ptx", "-arch=compute_75", "-o", str(tmp_path / "copy.ptx"), str(_COPY_ROWS.with_suffix(".cu")))

    assert (tmp_path / "copy.ptx").read_text(encoding="ascii") == PTX


def test_the_kernels_argument_is_as_long_as_the_engine_fills_it():
    size = 2 * 4 * 8 + _SLOTS_AT_ONCE * 3 * 4  # of two `Rows`, and of all slots

    assert f"copy_rows_param_0[{size}]" in PTX
    assert size <= LARGEST_ARGUMENT
    assert f"Slot slots[{_SLOTS_AT_ONCE}];" in _COPY_ROWS.with_suffix(".cu").read_text(encoding="utf-8")
