"""What `dragoman translate --document` does with a file: reads it, has its units translated, writes it."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TypeAlias

import typer

from model.files import require_writable, write_whole
from service.documents.draft import FileDraft, Line, Unit, place_of, report_of
from service.documents.formats import DocumentFormat, format_of, read_file
from service.errors import DragomanError, InvalidInput, NotFound
from service.models.catalogue import index_of
from service.records import ModelInfo, Translation

AUTO = "auto"  # the format that the suffix says
_NUM_FAILURES_SHOWN = 10

# Texts, and `format` as in a request -> their translations, in order.
TranslateUnits: TypeAlias = Callable[..., Iterator[Translation]]
Bar: TypeAlias = Callable[
    [int], AbstractContextManager[Callable[[], None]]
]  # number of units -> a bar, moved by a call


@dataclass(frozen=True, slots=True)
class Document:
    """A file to translate."""

    file: Path
    format: str  # a `DocumentFormat`, or AUTO
    output: Path | None  # None: standard output
    report: Path | None = None  # where the warnings go as JSON
    model: str | None = None
    languages: tuple[str, str] = ("", "")  # source and target, BCP 47; empty: the model's

    def translate(self, models: Sequence[ModelInfo], translate_units: TranslateUnits, bar: Bar) -> int:
        """Write the file with its translations, and return how many units failed; these stay as they were.

        Args:
            models: those that may translate it.

        Raises:
            ValueError: the file cannot be read as what it is said to be.
            DragomanError: a call failed; nothing is written.
            OSError: the output cannot be written.
        """
        for file in filter(None, (self.output, self.report)):
            require_writable(file)
        info = self._model(models)
        draft = self._read(self.languages[1] or (info.target_language if info else ""))
        translations: list[Translation] = []
        with bar(len(draft.units)) as advance:
            for text_format, units in groupby(draft.units, key=lambda unit: unit.format):
                texts = [unit.text for unit in units]
                for translation in translate_units(texts, format=text_format):
                    translations.append(translation)
                    advance()
        written = draft.write(translations)
        if self.output is None:
            typer.echo(written.content, nl=False)
        else:
            write_whole(self.output, written.content)
        report = report_of(draft.units, translations, written.notices)
        if self.report is not None:
            lines = json.dumps(report, ensure_ascii=False, indent=1)
            write_whole(self.report, f"{lines}\n".encode())
        for remark in draft.remarks:
            typer.echo(f"dragoman: {self.file}: {remark}", err=True)
        _print_report(report)
        return _print_failures(draft.units, translations)

    def _model(self, models: Sequence[ModelInfo]) -> ModelInfo | None:
        """Return the model that translates; None where the server would translate through a third language."""
        source, target = self.languages
        try:
            return models[index_of(models, model=self.model, source_language=source, target_language=target)]
        except NotFound:
            return None

    def _read(self, target_language: str) -> FileDraft:
        document_format = format_of(self.file) if self.format == AUTO else _format_named(self.format)
        content = self.file.read_bytes()
        try:
            return read_file(content, document_format, target_language)
        except ValueError as error:
            raise ValueError(f"{self.file}: {error}") from error


def document_of(
    file: Path | None,
    name: str,
    output: Path | None,
    report: Path | None,
    *,
    model: str | None,
    languages: tuple[str, str],
    has_others: bool,
) -> Document | None:
    """Return the document that the command line names, None where it names none.

    Args:
        has_others: whether it names texts, or another way to write them.

    Raises:
        ValueError: options that do not go together.
    """
    if file is not None and has_others:
        raise ValueError("--document goes with no texts, --file, --json or --num-hypotheses: it gives one file")
    if file is None and (output is not None or report is not None or name != AUTO):
        raise ValueError("--output, --format and --report need --document")
    return None if file is None else Document(file, name, output, report, model, languages)


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
