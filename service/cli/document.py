"""What `dragoman translate --document` does with a file: reads it, has its units translated, writes it."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from itertools import groupby
from pathlib import Path
from typing import TypeAlias

import typer

from model.files import require_writable, write_whole
from service.documents.draft import Line, Unit, place_of, report_of
from service.documents.formats import DocumentFormat, format_of, read_file
from service.errors import DragomanError, InvalidInput
from service.records import Translation

AUTO = "auto"  # the format that the suffix says
_NUM_FAILURES_SHOWN = 10

Bar: TypeAlias = Callable[
    [int], AbstractContextManager[Callable[[], None]]
]  # number of units -> a bar, moved by a call


def translate_document(
    file: Path,
    format_name: str,
    output: Path | None,
    report: Path | None,
    language: str,
    translate: Callable[..., Iterator[Translation]],
    bar: Bar,
) -> int:
    """Write a file with its translations, and return how many units failed; these stay as they were.

    Args:
        format_name: a `DocumentFormat`, or AUTO.
        output: None for standard output.
        report: where the warnings go as JSON.
        language: of the translations, BCP 47; empty: it is not known.
        translate: takes texts, and their `format` as in a request.

    Raises:
        ValueError: the file cannot be read as what it is said to be.
        DragomanError: a call failed; nothing is written.
        OSError: the output cannot be written.
    """
    for written_to in filter(None, (output, report)):
        require_writable(written_to)
    document_format = format_of(file) if format_name == AUTO else _format_named(format_name)
    content = file.read_bytes()
    try:
        draft = read_file(content, document_format, language)
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from error
    translations: list[Translation] = []
    with bar(len(draft.units)) as advance:
        for text_format, units in groupby(draft.units, key=lambda unit: unit.format):
            for translation in translate([unit.text for unit in units], format=text_format):
                translations.append(translation)
                advance()
    written = draft.write(translations)
    if output is None:
        typer.echo(written.content, nl=False)
    else:
        write_whole(output, written.content)
    lines = report_of(draft.units, translations, written.notices)
    if report is not None:
        write_whole(report, f"{json.dumps(lines, ensure_ascii=False, indent=1)}\n".encode())
    for remark in draft.remarks:
        typer.echo(f"dragoman: {file}: {remark}", err=True)
    _print_report(lines)
    return _print_failures(draft.units, translations)


def _format_named(name: str) -> DocumentFormat:
    try:
        return DocumentFormat(name)
    except ValueError as error:
        raise ValueError(f"--format is {name!r}, there are {AUTO}, {', '.join(DocumentFormat)}") from error


def _print_report(report: Sequence[Line]) -> None:
    """Print a table of what went wrong on standard error: kind, number, first place."""
    if not report:
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("warning", "count", "first in line", box=None, pad_edge=False)
    for kind, count in Counter(line["kind"] for line in report).most_common():
        first = next(line for line in report if line["kind"] == kind)
        table.add_row(kind.replace("_", " "), str(count), place_of(first))
    Console(stderr=True).print(table)


def _print_failures(units: Sequence[Unit], translations: Sequence[Translation]) -> int:
    """Print why units stayed as they are, and return how many did."""
    failures: list[tuple[str, DragomanError]] = [
        (f"{unit.part} {unit.line}".strip(), translation.error)
        for unit, translation in zip(units, translations, strict=True)
        if translation.error is not None
    ]
    for place, error in failures[:_NUM_FAILURES_SHOWN]:
        message = error.about("the text") if isinstance(error, InvalidInput) else str(error)
        typer.echo(f"dragoman: line {place}: {message}", err=True)
    if len(failures) > _NUM_FAILURES_SHOWN:
        typer.echo(f"dragoman: {len(failures) - _NUM_FAILURES_SHOWN} more failed", err=True)
    return len(failures)
