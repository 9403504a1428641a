"""The directory with weights that the engines of one model share."""

import os
import stat
from pathlib import Path

_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def require_own(directory: Path) -> None:
    """Raise PermissionError for a link, what is no directory, another user's, or one that others may write to."""
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & _BY_OTHERS:
        raise PermissionError(f"{directory} is not a directory that only this user can write to")
