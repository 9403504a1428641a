"""Files that others see whole or not at all; the one way in which this project writes a file that somebody names.

Knows no format and no command, but what a line of UTF-8 is: only a line feed, with or without a carriage return, ends
one.
"""

import errno
import io
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

_NEW = 0o666  # less what the umask takes
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_MAX_NAME_BYTES = 200  # of the name in a draft's: the file system takes 255 for all of it
_MAX_LINKS = 40  # as the kernel counts
_BOM = "\ufeff"


def write_whole(file: Path, content: bytes, *, new_mode: int = _NEW) -> None:
    """Have the file there with this content or as it was; see `writing`."""
    with writing(file, new_mode=new_mode) as stream:
        stream.write(content)


@contextmanager
def writing(file: Path, *, new_mode: int = _NEW, draft: Path | None = None) -> Iterator[BinaryIO]:
    """Yield a stream; what is written to it is in the file after the block, and nothing of it after an error.

    A regular file is replaced in one move, which also a power cut does not halve.  It keeps its permissions, and its
    user and group where this process may give them.  The target of a link is replaced, not the link.  What is no
    regular file, such as a device, a pipe or /dev/stdout, stays what it is and is written to.

    Args:
        file: the file.
        new_mode: its permissions if it is not there yet; the umask is taken off.
        draft: where its content lies meanwhile, on the same file system; None: beside it.

    Raises:
        OSError: it cannot be written; `filename` is `file`.
    """
    with _naming(file):
        status = _status(file)
    if _is_replaced(file, status):
        with _replacing(file, status, new_mode, draft or _draft_beside(file.resolve())) as stream:
            yield stream
        return
    require_writable(file)
    content = io.BytesIO()
    yield content
    with _naming(file), _opened(file) as stream:
        stream.write(content.getbuffer())


def require_writable(file: Path) -> None:
    """Raise what `writing` would raise for this file now, before the work that makes its content."""
    with _naming(file):
        status = _status(file)
        if not _is_replaced(file, status):
            if kind_of(file) == "a directory":
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            if (own := _own_descriptor(file)) is None:
                _require_access(file)
            else:
                os.fstat(own)
            return
    draft = _draft_beside(file.resolve())
    _made(file, draft, 0o600).close()
    draft.unlink()


def kind_of(file: Path) -> str | None:
    """Return what the file is where it is no regular one, such as "a directory"; None for one that is, or is not there.

    The file that a link leads to counts.
    """
    status = _status(file)
    if status is None or stat.S_ISREG(status.st_mode):
        return None
    kinds = {
        stat.S_IFDIR: "a directory",
        stat.S_IFCHR: "a character device",
        stat.S_IFBLK: "a block device",
        stat.S_IFIFO: "a pipe",
        stat.S_IFSOCK: "a socket",
    }
    return kinds.get(stat.S_IFMT(status.st_mode), "no regular file")


@contextmanager
def _replacing(file: Path, status: os.stat_result | None, new_mode: int, draft: Path) -> Iterator[BinaryIO]:
    target = file.resolve()
    try:
        with _made(file, draft, new_mode if status is None else 0o600) as stream:
            if status is not None:
                _take_over(stream.fileno(), status)
            yield stream
            with _naming(file):
                stream.flush()
                os.fsync(stream.fileno())
        with _naming(file):
            draft.replace(target)
    except BaseException as error:
        with suppress(OSError):
            draft.unlink()
        if isinstance(error, OSError) and error.errno in _FULL and error.filename is None:  # raised in the block
            raise OSError(error.errno, error.strerror, str(file)) from error
        raise
    with suppress(OSError):  # the file is there, whatever this file system or directory does not allow
        _sync(target.parent)


def _sync(directory: Path) -> None:
    """Return when the names in a directory would survive a power cut."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _naming(file: Path) -> Iterator[None]:
    """Have an OSError name this file, not a draft and not nothing."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(file)) from error


def _status(file: Path) -> os.stat_result | None:
    """Return what the file is, links followed; None if it is not there."""
    try:
        return file.stat()
    except FileNotFoundError:
        return None


def _is_replaced(file: Path, status: os.stat_result | None) -> bool:
    return _own_descriptor(file) is None and (status is None or stat.S_ISREG(status.st_mode))


def _require_access(file: Path) -> None:
    if not os.access(file, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(file))


def _own_descriptor(file: Path) -> int | None:
    """Return the descriptor that a name such as /dev/stdout or /dev/fd/3 stands for, None for any other name."""
    for _ in range(_MAX_LINKS):
        if file.name.isdecimal() and os.path.realpath(file.parent) == f"/proc/{os.getpid()}/fd":
            return int(file.name)
        if not file.is_symlink():
            return None
        file = file.parent / file.readlink()
    return None


def _opened(file: Path) -> BinaryIO:
    """Open what is no regular file, as it is."""
    own = _own_descriptor(file)  # opened anew, a file behind it would lose what others have written
    descriptor = os.open(file, os.O_WRONLY) if own is None else os.dup(own)
    return open(descriptor, "wb")  # noqa: PTH123 - a descriptor, not a path


def _draft_beside(target: Path) -> Path:
    name = os.fsdecode(os.fsencode(target.name)[:_MAX_NAME_BYTES])
    return target.with_name(f".{name}.{os.getpid()}.draft")


def _made(file: Path, draft: Path, mode: int) -> BinaryIO:
    with suppress(OSError):  # which the next line says better
        draft.unlink()  # of a process with this number that was killed
    if file.exists():
        _require_access(file)
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        return open(descriptor, "wb")  # noqa: PTH123 - a descriptor, not a path
    except OSError as error:
        raise OSError(error.errno, f"no file can be made in its directory: {error.strerror}", str(file)) from error


def _take_over(descriptor: int, known: os.stat_result) -> None:
    """Give the draft the permissions, the user and the group of the file that it replaces."""
    mode = stat.S_IMODE(known.st_mode)
    for user in (known.st_uid, -1):  # only root gives files away; else `sudo dragoman keys new` would take them
        with suppress(OSError):
            os.fchown(descriptor, user, known.st_gid)
            break
    else:  # what its group may do is not for ours
        mode = mode & ~0o070 | (mode & 0o007) << 3
    os.fchmod(descriptor, mode)


def text_of_line(raw: bytes, *, is_first: bool) -> str:
    """The text of a line, without its end and, in a file's first one, without a byte order mark.

    Raises:
        UnicodeDecodeError: it is no UTF-8.
    """
    text = without_end(raw.decode("utf-8"))
    return text.removeprefix(_BOM) if is_first else text


def without_end(line: str) -> str:
    """The line without the line feed, or carriage return and line feed, that ends it."""
    return line.removesuffix("\n").removesuffix("\r")


def on_one_line(text: str) -> str:
    """The text with a space for whatever any program takes for the end of a line."""
    return " ".join(text.splitlines())
