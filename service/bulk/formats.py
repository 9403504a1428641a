"""Which format a file is of."""

from pathlib import Path

from service.bulk.lines import JsonLines, Lines
from service.bulk.parquet import Parquet
from service.bulk.parts import Format
from service.bulk.table import Table

SUFFIXES = (".txt", ".csv", ".tsv", ".jsonl", ".parquet")

# Goes up when any format reads or writes otherwise than before: parts of both kinds would not fit one output.
_READING = 2


def format_of(file: Path, column: str | None, target: str) -> Format:
    """The format that a file's suffix names; without a known one, lines.

    Args:
        column: of tables and objects, the column or field that holds the text; None for "text".
        target: the column or field that the translation goes to.
    """
    match file.suffix.lower():
        case ".csv":
            return Table(column or "text", target, delimiter=",")
        case ".tsv":
            return Table(column or "text", target, delimiter="\t")
        case ".jsonl" | ".ndjson":
            return JsonLines(column or "text", target)
        case ".parquet":
            return Parquet(column or "text", target)
    if column is not None:
        raise ValueError(f"{file} has no columns, and --column is {column!r}: columns are in {', '.join(SUFFIXES[1:])}")
    return Lines()


def name_of(file_format: Format) -> str:
    """What tells formats apart whose parts do not go together."""
    return f"{file_format!r}, reading {_READING}"
