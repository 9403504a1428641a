"""How a bundle comes to be on disk: whole, in one rename, or not at all.

To replace one takes two renames: a kill between them leaves the older bundle as `old` in a hidden directory beside.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from model.bundle import MANIFEST_NAME, SIGNATURE_NAME, Bundle, BundleError, Manifest, file_entry, read_manifest


@contextmanager
def staging_directory(destination: Path) -> Iterator[Path]:
    """An empty directory beside `destination`, for `write_bundle`; whatever is left in it at the end is deleted."""
    destination.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=f".{destination.name}.", dir=destination.parent))
    staging.chmod(0o755)
    try:
        yield staging
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def write_bundle(staging: Path, destination: Path, manifest: Manifest) -> Bundle:
    """Make the files in `staging` a bundle, and put it at `destination`.

    An older bundle there is replaced; files in it that its manifest does not list (a model card) are kept.

    Args:
        staging: from `staging_directory(destination)`, with every file in place.
        destination: the bundle's directory; absent, empty, or a bundle.
        manifest: everything but `files`, which is computed here.

    Raises:
        BundleError: `destination` holds something else, or the result would not load.
    """
    entries = {name: file_entry(staging / name) for name in _file_names(staging)}
    staged_manifest = staging / MANIFEST_NAME
    staged_manifest.write_text(replace(manifest, files=entries).to_json(), encoding="utf-8")
    Bundle.load(staging, verify=False)
    _keep_unlisted_files(destination, staging)
    _sync(staging)
    _replace_directory(staging, destination)
    return Bundle.load(destination)


def _keep_unlisted_files(old: Path, new: Path) -> None:
    if not old.exists() or not any(old.iterdir()):
        return
    if not (old / MANIFEST_NAME).is_file():
        raise BundleError(f"{old} exists and is not a bundle; remove it or choose another directory")
    listed = {*read_manifest(old).files, MANIFEST_NAME, SIGNATURE_NAME}  # the old signature is not the new one's
    for name in _file_names(old):
        if name not in listed and not (new / name).exists():
            (new / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(old / name, new / name)


def _sync(directory: Path) -> None:
    """Make sure that a power cut after the rename finds the files' contents on disk."""
    for path in [*directory.rglob("*"), directory]:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _replace_directory(new: Path, destination: Path) -> None:
    """Rename `new` to `destination`; an older directory steps aside first and is put back if that fails."""
    if not destination.exists():
        new.rename(destination)
        return
    with staging_directory(destination) as aside:
        old = destination.rename(aside / "old")
        try:
            new.rename(destination)
        except OSError:
            old.rename(destination)
            raise


def _file_names(directory: Path) -> list[str]:
    return sorted(path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file())
