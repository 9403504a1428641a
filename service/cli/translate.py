"""`dragoman translate`: lines or a file in, a server or an engine in this process, lines or a file out.

The number of lines out equals the number of lines in.
"""

import json
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import partial
from io import TextIOWrapper
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from model.files import on_one_line, require_writable, text_of_line, write_whole
from service.cli.options import (
    READY_WITHIN_S,
    BundleDir,
    Connection,
    FromLanguage,
    Model,
    Precision,
    Server,
    ToLanguage,
    Wait,
    bundle_dir,
    ranged,
    require_bundle_options,
    server_address,
    wait_for,
    with_examples,
    with_options,
)
from service.cli.output import EXIT_SOME_FAILED, standard_input
from service.client import Client
from service.documents.draft import Line as ReportLine
from service.documents.draft import Unit, place_of, report_of
from service.documents.formats import DocumentFormat, format_of, read_file
from service.errors import DragomanError, InvalidInput, NotFound
from service.local import DEFAULT_WINDOW, LocalTranslator
from service.models.catalogue import index_of
from service.ranges import SECONDS, TEXTS, THREADS
from service.records import NO_OPTIONS, ModelInfo, TranslateAll, TranslateOptions, Translation, TranslationRequest

if TYPE_CHECKING:
    from rich.table import Table

AUTO = "auto"  # the format that the suffix says
_NUM_FAILURES_SHOWN = 10


@dataclass(frozen=True, slots=True)
class Line:
    """One source text, or the reason why there is none."""

    number: int  # from 1
    text: str  # empty if the bytes were no text
    error: DragomanError | None = None


@with_examples(
    'dragoman translate "The cat sleeps." "It rains."',
    "dragoman translate --from en --to de < english.txt > german.txt",
    "dragoman translate --bundle default --file english.txt --beam-size 1",
    'dragoman translate --json --num-hypotheses 3 "The cat sleeps."',
    "dragoman translate --document guide.md -o guide.de.md",
    "dragoman translate --document film.srt -o film.de.srt --bundle default",
    "dragoman translate --document po/de.po -o po/de.po --to de",
)
@with_options
def translate(
    *,
    texts: Annotated[list[str] | None, typer.Argument(help="Texts; without any, lines are read.")] = None,
    file: Annotated[Path | None, typer.Option("--file", "-f", help="Read lines from here, not standard input.")] = None,
    document: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Translate this file, and keep all of it that is not language.")
    ] = None,
    document_format: Annotated[
        str, typer.Option("--format", help=f"Of --document: {', '.join(DocumentFormat)}; auto goes by its suffix.")
    ] = AUTO,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Of --document; may be the same file.  [default: standard output]"),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option("--report", metavar="FILE", help="Of --document: write its warnings here, as a JSON list."),
    ] = None,
    server: Server = None,
    connection: Connection,
    bundle: BundleDir = None,
    precision: Precision = None,
    threads: Annotated[int | None, ranged(THREADS, help="With --bundle.  [default: allowed CPUs]")] = None,
    source_language: FromLanguage = "",
    target_language: ToLanguage = "",
    model: Model = None,
    search: TranslateOptions = NO_OPTIONS,
    timeout: Annotated[float | None, ranged(SECONDS, help="Deadline of a call.  [default: 60]")] = None,
    wait: Wait = READY_WITHIN_S,
    batch_size: Annotated[
        int | None,
        ranged(TEXTS, help="Texts per call, or read ahead with --bundle; 1 answers each line before the next."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line, with scores.")] = False,
) -> None:
    """Translate texts, one translation a line, in their order; a blank line stays a blank line.

    What seems wrong with a translation is said on standard error.

    With --num-hypotheses above 1 a line is: number of the source line, score, text, with tabs between them.

    With --document, a file: what is not language comes back byte for byte, and a table says what went wrong.

    Exit code 0: all done; 1: some texts failed, and their lines are empty (in a document: as they were); 2: wrong
    usage, or a wrong API key; 3: no answer.
    """
    has_scores = (search.num_hypotheses or 1) > 1
    if document is not None and (texts or file is not None or as_json or has_scores):
        raise ValueError("--document goes with no texts, --file, --json or --num-hypotheses: it gives one file")
    if document is None and (output is not None or report is not None or document_format != AUTO):
        raise ValueError("--output, --format and --report need --document")
    if texts and file is not None:
        raise ValueError("give texts or --file, not both")
    directory = bundle_dir(bundle)
    require_bundle_options(directory, server=server, precision=precision, threads=threads)
    wanted: dict[str, Any] = {"source_language": source_language, "target_language": target_language}
    with ExitStack() as stack:
        source, is_typed = _source(stack, texts or [], None if document or texts else file or standard_input())
        if is_typed and batch_size is None:
            batch_size = 1  # somebody wants each answer at once
        translate_all: TranslateAll
        if directory is not None:
            window = batch_size or DEFAULT_WINDOW
            translator = LocalTranslator.open(directory, precision=precision, threads=threads, window=window)
            translator.require(model=model, **wanted)
            language = translator.info.target_language
            translate_all = partial(_translate_here, translator, search, wanted)
        else:
            client = stack.enter_context(_client(connection, server, batch_size))
            wait_for(client, wait)
            language = target_language
            if document is not None and not language:
                language = _language_of(client.models(), model, source_language)
            translate_all = partial(client.translate_all, options=search, model=model, timeout_s=timeout, **wanted)
        if document is not None:
            num_failed = translate_document(document, document_format, output, report, language, translate_all)
        else:
            render = as_json_line if as_json else scored if has_scores else plain
            num_failed = _print_lines(translated_lines(source, translate_all), render)
    if num_failed:
        raise typer.Exit(EXIT_SOME_FAILED)


def _source(stack: ExitStack, texts: list[str], file: Path | BinaryIO | None) -> tuple[Iterator[Line], bool]:
    """Return the lines to translate, and whether somebody types them; without texts, those of the file."""
    if texts or file is None:
        return from_texts(texts), False
    stream = stack.enter_context(file.open("rb")) if isinstance(file, Path) else file
    return from_bytes(stream, "standard input" if file is stream else str(file)), stream.isatty()


def _client(connection: Connection, server: str | None, batch_size: int | None) -> Client:
    config = connection.client_config()
    if batch_size is not None:
        max_calls = 1 if batch_size == 1 else config.max_calls  # 1: answered before the next line is read
        config = replace(config, batch_size=batch_size, max_calls=max_calls)
    return Client(server_address(server), config)


def _language_of(models: Sequence[ModelInfo], model: str | None, source: str) -> str:
    """Return the language of the translations; empty where the server would translate through a third one."""
    try:
        return models[index_of(models, model=model, source_language=source, target_language="")].target_language
    except NotFound:
        return ""


def _translate_here(
    translator: LocalTranslator, options: TranslateOptions, wanted: dict[str, Any], texts: Iterable[str], **more: Any
) -> Iterator[Translation]:
    return translator.translate_all(texts, options, request=TranslationRequest(**wanted, **more))


def _print_lines(lines: Iterable[tuple[Line, Translation]], render: Callable[[Line, Translation], str]) -> int:
    """Print what became of each line, and return how many failed."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="strict")
    num_failed = 0
    for line, translation in lines:
        num_failed += translation.error is not None
        _print_remarks(line.number, translation)
        print(render(line, translation), flush=True)  # flushed: the next program of a pipe sees each line at once
    return num_failed


def _print_remarks(number: int, translation: Translation) -> None:
    """Print why a text failed, or what the server noticed in its translation; its place in a call says nothing here."""
    error = translation.error
    remarks = [f"{warning.kind.value}: {warning.message}" for warning in translation.warnings]
    if error is not None:
        remarks = [error.about("the text") if isinstance(error, InvalidInput) else str(error)]
    for remark in remarks:
        typer.echo(f"dragoman: line {number}: {remark}", err=True)


def from_texts(texts: Iterable[str]) -> Iterator[Line]:
    """Number the texts of the command line; bytes that were no UTF-8 arrive there as lone surrogates."""
    for number, text in enumerate(texts, start=1):
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            yield Line(number, "", _not_text(error.start))
        else:
            yield Line(number, text)


def from_bytes(stream: BinaryIO, name: str) -> Iterator[Line]:
    """Yield the lines of a UTF-8 stream without their ends; a line is read when it is asked for.

    Raises:
        OSError: it cannot be read; `filename` is `name`.
    """
    try:
        for number, raw in enumerate(stream, start=1):
            try:
                yield Line(number, text_of_line(raw, is_first=number == 1))
            except UnicodeDecodeError as error:
                yield Line(number, "", _not_text(error.start))
    except OSError as error:  # of a directory, say
        raise OSError(error.errno, error.strerror, name) from error


def plain(line: Line, translation: Translation) -> str:
    """Return the best translation, on one line unless the text has line feeds itself; empty if the text failed."""
    if translation.error:
        return ""
    return translation.text if "\n" in line.text else on_one_line(translation.text)


def scored(line: Line, translation: Translation) -> str:
    """Return all hypotheses, best first, one a line: line number, score, text, with tabs between them."""
    if translation.error:
        return f"{line.number}\t\t"
    rows = [f"{line.number}\t{item.score:.4f}\t{on_one_line(item.text)}" for item in translation.hypotheses]
    return "\n".join(rows) or f"{line.number}\t\t"


def as_json_line(line: Line, translation: Translation) -> str:
    """Return one JSON object: source, hypotheses (none with an error) with all their facts, tokens, warnings, error."""
    error = translation.error
    return json.dumps(
        {
            "line": line.number,
            "source": line.text,
            "hypotheses": [] if error else [asdict(item) for item in translation.hypotheses],
            "source_tokens": translation.source_tokens,
            "warnings": [{"kind": one.kind.value, "message": one.message} for one in translation.warnings],
            "error": None if error is None else {"kind": type(error).__name__, "message": str(error)},
        },
        ensure_ascii=False,
    )


def translated_lines(lines: Iterable[Line], translate: TranslateAll) -> Iterator[tuple[Line, Translation]]:
    """Yield each line with its translation; one that is no text is sent as a blank one, which costs nothing."""
    waiting = deque[Line]()  # given to the translator, not yet translated; in order

    def texts() -> Iterator[str]:
        for line in lines:
            waiting.append(line)
            yield line.text

    for translation in translate(texts()):
        line = waiting.popleft()
        yield line, translation if line.error is None else Translation(error=line.error)


def _not_text(position: int) -> InvalidInput:
    return InvalidInput(f"the text is not valid UTF-8 at byte {position}", field="text")


def translate_document(
    file: Path,
    format_name: str,
    output: Path | None,
    report: Path | None,
    language: str,
    translate: Callable[..., Iterator[Translation]],
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
    from rich.console import Console
    from rich.progress import track

    for written_to in filter(None, (output, report)):
        require_writable(written_to)
    document_format = format_of(file) if format_name == AUTO else _format_named(format_name)
    content = file.read_bytes()
    try:
        draft = read_file(content, document_format, language)
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from error
    translated = (
        translation
        for text_format, units in groupby(draft.units, key=lambda unit: unit.format)
        for translation in translate([unit.text for unit in units], format=text_format)
    )
    screen = Console(stderr=True)
    translations = list(
        track(
            translated, "translating", len(draft.units), console=screen, transient=True, disable=not screen.is_terminal
        )
    )
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
    if lines:
        screen.print(_table_of(lines))
    return _print_failures(draft.units, translations)


def _format_named(name: str) -> DocumentFormat:
    try:
        return DocumentFormat(name)
    except ValueError as error:
        raise ValueError(f"--format is {name!r}, there are {AUTO}, {', '.join(DocumentFormat)}") from error


def _table_of(report: Sequence[ReportLine]) -> "Table":
    """Return a table of what went wrong: kind, number, first place."""
    from rich.table import Table

    table = Table("warning", "count", "first in line", box=None, pad_edge=False)
    for kind, count in Counter(line["kind"] for line in report).most_common():
        first = next(line for line in report if line["kind"] == kind)
        table.add_row(kind.replace("_", " "), str(count), place_of(first))
    return table


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
