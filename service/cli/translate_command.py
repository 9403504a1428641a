"""`dragoman translate`: its options, and what it prints of a text that failed."""

import re
from pathlib import Path
from typing import Annotated

import typer

from service.cli.connection import ApiKeyFile, Ca, Cert, Connection, Key, Tls
from service.cli.options import READY_WITHIN_S, BundleDir, Precision, Server, Wait, bundle_dir, examples
from service.cli.reporting import EXIT_SOME_FAILED, reported
from service.errors import DragomanError
from service.records import TranslateOptions

EPILOG = examples(
    'dragoman translate "The cat sleeps." "It rains."',
    "dragoman translate --from en --to de < english.txt > german.txt",
    "dragoman translate --bundle default --file english.txt --beam-size 1",
    'dragoman translate --json --num-hypotheses 3 "The cat sleeps."',
)


def translate(
    texts: Annotated[list[str] | None, typer.Argument(help="Texts; without any, lines are read.")] = None,
    file: Annotated[Path | None, typer.Option("--file", "-f", help="Read lines from here, not standard input.")] = None,
    server: Server = None,
    tls: Tls = False,
    ca: Ca = None,
    cert: Cert = None,
    key: Key = None,
    api_key_file: ApiKeyFile = None,
    bundle: BundleDir = None,
    precision: Precision = None,
    threads: Annotated[int | None, typer.Option(min=1, help="With --bundle.  [default: allowed CPUs]")] = None,
    source_language: Annotated[str, typer.Option("--from", help="BCP 47; empty for the model's.")] = "",
    target_language: Annotated[str, typer.Option("--to", help="BCP 47; empty for the model's.")] = "",
    model: Annotated[str | None, typer.Option(help="Name as `dragoman models` shows it.")] = None,
    beam_size: Annotated[int | None, typer.Option("--beam-size", "-b", help="1 is greedy search.")] = None,
    num_hypotheses: Annotated[int | None, typer.Option("--num-hypotheses", "-n", help="Translations per text.")] = None,
    length_penalty: Annotated[float | None, typer.Option(help="0 prefers short translations.")] = None,
    patience: Annotated[float | None, typer.Option(help="More than 1 searches longer.")] = None,
    max_target_tokens: Annotated[int | None, typer.Option(help="Longest translation in tokens.")] = None,
    shortlist: Annotated[
        bool | None, typer.Option("--shortlist", help="Only target tokens that the model's shortlist names: faster.")
    ] = None,
    timeout: Annotated[float | None, typer.Option(metavar="SECONDS", help="Deadline of a call.  [default: 60]")] = None,
    wait: Wait = READY_WITHIN_S,
    batch_size: Annotated[
        int | None,
        typer.Option(min=1, help="Texts per call, or read ahead with --bundle; 1 answers each line before the next."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line, with scores.")] = False,
    progress: Annotated[bool | None, typer.Option(help="Progress bar.  [default: where it disturbs nothing]")] = None,
) -> None:
    """Translate texts, one translation a line, in their order; a blank line stays a blank line.

    With --num-hypotheses above 1 a line is: number of the source line, score, text, with tabs between them.

    Exit code 0: all done; 1: some texts failed, and their lines are empty; 2: wrong usage, or a wrong API key; 3: no
    answer.
    """
    with reported():
        from service.cli.translation_run import TranslateCommand, run

        command = TranslateCommand(
            texts=tuple(texts or ()),
            file=file,
            server=server,
            connection=Connection(tls=tls, ca=ca, cert=cert, key=key, api_key_file=api_key_file),
            bundle=bundle_dir(bundle),
            precision=precision,
            threads=threads,
            source_language=source_language,
            target_language=target_language,
            model=model,
            options=TranslateOptions(
                beam_size=beam_size,
                num_hypotheses=num_hypotheses,
                length_penalty=length_penalty,
                patience=patience,
                max_target_tokens=max_target_tokens,
                use_shortlist=shortlist,
            ),
            timeout_s=timeout,
            wait_s=wait,
            batch_size=batch_size,
            is_json=as_json,
            shows_progress=progress,
        )
        num_failed = run(command, _report_line)
    if num_failed:
        raise typer.Exit(EXIT_SOME_FAILED)


def _report_line(number: int, error: DragomanError) -> None:
    """One failed text; the server counts texts per call, which says nothing here."""
    message = re.sub(r"^texts\[\d+\] ", "the text ", str(error))
    typer.echo(f"dragoman: line {number}: {message}", err=True)
