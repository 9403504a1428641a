"""Whose directory an engine takes packed weights from."""

import os

import pytest

from service.engine.cpu.native.library import require_own


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
