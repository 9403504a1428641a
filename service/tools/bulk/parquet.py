"""Parquet files.  Needs pyarrow."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from service.extras import how_to_install
from service.tools.bulk.formats import BulkPart, target_exists, text_of

_BATCH_ROWS = 1_000  # in memory at a time while texts are read

# Tests of `pyarrow.types`.
_STRINGS = frozenset({"is_string", "is_large_string", "is_string_view"})
_BYTES = frozenset({"is_binary", "is_large_binary", "is_binary_view", "is_fixed_size_binary"})
_NUMBERS = frozenset({"is_integer", "is_floating", "is_decimal", "is_null"})  # the last one: of values that are missing


@dataclass(frozen=True, slots=True)
class Parquet:
    """Columns; the translation is added as the last one."""

    column: str
    target: str

    def plan(self, file: Path, part_size: int) -> Iterator[BulkPart]:
        with _opened(file) as source:
            schema, num_rows = source.schema_arrow, source.metadata.num_rows
        if self.column not in schema.names:
            raise ValueError(f"{file} has no column {self.column!r}, there are {', '.join(map(repr, schema.names))}")
        if self.target in schema.names:
            raise target_exists(f"{file} has a column", self.target)
        kind = schema.field(schema.names.index(self.column)).type
        if _is(kind, _BYTES):
            for _ in self.texts(file, [BulkPart(0, 0, num_rows)]):
                pass  # all are read, as nobody has promised that these bytes are text
        elif not _is(kind, _STRINGS | _NUMBERS):
            raise ValueError(f"{file}: the column {self.column!r} is of type {kind}, which is neither text nor numbers")
        for index, start in enumerate(range(0, num_rows, part_size)):
            yield BulkPart(index, start, min(part_size, num_rows - start))

    def texts(self, file: Path, parts: Sequence[BulkPart]) -> Iterator[str]:
        """Read one column, from the front to the back of each row group that has a part of it."""
        stretches, begin = _stretches(parts), 0
        with _opened(file) as source:
            for group in range(source.num_row_groups):
                end = begin + source.metadata.row_group(group).num_rows
                for stretch in stretches:
                    first, last = max(stretch.start, begin), min(stretch.stop, end)
                    if first < last:
                        batches = source.iter_batches(_BATCH_ROWS, row_groups=[group], columns=[self.column])
                        yield from _texts(batches, begin, range(first, last), f"{file}, column {self.column!r}")
                begin = end

    def encode(self, file: Path, part: BulkPart, translations: Sequence[str]) -> bytes:
        """Return the translations alone: the other columns are taken from the source when the parts are joined."""
        return json.dumps(list(translations), ensure_ascii=False).encode()

    def join(self, source: Path, parts: Iterable[Path], output: BinaryIO) -> None:
        import pyarrow as pa  # noqa: PLC0415 - of the extra `bulk`
        import pyarrow.parquet as pq  # noqa: PLC0415 - likewise

        texts = (text for part in parts for text in json.loads(part.read_bytes()))
        with _opened(source) as file:
            schema = file.schema_arrow.append(pa.field(self.target, pa.string()))
            with pq.ParquetWriter(output, schema) as writer:
                for group in range(file.num_row_groups):
                    table = file.read_row_group(group)
                    column = pa.array([next(texts) for _ in range(table.num_rows)], pa.string())
                    writer.write_table(table.append_column(self.target, column).cast(schema))


def _is(kind: Any, tests: frozenset[str]) -> bool:
    """Whether an Arrow type, or that of a dictionary's values, passes one of these tests."""
    import pyarrow.types as kinds  # noqa: PLC0415 - of the extra `bulk`

    if kinds.is_dictionary(kind):
        kind = kind.value_type
    return any(getattr(kinds, test)(kind) for test in tests)


def _stretches(parts: Iterable[BulkPart]) -> list[range]:
    """Return the rows of these parts; those of neighbours are one stretch, so that there are few."""
    stretches: list[range] = []
    for part in parts:
        start, stop = part.start, part.start + part.count
        if stretches and stretches[-1].stop == start:
            start = stretches.pop().start
        stretches.append(range(start, stop))
    return stretches


def _texts(batches: Iterable[Any], begin: int, wanted: range, where: str) -> Iterator[str]:
    """Return the texts of the wanted rows; the first batch begins at the row `begin`."""
    for batch in batches:
        first, last = max(wanted.start - begin, 0), min(wanted.stop - begin, batch.num_rows)
        values = _undecoded(batch.column(0).slice(first, last - first)).to_pylist() if first < last else []
        for record, value in enumerate(values, begin + first + 1):
            try:
                yield text_of(value)
            except ValueError as error:
                raise ValueError(f"{where}, record {record}: {error}") from error
        begin += batch.num_rows
        if begin >= wanted.stop:
            return


def _undecoded(values: Any) -> Any:
    """Return the bytes of strings: where they are no UTF-8 after all, pyarrow would not say which."""
    import pyarrow as pa  # noqa: PLC0415 - of the extra `bulk`

    if not _is(values.type, _STRINGS):
        return values
    strings = values.dictionary_decode() if pa.types.is_dictionary(values.type) else values
    return strings.cast(pa.large_binary())


def _opened(file: Path) -> Any:
    """Open a `ParquetFile`, which is to be closed; raises ValueError if it is none, or there is no pyarrow."""
    try:
        import pyarrow.parquet as pq  # noqa: PLC0415 - of the extra `bulk`
    except ImportError as error:
        raise ValueError(f"Parquet files need pyarrow: {how_to_install('bulk')}") from error
    try:
        return pq.ParquetFile(file)
    except ValueError as error:  # pyarrow's own, which does not name the file
        raise ValueError(f"{file} cannot be read as Parquet: {error}") from error
