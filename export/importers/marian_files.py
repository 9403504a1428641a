"""Which files of a directory are a Marian model, its vocabularies and its shortlist; packed ones (.gz) are unpacked.

Firefox serves `model.ende.intgemm.alphas.bin.gz`, `lex.50.50.ende.s2t.bin.gz` and `vocab.ende.spm.gz`, or `srcvocab`
and `trgvocab`.  An archive of OPUS-MT or Bergamot has the options of marian-decoder, which name the files.  Knows
names; not what is in the files.
"""

import gzip
import zlib
from collections.abc import Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path

from export.importers.foreign import ForeignModelError
from export.importers.marian_bin import is_marian_bin

_MODELS = ("*.npz", "model*.bin")
_VOCABULARIES = (("vocab*.spm",), ("srcvocab*.spm", "trgvocab*.spm"))  # one, or source and target
_SHORTLISTS = (("lex*.bin",), ("lex*.s2t",))  # the first is what Marian made of the second
_PACKED = tuple(f"{pattern}.gz" for patterns in (_MODELS, *_VOCABULARIES, *_SHORTLISTS) for pattern in patterns)
_OPTIONS = ("decoder.yml", "config.*.yml")  # of marian-decoder: OPUS-MT, Bergamot
_BLOCK = 1 << 20  # bytes at a time
_MOST_TIMES = 50  # a packed file becomes this many times its size; a text shortlist becomes 5 times

Files = Mapping[str, Path]  # by name


def is_marian_model(directory: Path) -> bool:
    """Return whether the directory has a file of Marian's formats."""
    plain = [*directory.glob("*.npz"), *filter(is_marian_bin, directory.glob("model*.bin"))]
    return bool(plain) or any(path for pattern in _MODELS for path in directory.glob(f"{pattern}.gz"))


def marian_files(directory: Path, scratch: Path) -> Files:
    """Return the files by name.

    Args:
        directory: of the model.
        scratch: gets a directory with what was unpacked.

    Raises:
        ForeignModelError: a packed file is damaged, or becomes too large.
    """
    files = {path.name: path for path in sorted(directory.iterdir()) if path.is_file()}
    for name, path in list(files.items()):
        plain = name.removesuffix(".gz")
        if plain not in files and any(fnmatch(name, pattern) for pattern in _PACKED):
            files[plain] = scratch / "unpacked" / plain
            files[plain].parent.mkdir(exist_ok=True)
            _unpack(path, files[plain])
    return files


def options_path(files: Files) -> Path | None:
    """Return the file with options of marian-decoder, or None."""
    for pattern in _OPTIONS:
        found = _matching(files, pattern)
        if len(found) > 1:
            raise ForeignModelError(f"{found[0].parent} has {len(found)} files of options ({pattern}): leave one there")
        if found:
            return found[0]
    return None


def model_path(directory: Path, files: Files, named: Sequence[str]) -> Path:
    """Return the file that the options name, wherever it lay before, or the only one."""
    names = list(named) or [path.name for pattern in _MODELS for path in _matching(files, pattern)]
    if len(names) != 1 or names[0] not in files:
        raise ForeignModelError(
            f"{directory} has {len(names)} models ({', '.join(names[:3])}): one is needed, there or named by "
            f"{_OPTIONS[0]}"
        )
    return files[names[0]]


def vocabulary_paths(directory: Path, files: Files, named: Sequence[Sequence[str]]) -> list[Path]:
    """Return one file, or those of source and target: the first of these lists that is there, or what lies there."""
    for names in named:
        found = [files[name] for name in names if name in files]
        if 1 <= len(found) == len(names) <= 2:
            return found
    for patterns in _VOCABULARIES:
        matching = [_matching(files, pattern) for pattern in patterns]
        if all(len(paths) == 1 for paths in matching):
            return [paths[0] for paths in matching]
    raise ForeignModelError(f"{directory} does not have the vocabularies that the model names: give --vocabulary FILE")


def shortlist_path(directory: Path, files: Files, named: str) -> Path | None:
    """Return the shortlist that the options name, or the only one, or None."""
    if named:
        if named not in files:
            raise ForeignModelError(f"{directory} does not have the shortlist {named!r:.60} that the options name")
        return files[named]
    for patterns in _SHORTLISTS:
        found = [path for pattern in patterns for path in _matching(files, pattern)]
        if len(found) > 1:
            raise ForeignModelError(f"{directory} has {len(found)} shortlists ({found[0].name}, ...): leave one there")
        if found:
            return found[0]
    return None


def _matching(files: Files, pattern: str) -> list[Path]:
    return [path for name, path in files.items() if fnmatch(name, pattern)]


def _unpack(path: Path, destination: Path) -> None:
    """Write what a packed file holds, block by block."""
    most, written = _MOST_TIMES * path.stat().st_size, 0
    try:
        with gzip.open(path) as packed, destination.open("wb") as file:
            while block := packed.read(_BLOCK):
                written += file.write(block)
                if written > most:
                    raise ForeignModelError(
                        f"{path} becomes more than {_MOST_TIMES} times its size: unpack it yourself"
                    )
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ForeignModelError(f"{path} is no .gz file, or a damaged one: {error}") from error
