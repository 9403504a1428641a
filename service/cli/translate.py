"""`dragoman translate`: lines in, a server or an engine in this process, lines out."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer

from service.cli.document import AUTO, translate_document
from service.cli.lines import Line, as_json_line, from_bytes, from_texts, plain, scored, translated_lines
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
from service.documents.formats import DocumentFormat
from service.errors import InvalidInput, NotFound
from service.local import DEFAULT_WINDOW, LocalTranslator
from service.models.catalogue import index_of
from service.ranges import SECONDS, TEXTS, THREADS
from service.records import NO_OPTIONS, ModelInfo, TranslateAll, TranslateOptions, Translation, TranslationRequest


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
    progress: Annotated[bool | None, typer.Option(help="Progress bar.  [default: where it disturbs nothing]")] = None,
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
        if progress is None:
            progress = sys.stderr.isatty() and not (sys.stdout.isatty() and output is None)
        bar = _bar if progress else _no_bar
        if document is not None:
            num_failed = translate_document(document, document_format, output, report, language, translate_all, bar)
        else:
            render = as_json_line if as_json else scored if has_scores else plain
            advance = stack.enter_context(bar(_count(texts, file)))
            num_failed = _print_lines(translated_lines(source, translate_all), render, advance)
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


def _print_lines(
    lines: Iterable[tuple[Line, Translation]], render: Callable[[Line, Translation], str], advance: Callable[[], None]
) -> int:
    """Print what became of each line, and return how many failed."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="strict")
    num_failed = 0
    for line, translation in lines:
        num_failed += translation.error is not None
        _print_remarks(line.number, translation)
        print(render(line, translation), flush=True)  # flushed: the next program of a pipe sees each line at once
        advance()
    return num_failed


def _print_remarks(number: int, translation: Translation) -> None:
    """Print why a line failed, or what the server noticed in its translation; its place in a call says nothing here."""
    error = translation.error
    remarks = [f"{warning.kind.value}: {warning.message}" for warning in translation.warnings]
    if error is not None:
        remarks = [error.about("the text") if isinstance(error, InvalidInput) else str(error)]
    for remark in remarks:
        typer.echo(f"dragoman: line {number}: {remark}", err=True)


@contextmanager
def _bar(total: int | None) -> Iterator[Callable[[], None]]:
    """Show a progress bar on standard error; yields the function to call for every text that is done."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[rate]}"), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), redirect_stdout=False) as bar:
        task = bar.add_task("translating", total=total, rate="")

        def advance() -> None:
            bar.advance(task)
            speed = bar.tasks[0].speed
            bar.update(task, rate="" if speed is None else f"{speed:.0f}/s")

        yield advance


@contextmanager
def _no_bar(total: int | None) -> Iterator[Callable[[], None]]:
    del total
    yield lambda: None


def _count(texts: list[str] | None, file: Path | None) -> int | None:
    """Return the number of lines to translate, or None if only the end of the input tells."""
    if file is None:
        return len(texts) if texts else None
    if not file.is_file():  # a pipe: counting would read it
        return None
    with file.open("rb") as stream:
        return sum(1 for _ in stream)
