"""Parquet files.  Needs pyarrow."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from service.bulk.lines import text_of
from service.bulk.parts import Part, target_exists
from service.extras import how_to_install

_BATCH_ROWS = 1_000  # in memory at a time while texts are read

_STRINGS = frozenset({"is_string", "is_large_string", "is_string_view"})
_BYTES = frozenset({"is_binary", "is_large_binary", "is_binary_view", "is_fixed_size_binary"})
_NUMBERS = frozenset({"is_integer", "is_floating", "is_decimal", "is_null"})  # the last one: of values that are missing


@dataclass(frozen=True, slots=True)
class Parquet:
    """Columns; the translation is added as the last one."""

    column: str
    target: str

    def plan(self, file: Path, part_size: int) -> Iterator[Part]:
        with _opened(file) as source:
            schema, num_rows = source.schema_arrow, source.metadata.num_rows
        if self.column not in schema.names:
            raise ValueError(f"{file} has no column {self.column!r}, there are {', '.join(map(repr, schema.names))}")
        if self.target in schema.names:
            raise target_exists(f"{file} has a column", self.target)
        self._check_texts(file, schema.field(schema.names.index(self.column)).type, num_rows)
        for index, start in enumerate(range(0, num_rows, part_size)):
            yield Part(index, start, min(part_size, num_rows - start))

    def texts(self, file: Path, parts: Sequence[Part]) -> Iterator[str]:
        """As of any format; one column is read, from the front to the back of each row group that has a part of it."""
        stretches, begin = _stretches(parts), 0
        with _opened(file) as source:
            for group in range(source.num_row_groups):
                end = begin + source.metadata.row_group(group).num_rows
                for stretch in stretches:
                    first, last = max(stretch.start, begin) - begin, min(stretch.stop, end) - begin
                    if first < last:
                        values = _values(source, group, self.column, first, last)
                        yield from _texts(values, begin + first + 1, f"{file}, column {self.column!r}")
                begin = end

    def encode(self, file: Path, part: Part, translations: Sequence[str]) -> bytes:
        """The translations alone: the other columns are taken from the source when the parts are joined."""
        return json.dumps(list(translations), ensure_ascii=False).encode()

    def join(self, source: Path, parts: Iterable[Path], output: Path) -> None:
        import pyarrow as pa  # noqa: PLC0415 - of the extra `bulk`

        texts = (text for part in parts for text in json.loads(part.read_bytes()))
        with _opened(source) as file:
            schema = file.schema_arrow.append(pa.field(self.target, pa.string()))
            with _parquet().ParquetWriter(output, schema) as writer:
                for group in range(file.num_row_groups):
                    table = file.read_row_group(group)
                    column = pa.array([next(texts) for _ in range(table.num_rows)], pa.string())
                    writer.write_table(table.append_column(self.target, column).cast(schema))

    def _check_texts(self, file: Path, kind: Any, num_rows: int) -> None:
        """Refuse what is no text; bytes are all looked at, as nobody has promised that they are any."""
        if _is(kind, _BYTES):
            for _ in self.texts(file, [Part(0, 0, num_rows)]):
                pass
        elif not _is(kind, _STRINGS | _NUMBERS):
            raise ValueError(f"{file}: the column {self.column!r} is of type {kind}, which is neither text nor numbers")


def _is(kind: Any, tests: frozenset[str]) -> bool:
    """Whether an Arrow type, or that of a dictionary's values, passes one of these tests in `pyarrow.types`."""
    import pyarrow.types as kinds  # noqa: PLC0415 - of the extra `bulk`

    if kinds.is_dictionary(kind):
        kind = kind.value_type
    return any(getattr(kinds, test)(kind) for test in tests)


def _texts(values: Iterable[object], first: int, where: str) -> Iterator[str]:
    """The texts of these values, of which the first is of this record."""
    for record, value in enumerate(values, first):
        try:
            yield text_of(value)
        except ValueError as error:
            raise ValueError(f"{where}, record {record}: {error}") from error


def _stretches(parts: Iterable[Part]) -> list[range]:
    """The rows of these parts; those of neighbours are one stretch, so that there are few."""
    stretches: list[range] = []
    for part in parts:
        start, stop = part.start, part.start + part.count
        if stretches and stretches[-1].stop == start:
            start = stretches.pop().start
        stretches.append(range(start, stop))
    return stretches


def _values(source: Any, group: int, column: str, first: int, last: int) -> Iterator[object]:
    """A column's values in these rows of a row group; no more than a batch of them is held."""
    begin = 0
    for batch in source.iter_batches(batch_size=_BATCH_ROWS, row_groups=[group], columns=[column]):
        end = begin + batch.num_rows
        if first < end:
            start = max(first, begin)
            yield from _undecoded(batch.column(0).slice(start - begin, min(last, end) - start)).to_pylist()
        if last <= end:
            return
        begin = end


def _undecoded(values: Any) -> Any:
    """The bytes of strings: where they are no UTF-8 after all, pyarrow would not say which."""
    import pyarrow as pa  # noqa: PLC0415 - of the extra `bulk`

    if not _is(values.type, _STRINGS):
        return values
    strings = values.dictionary_decode() if pa.types.is_dictionary(values.type) else values
    return strings.cast(pa.large_binary())


def _opened(file: Path) -> Any:
    """A `ParquetFile`, to be closed.

    Raises:
        ValueError: it is none.
    """
    module = _parquet()
    try:
        return module.ParquetFile(file)
    except ValueError as error:  # pyarrow's own, which does not name the file
        raise ValueError(f"{file} cannot be read as Parquet: {error}") from error


def _parquet() -> Any:
    try:
        import pyarrow.parquet as module  # noqa: PLC0415
    except ImportError as error:
        raise ValueError(f"Parquet files need pyarrow: {how_to_install('bulk')}") from error
    return module
