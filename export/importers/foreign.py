"""What an importer is told, how it reads settings and numbers, and the parts that all of them write.

Knows no format.  Numbers lie in files and take no memory of their own.
"""

import json
import math
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
from numpy.typing import NDArray

from export.builder import Array
from export.source import FIRST_VERSION, ExportSource
from model.config import StopRule
from model.manifest import TokenizerFiles, TokenizerKind
from model.pieces import load_processor
from model.spelling import WORD_MARK

SOURCE_VOCABULARY, TARGET_VOCABULARY = "source_vocabulary.json", "target_vocabulary.json"
SOURCE_PIECES, TARGET_PIECES = "source.spm", "target.spm"
_PIECE_NAMES = (SOURCE_PIECES, "sentencepiece.model", "spm.model", "sentencepiece.bpe.model", "shared.spm")
_MOST = 1_000_000  # the largest vocabularies have 260,000 tokens
_MAX_TEXT_BYTES = 64 << 20  # of a file with settings or tokens; a vocabulary of 256,000 has 6 MB
_BLOCK_NUMBERS = 4 << 20  # converted at a time
_SMALL_NUMBERS = 1 << 16  # stay in memory

State = dict[str, Array]  # parameters by the names of `model/transformer.py`


class ForeignModelError(ValueError):
    """A model that cannot be imported; the message says which part, why, and what would help."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOptions:
    """What the owner of a model says about it; None and empty: as the model's own files have it."""

    name: str = ""
    version: str = ""
    source_language: str = ""
    target_language: str = ""
    source_pieces: Path | None = None  # SentencePiece model
    target_pieces: Path | None = None
    vocabularies: tuple[Path, ...] = ()  # of Marian: one, or source and target
    source_prefix: tuple[str, ...] = ()  # tokens before every source
    source_eos: bool | None = None  # whether end-of-sentence ends every source
    profile: StopRule | None = None  # None: the model searches as in its own framework
    shortlist: Path | None = None  # None: the one that the model has
    language_last: bool | None = None  # whether a source's language stands behind its end-of-sentence, not first

    def languages(self, source: str, target: str) -> tuple[str, str]:
        """Return the languages of the model, given those that its files name.

        Raises:
            ForeignModelError: a language is not known.
        """
        languages = self.source_language or source, self.target_language or target
        for side, language in zip(("source", "target"), languages, strict=True):
            if not language:
                raise ForeignModelError(
                    f"the model does not say its {side} language: give --{side}-language, such as de"
                )
        return languages


def imported(
    options: ImportOptions,
    directory: Path,
    scratch: Path,
    languages: tuple[str, str],
    *,
    name: str = "",
    version: str = FIRST_VERSION,
    **parts: Any,
) -> ExportSource:
    """Return what the export starts from.

    Args:
        options: what the owner says, which goes before what the model says.
        directory: of the model, which is called so unless it has a name.
        scratch: where the tokenizer's files are.
        languages: source and target.
        name, version: as the model has them.
        parts: further fields of `ExportSource`.
    """
    return ExportSource(
        name=options.name or name or directory.resolve().name,
        version=options.version or version,
        tokenizer_path=scratch,
        source_language=languages[0],
        target_language=languages[1],
        **parts,
    )


@contextmanager
def blaming(path: Path) -> Iterator[None]:
    """Turn a ValueError of what a file says into a ForeignModelError with the file's name."""
    try:
        yield
    except ForeignModelError:
        raise
    except ValueError as error:
        raise ForeignModelError(f"{path}: {error}") from error


def require_understood(left: Sequence[str], what: str, path: Path) -> None:
    """Raise ForeignModelError if parts of a model are left that nobody asked for: they would change translations."""
    if left:
        more = f" and {len(left) - 3} more" if len(left) > 3 else ""
        raise ForeignModelError(f"{path} has {what} that are not understood: {', '.join(left[:3])}{more}")


def read_json(path: Path) -> Any:
    """Return what a JSON file holds.

    Raises:
        ForeignModelError: the file is missing, too large, or no JSON.
    """
    if not path.is_file():
        raise ForeignModelError(f"{path} does not exist")
    try:
        return json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise ForeignModelError(f"{path} is no JSON: {error}") from error


def read_settings(path: Path) -> dict[str, Any]:
    """Return a JSON object, or raise ForeignModelError."""
    settings = read_json(path)
    if not isinstance(settings, dict):
        raise ForeignModelError(f"{path} is no JSON object")
    return settings


def read_lines(path: Path) -> list[str]:
    """Return the lines of a text file; carriage returns stay unless every line ends with one."""
    lines = read_text(path).split("\n")
    if lines[-1] == "":
        lines.pop()
    return [line[:-1] for line in lines] if lines and all(line.endswith("\r") for line in lines) else lines


def write_vocabulary(path: Path, tokens: Sequence[str]) -> None:
    """Write the file that `model.vocabulary_tokenizers.Vocabulary.load` reads."""
    path.write_text(json.dumps(list(tokens), ensure_ascii=False, indent=0) + "\n", encoding="utf-8")


def require_keys(settings: Mapping[str, Any], allowed: Mapping[str, Any], path: Path) -> None:
    """Refuse settings that have other values than the ones that this program understands.

    Raises:
        ForeignModelError: names the setting and its values.
    """
    for name, value in allowed.items():
        if settings.get(name, value) != value:
            raise ForeignModelError(f"{path}: {name} is {settings[name]!r}, only {value!r} is supported")


def whole_number(settings: Mapping[str, Any], name: str, default: int, path: Path) -> int:
    """Return a setting that is a number of rows, layers or the like, or the default where it is absent or null.

    Raises:
        ForeignModelError: it is no integer from 0 to a million, which no model reaches.
    """
    value = settings.get(name)
    if value is None:
        return default
    if type(value) is not int or not 0 <= value <= _MOST:
        raise ForeignModelError(f"{path}: {name} is {value!r:.60}, it must be an integer from 0 to {_MOST}")
    return value


def stored_float32(rows: Callable[[int, int], NDArray[Any]], shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Return an array whose rows are asked for some at a time.

    A large one is mapped from a file without a name in the directory for temporary files (TMPDIR); the system removes
    the file with the array.

    Args:
        rows: rows [first, last) of a matrix with as many rows as the first of `shape`, any number type.
        shape: of the result; a scalar has one row of one number.

    Raises:
        ValueError: a number is not finite.
    """
    size = math.prod(shape)
    num_rows = shape[0] if shape else 1
    array: NDArray[np.float32]
    if size <= _SMALL_NUMBERS:
        array = np.empty(size, np.float32)
    else:
        with tempfile.TemporaryFile() as file:  # the mapping keeps it open
            array = np.memmap(file, np.float32, "w+", shape=(size,))
    matrix = array.reshape(num_rows, -1)
    for first, last in _parts(num_rows, size):
        with np.errstate(all="ignore"):  # refused below
            matrix[first:last] = rows(first, last)
        if not np.isfinite(matrix[first:last]).all():
            raise ValueError("numbers that are not finite")
    return array.reshape(shape)


def _parts(num_rows: int, size: int) -> Iterator[tuple[int, int]]:
    step = max(1, _BLOCK_NUMBERS * num_rows // max(size, 1))
    for first in range(0, num_rows, step):
        yield first, min(first + step, num_rows)


def half_sinusoids(num_positions: int, d_model: int) -> Array:
    """Return the position table with all sines before all cosines; the rates are the paper's.

    Returns:
        [num_positions, d_model] float32.
    """
    rates = np.power(10_000.0, -2.0 * np.arange((d_model + 1) // 2) / d_model)
    angles = np.arange(num_positions)[:, None] * rates
    table: Array = np.concatenate([np.sin(angles), np.cos(angles[:, : d_model // 2])], axis=1).astype(np.float32)
    return table


def with_zero_row(table: Array) -> Array:
    """Return the table with one more row, of zeros."""
    matrix, zeros = table.reshape(len(table), -1), np.zeros((1, table[:1].size), np.float32)

    def rows(first: int, last: int) -> Array:
        found: Array = np.concatenate([matrix[first:last], zeros])[: last - first]
        return found

    return stored_float32(rows, (len(table) + 1, *table.shape[1:]))


def index_of(tokens: Sequence[str], token: str, path: Path) -> int:
    """Return the id of a token that a vocabulary must have, or raise ForeignModelError."""
    if token not in tokens:
        raise ForeignModelError(f"{path}: the vocabulary has no token {token!r}")
    return tokens.index(token)


def read_pieces(path: Path) -> sentencepiece.SentencePieceProcessor:
    """Return a SentencePiece model, or raise ForeignModelError."""
    try:
        return load_processor(path)
    except ValueError as error:
        raise ForeignModelError(f"{error}; --source-pieces and --target-pieces name other files") from error


def copy_pieces(pieces: Path, destination: Path, tokens: Sequence[str]) -> None:
    """Copy a SentencePiece model into the bundle if it belongs to a vocabulary.

    Raises:
        ForeignModelError: it does not open, or less than half of its pieces are in the vocabulary.
    """
    processor = read_pieces(pieces)
    names = {processor.id_to_piece(number) for number in range(processor.get_piece_size())}
    if 2 * len(names & set(tokens)) < len(names):
        raise ForeignModelError(
            f"{pieces} has {len(names)} pieces, only {len(names & set(tokens))} of them are in the vocabulary: "
            "it belongs to another model"
        )
    shutil.copyfile(pieces, destination)


def write_tokenizer(
    scratch: Path,
    places: Sequence[Path],
    options: ImportOptions,
    source: Sequence[str],
    target: Sequence[str],
    *,
    source_bos: str = "",
    source_eos: bool,
    unknown: str = "<unk>",
    end: str = "</s>",
) -> TokenizerFiles:
    """Write vocabularies and SentencePiece models, and return their names.

    Args:
        scratch: where the files go.
        places: directories where SentencePiece models may lie; without any, texts are tokens with spaces between them.
        options: what the owner says.
        source, target: the tokens by id.
        source_bos: the token before each source; empty: none.
        source_eos: whether `end` ends each source, unless the owner says it.
        unknown, end: tokens of the vocabularies.

    Raises:
        ForeignModelError: SentencePiece models are missing, or belong to other vocabularies.
    """
    source_pieces, target_pieces = _find_pieces(places, options)
    if source_pieces is None and sum(token.startswith(WORD_MARK) for token in source) > 1:
        raise ForeignModelError(
            f"{places[0]} has a vocabulary of SentencePiece and no SentencePiece model: give one with --source-pieces"
        )
    for pieces, name, tokens in ((source_pieces, SOURCE_PIECES, source), (target_pieces, TARGET_PIECES, target)):
        if pieces is not None:
            copy_pieces(pieces, scratch / name, tokens)
    write_vocabulary(scratch / SOURCE_VOCABULARY, source)
    if target != source:
        write_vocabulary(scratch / TARGET_VOCABULARY, target)
    return TokenizerFiles(
        kind=TokenizerKind.SPACES if source_pieces is None else TokenizerKind.PIECES,
        source="" if source_pieces is None else SOURCE_PIECES,
        target="" if target_pieces is None else TARGET_PIECES,
        source_vocabulary=SOURCE_VOCABULARY,
        target_vocabulary="" if target == source else TARGET_VOCABULARY,
        unknown=unknown,
        end=end,
        source_prefix=(*((source_bos,) if source_bos else ()), *options.source_prefix),
        source_suffix=(end,) if (source_eos if options.source_eos is None else options.source_eos) else (),
    )


def _find_pieces(places: Sequence[Path], options: ImportOptions) -> tuple[Path | None, Path | None]:
    """Return the SentencePiece models of source and target; None for the target: the source's."""
    found = [place / name for place in places for name in _PIECE_NAMES]
    source = options.source_pieces or next(filter(Path.is_file, found), None)
    if source is None or options.target_pieces is not None:
        return source, options.target_pieces
    beside = source.with_name(TARGET_PIECES)
    return source, beside if source.name == SOURCE_PIECES and beside.is_file() else None


def read_text(path: Path) -> str:
    """Return a text file.

    Raises:
        ForeignModelError: it is too large, or no UTF-8.
    """
    if (size := path.stat().st_size) > _MAX_TEXT_BYTES:
        raise ForeignModelError(f"{path} has {size} bytes, at most {_MAX_TEXT_BYTES} are accepted")
    try:
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise ForeignModelError(f"{path} is no UTF-8 text") from error
