"""Files as a whole or not at all, and what one line of them says."""

import os
import stat
from pathlib import Path

import pytest

from service.files import require_own, write_whole
from service.text.lines import text_of_line


def mode_of(file: Path) -> int:
    return stat.S_IMODE(file.stat().st_mode)


def test_content_is_replaced_and_nothing_else_is_left(tmp_path):
    file = tmp_path / "file"
    file.write_text("a longer old one")

    write_whole(file, b"new")

    assert file.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [file]


def test_a_write_that_fails_leaves_the_old_file_and_no_draft(tmp_path, monkeypatch):
    file = tmp_path / "file"
    file.write_text("old")
    monkeypatch.setattr(os, "fsync", fails)

    with pytest.raises(OSError, match="no space left"):
        write_whole(file, b"new")

    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


def test_the_draft_of_a_killed_process_with_our_number_is_no_hindrance(tmp_path):
    (tmp_path / f".file.{os.getpid()}.draft").write_text("half")

    write_whole(tmp_path / "file", b"whole")

    assert (tmp_path / "file").read_bytes() == b"whole"


@pytest.mark.parametrize(("mode", "expected"), [(0o600, 0o600), (0o664, 0o664), (None, 0o640)])
def test_permissions_are_those_asked_for_or_the_umask_s(tmp_path, mode, expected):
    before = os.umask(0o027)
    try:
        write_whole(tmp_path / "file", b"", mode)
    finally:
        os.umask(before)

    assert mode_of(tmp_path / "file") == expected


def test_a_user_who_may_not_give_files_away_writes_all_the_same(tmp_path, monkeypatch):
    given = []

    def refuse(descriptor: int, user: int, group: int) -> None:
        given.append((user, group))
        raise PermissionError

    file = tmp_path / "file"
    file.write_text("old")
    monkeypatch.setattr(os, "fchown", refuse)

    write_whole(file, b"new")

    assert file.read_bytes() == b"new"
    assert given == [(file.stat().st_uid, file.stat().st_gid)]


@pytest.mark.parametrize("how", ["link", "other user's", "open to others", "file"])
def test_a_directory_that_others_could_write_to_is_refused(tmp_path, monkeypatch, how):
    own = tmp_path / "own"
    own.mkdir(0o700)
    require_own(own)
    if how == "link":
        (tmp_path / "link").symlink_to(own)
    elif how == "file":
        (tmp_path / "file").write_bytes(b"")
    elif how == "open to others":
        own.chmod(0o770)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)

    with pytest.raises(PermissionError, match="only this user can write to"):
        require_own(tmp_path / how if how in ("link", "file") else own)


def fails(descriptor: int) -> None:
    raise OSError("no space left")


def test_a_line_s_text_is_without_its_end_and_mark():
    assert text_of_line(b"\xef\xbb\xbfa\x0cb\r\n", is_first=True) == "a\x0cb"
    assert text_of_line(b"\xef\xbb\xbfa", is_first=False) == "\ufeffa"
