"""Locks on files and directories: one at a time or shared, given up in time, and free when their holder is dead."""

import errno
import subprocess
import sys

import pytest

from service.lock_file import PathLock, locked, locked_directory

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


def test_a_file_system_without_locks_is_named_at_once(tmp_path, monkeypatch):
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSYS, "no locks here")

    monkeypatch.setattr("service.lock_file.fcntl.flock", refuse)

    with pytest.raises(OSError, match="no locks here"), locked_directory(tmp_path, 10.0):
        raise AssertionError("not locked")


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


def test_a_directory_is_locked_itself_and_nothing_is_put_into_it(tmp_path):
    with locked_directory(tmp_path, 10.0):
        with pytest.raises(TimeoutError, match="locked by another"), locked_directory(tmp_path, 0.02):
            raise AssertionError("two at a time")
        assert list(tmp_path.iterdir()) == []

    with locked_directory(tmp_path, 10.0):
        pass


def test_a_directory_that_is_not_there_is_an_error_at_once_and_is_not_made(tmp_path):
    with pytest.raises(FileNotFoundError), locked_directory(tmp_path / "gone", 10.0):
        raise AssertionError("there is no such directory")

    assert list(tmp_path.iterdir()) == []


def test_those_who_share_a_path_keep_others_from_having_it_alone(tmp_path):
    first, second = PathLock(tmp_path, shared=True), PathLock(tmp_path, shared=True)
    first.release()
    with pytest.raises(BlockingIOError):
        PathLock(tmp_path, shared=False)

    second.release()
    alone = PathLock(tmp_path, shared=False)

    with pytest.raises(BlockingIOError):
        PathLock(tmp_path, shared=True)
    alone.release()


def test_a_path_is_free_when_its_lock_is_forgotten(tmp_path):
    forgotten = PathLock(tmp_path, shared=False)
    del forgotten

    PathLock(tmp_path, shared=False).release()


def test_a_lock_is_of_what_stood_there_and_not_of_what_came_instead(tmp_path):
    path = tmp_path / "entry"
    path.mkdir()
    lock = PathLock(path, shared=True)
    assert lock.is_of(path)

    path.rename(tmp_path / "removed")
    assert not lock.is_of(path)
    path.mkdir()

    assert not lock.is_of(path)
    lock.release()
    lock.release()


def test_a_link_is_not_followed(tmp_path):
    link = tmp_path / "link"
    link.symlink_to(tmp_path)

    with pytest.raises(OSError, match="symbolic"):
        PathLock(link, shared=True)
