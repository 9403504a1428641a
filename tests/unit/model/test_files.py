"""What becomes of a file that is written: whole or as it was, whatever it is."""

import errno
import os
import stat
import threading
from pathlib import Path

import pytest

from model.files import kind_of, require_writable, write_whole


def mode_of(file: Path) -> int:
    return stat.S_IMODE(file.stat().st_mode)


def test_content_is_replaced_and_nothing_else_is_left(tmp_path):
    file = tmp_path / "file"
    file.write_text("a longer old one")

    write_whole(file, b"new")

    assert file.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_write_that_fails_leaves_the_old_file_and_no_draft_and_names_the_file(tmp_path, monkeypatch, code):
    def fails(descriptor: int) -> None:
        raise OSError(code, os.strerror(code))

    file = tmp_path / "file"
    file.write_text("old")
    monkeypatch.setattr(os, "fsync", fails)

    with pytest.raises(OSError, match=os.strerror(code)) as caught:
        write_whole(file, b"new")

    assert caught.value.filename == str(file)
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize(("new_mode", "expected"), [({"new_mode": 0o600}, 0o600), ({}, 0o640)])
def test_a_new_file_has_the_permissions_asked_for_less_what_the_umask_takes(tmp_path, new_mode, expected):
    before = os.umask(0o027)
    try:
        write_whole(tmp_path / "file", b"", **new_mode)
    finally:
        os.umask(before)

    assert mode_of(tmp_path / "file") == expected


@pytest.mark.parametrize("mode", [0o600, 0o664, 0o755])
def test_a_file_that_is_replaced_keeps_its_permissions(tmp_path, mode):
    file = tmp_path / "file"
    file.touch()
    file.chmod(mode)

    write_whole(file, b"", new_mode=0o640)

    assert mode_of(file) == mode


def test_a_link_stays_and_what_it_leads_to_is_written(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    file, near, far = tmp_path / "elsewhere" / "file", tmp_path / "near", tmp_path / "far"
    file.write_text("old")
    near.symlink_to("elsewhere/file")
    far.symlink_to(near)

    write_whole(far, b"new")

    assert (near.is_symlink(), far.is_symlink(), file.is_symlink()) == (True, True, False)
    assert file.read_bytes() == b"new"


def test_a_link_to_nothing_makes_what_it_leads_to_and_a_link_to_itself_is_an_error(tmp_path):
    dangling, loop = tmp_path / "dangling", tmp_path / "loop"
    dangling.symlink_to("file")
    loop.symlink_to("loop")

    write_whole(dangling, b"new")

    assert dangling.is_symlink()
    assert (tmp_path / "file").read_bytes() == b"new"
    with pytest.raises(OSError, match="symbolic links") as caught:
        write_whole(loop, b"new")
    assert caught.value.filename == str(loop)


def test_a_pipe_gets_the_content_and_stays_a_pipe(tmp_path):
    pipe, read = tmp_path / "pipe", list[bytes]()
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()

    write_whole(pipe, b"content")

    reader.join()
    assert read == [b"content"]
    assert kind_of(pipe) == "a pipe"


def test_a_device_is_written_to_and_stays_a_device():
    """The devices of this machine: nothing is put into their directory, which root could write to."""
    around = set(Path("/dev").iterdir())

    write_whole(Path("/dev/null"), b"content")
    with pytest.raises(OSError, match="No space left") as caught:
        write_whole(Path("/dev/full"), b"content")

    assert caught.value.filename == "/dev/full"
    assert (kind_of(Path("/dev/null")), set(Path("/dev").iterdir())) == ("a character device", around)


@pytest.mark.parametrize("name", ["/dev/fd/{}", "/proc/self/fd/{}", "a link"])
def test_an_open_file_gets_the_content_where_it_stands_and_keeps_what_it_has(tmp_path, name):
    file = tmp_path / "file"
    with file.open("wb", buffering=0) as stream:
        stream.write(b"of others, ")
        given = Path(name.format(stream.fileno()))
        if name == "a link":
            given = tmp_path / "link"
            given.symlink_to(f"/dev/fd/{stream.fileno()}")
        write_whole(given, b"ours, ")
        stream.write(b"of others")

    assert file.read_bytes() == b"of others, ours, of others"


@pytest.mark.parametrize("write", [lambda file: write_whole(file, b"new"), require_writable])
@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("directory", "Is a directory"),
        ("in no directory", "no file can be made in its directory: No such file or directory"),
        ("below a file", "Not a directory"),
        ("read-only directory", "no file can be made in its directory: Permission denied"),
        ("read-only file", "Permission denied"),
    ],
)
def test_what_cannot_be_written_is_told_before_and_in_the_attempt(tmp_path, monkeypatch, write, what, message):
    (tmp_path / "known").write_text("old")
    file = {
        "directory": tmp_path,
        "in no directory": tmp_path / "no" / "file",
        "below a file": tmp_path / "known" / "f",
    }
    tried = file.get(what, tmp_path / "known")
    if what == "read-only directory":  # root may write to any
        monkeypatch.setattr(os, "open", refuse)
    if what == "read-only file":
        monkeypatch.setattr(os, "access", lambda *_: False)

    with pytest.raises(OSError, match=message) as caught:
        write(tried)

    assert caught.value.filename == str(tried)
    assert [found.name for found in tmp_path.iterdir()] == ["known"]
    assert (tmp_path / "known").read_text() == "old"


def refuse(*_: object) -> int:
    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def test_asking_whether_a_file_can_be_written_leaves_everything_as_it_is(tmp_path):
    (tmp_path / "known").write_text("old")

    for name in ("known", "new"):
        require_writable(tmp_path / name)
    require_writable(Path("/dev/null"))

    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("known", "old")]
