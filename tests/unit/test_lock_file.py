"""A lock on a file: one at a time, given up in time, and free when its holder is dead."""

import subprocess
import sys

import pytest

from service.lock_file import locked

HOLD = """
import sys
from pathlib import Path
from service.lock_file import locked
with locked(Path(sys.argv[1]), 10.0):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_one_is_told_when_it_has_waited_too_long_and_may_later(tmp_path):
    file = tmp_path / "lock"

    with locked(file, 10.0), pytest.raises(TimeoutError, match="locked by another"), locked(file, 0.02):
        raise AssertionError("two at a time")

    with locked(file, 10.0):
        pass


def test_a_holder_that_is_killed_holds_nothing(tmp_path):
    file = tmp_path / "lock"
    command = [sys.executable, "-c", HOLD, str(file)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(TimeoutError), locked(file, 0.02):
            raise AssertionError("two at a time")

        holder.kill()

        with locked(file, 10.0):
            pass


def test_a_file_that_cannot_be_written_is_an_error_at_once(tmp_path):
    with pytest.raises(FileNotFoundError), locked(tmp_path / "gone" / "lock", 10.0):
        raise AssertionError("there is no such directory")
