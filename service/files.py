"""Files that others see whole or not at all, and directories that nobody else can write to."""

import os
import stat
from contextlib import suppress
from pathlib import Path

_AS_UMASK_SAYS = 0o666
_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def write_whole(file: Path, content: bytes, mode: int | None = None) -> None:
    """Have the file there with this content or as it was, also after a power cut.

    One that is replaced keeps its user and group where this process may give them, as root may.

    Args:
        mode: its permissions, whatever the umask; None for those of any new file.
    """
    draft = file.with_name(f".{file.name}.{os.getpid()}.draft")
    draft.unlink(missing_ok=True)  # of a process with this number that was killed
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _AS_UMASK_SAYS if mode is None else mode)
        with open(descriptor, "wb") as stream:  # noqa: PTH123 - a descriptor, not a path
            with suppress(OSError):  # there is no such file, or we may not
                known = file.stat()  # else `sudo dragoman keys new` would take a server's keys from it
                os.fchown(descriptor, known.st_uid, known.st_gid)
            if mode is not None:
                os.fchmod(descriptor, mode)
            stream.write(content)
            stream.flush()
            os.fsync(descriptor)
        draft.replace(file)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    sync(file.parent)


def sync(path: Path) -> None:
    """Return when a file's content, or the names in a directory, would survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def require_own(directory: Path) -> None:
    """Raise PermissionError for a link, what is no directory, another user's, or one that others may write to."""
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & _BY_OTHERS:
        raise PermissionError(f"{directory} is not a directory that only this user can write to")
