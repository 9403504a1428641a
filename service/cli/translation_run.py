"""What `dragoman translate` does: lines in, a server or an engine in this process, lines out.

Knows no option parsing; raises, where `translate_command.py` prints and exits.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import BinaryIO

from service.cli.connection import Connection, server_address, wait_for
from service.cli.lines import Line, LineTranslation, as_json, from_bytes, from_texts, plain, scored
from service.cli.options import require_bundle_options
from service.errors import DragomanError
from service.records import TranslateAll, TranslateOptions, Translation

Render = Callable[[Line, Translation], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TranslateCommand:
    """Everything `dragoman translate` can be told."""

    texts: tuple[str, ...] = ()  # empty: lines are read
    file: Path | None = None  # None: standard input
    server: str | None = None  # None: the environment's, else the default address
    connection: Connection = field(default_factory=Connection)
    bundle: Path | None = None  # set: translate in this process
    precision: str | None = None
    threads: int | None = None
    source_language: str = ""
    target_language: str = ""
    model: str | None = None
    options: TranslateOptions = field(default_factory=TranslateOptions)
    timeout_s: float | None = None
    wait_s: float
    batch_size: int | None = None
    is_json: bool = False
    shows_progress: bool | None = None  # None: where it disturbs nothing

    def __post_init__(self) -> None:
        if self.texts and self.file is not None:
            raise ValueError("give texts or --file, not both")
        require_bundle_options(self.bundle, server=self.server, precision=self.precision, threads=self.threads)


def run(command: TranslateCommand, on_failure: Callable[[int, DragomanError], None]) -> int:
    """Translate and print; how many texts failed.

    Args:
        on_failure: told of each text that failed, with its line number.

    Raises:
        DragomanError: a call failed, or an option is out of range.
        ValueError, OSError: the bundle or the input cannot be used.
    """
    with ExitStack() as stack:
        stream = None if command.texts else stack.enter_context(_open_input(command.file))
        if stream is not None and stream.isatty() and command.batch_size is None:
            command = replace(command, batch_size=1)  # somebody types and wants each answer at once
        lines = LineTranslation(from_texts(command.texts) if stream is None else from_bytes(stream), _renderer(command))
        translate_all = stack.enter_context(_translator(command))
        advance = stack.enter_context(_progress(command))
        _use_utf8_output()
        for text in lines.rendered(translate_all(lines.texts()), on_failure):
            print(text, flush=True)  # flushed: the next program of a pipe sees each line when it is there
            advance()
    return lines.num_failed


@contextmanager
def _open_input(file: Path | None) -> Iterator[BinaryIO]:
    if file is None:
        yield sys.stdin.buffer
        return
    with file.open("rb") as stream:
        yield stream


def _renderer(command: TranslateCommand) -> Render:
    if command.is_json:
        return as_json
    return scored if (command.options.num_hypotheses or 1) > 1 else plain


@contextmanager
def _translator(command: TranslateCommand) -> Iterator[TranslateAll]:
    if command.bundle is not None:
        yield _open_local(command, command.bundle)
        return
    from service.client import Client

    config = command.connection.client_config()
    if command.batch_size is not None:
        max_calls = 1 if command.batch_size == 1 else config.max_calls  # 1: answered before the next line is read
        config = replace(config, batch_size=command.batch_size, max_calls=max_calls)
    with Client(server_address(command.server), config) as client:
        wait_for(client, command.wait_s)
        yield partial(
            client.translate_all,
            options=command.options,
            model=command.model,
            source_language=command.source_language,
            target_language=command.target_language,
            timeout_s=command.timeout_s,
        )


def _open_local(command: TranslateCommand, bundle: Path) -> TranslateAll:
    from service.local import DEFAULT_WINDOW, LocalTranslator

    translator = LocalTranslator.open(
        bundle,
        precision=command.precision,
        threads=command.threads,
        window=command.batch_size or DEFAULT_WINDOW,
    )
    translator.require(
        model=command.model, source_language=command.source_language, target_language=command.target_language
    )
    return partial(translator.translate_all, options=command.options)


@contextmanager
def _progress(command: TranslateCommand) -> Iterator[Callable[[], None]]:
    """A function to call for every line that is done.

    The bar is on standard error, and by default only if that is a terminal and the translations go elsewhere.
    """
    shows_progress = command.shows_progress
    if shows_progress is None:
        shows_progress = sys.stderr.isatty() and not sys.stdout.isatty()
    if not shows_progress:
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[rate]}"), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), redirect_stdout=False) as bar:
        task = bar.add_task("translating", total=_count(command), rate="")

        def advance() -> None:
            bar.advance(task)
            speed = bar.tasks[0].speed
            bar.update(task, rate="" if speed is None else f"{speed:.0f} lines/s")

        yield advance


def _count(command: TranslateCommand) -> int | None:
    """Lines to translate, None if that is known only at the end."""
    if command.file is None:
        return len(command.texts) or None
    try:
        if not command.file.is_file():
            return None
        with command.file.open("rb") as stream:
            return sum(1 for _ in stream)
    except OSError:
        return None


def _use_utf8_output() -> None:
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(encoding="utf-8", errors="strict")
