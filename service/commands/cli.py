"""The command line: `dragoman serve | translate | models | tune | doctor | version`.

Parses, calls, prints.  Every command imports what it needs when it runs, so that `--help` answers at once.

Exit codes:
    0    all went well
    1    translate: some texts failed, their lines are empty; doctor: a check failed; serve: it could not start or run
    2    a wrong option, setting, file or bundle; nothing was tried
    3    no answer: the server cannot be reached, is full, too late, or broken
    130  Ctrl-C
"""

import json
import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from service.errors import DragomanError, InvalidInput, NotFound
from service.translation import ModelInfo, TranslateOptions

EXIT_SOME_FAILED = 1
EXIT_USAGE = 2
EXIT_NO_ANSWER = 3
EXIT_INTERRUPTED = 130

_READY_WITHIN_S = 5.0  # how long `translate` and `models` wait for a server

app = typer.Typer(
    name="dragoman",
    help="Translate text with your own model: a gRPC server with continuous batching, and its client.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # the framed help cuts long option names; errors are one line without it
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)

Server = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS", help="Server's host:port.  [default: $DRAGOMAN_SERVER, else 127.0.0.1:50051]"),
]
BundleDir = Annotated[
    str | None,
    typer.Option(
        "--bundle", metavar="DIR", help="Model directory; 'default' is the English-German one that is included."
    ),
]
Precision = Annotated[str | None, typer.Option(help="int8 or fp32; the best the bundle has if not given.")]
Wait = Annotated[float, typer.Option(metavar="SECONDS", min=0.0, help="How long to wait for the server to be ready.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
ConfigFile = Annotated[Path | None, typer.Option("--config", metavar="FILE", help="Settings in TOML.")]


def _examples(*lines: str) -> str:
    """The end of a help page, one example a line."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


@app.command(
    epilog=_examples(
        "dragoman serve",
        "dragoman serve --bundle ./my-model --port 50052 --engines 2 --threads 1",
        "dragoman serve --config dragoman.toml --set limits.max_texts=64",
        "DRAGOMAN_LISTEN__GRPC_HOST=0.0.0.0 dragoman serve --check-config",
    )
)
def serve(
    config: ConfigFile = None,
    bundle: BundleDir = None,
    precision: Precision = None,
    host: Annotated[str | None, typer.Option(help="Address of the gRPC port.  [default: 127.0.0.1]")] = None,
    port: Annotated[int | None, typer.Option(help="gRPC port, 0 for any.  [default: 50051]")] = None,
    http_host: Annotated[str | None, typer.Option(help="Address of the HTTP port.  [default: 127.0.0.1]")] = None,
    http_port: Annotated[int | None, typer.Option(help="/metrics /healthz /readyz.  [default: 8080]")] = None,
    engines: Annotated[int | None, typer.Option(help="Engine processes.  [default: allowed CPUs, 16 at most]")] = None,
    threads: Annotated[int | None, typer.Option(help="Threads per engine.  [default: allowed CPUs / engines]")] = None,
    max_rows: Annotated[int | None, typer.Option(help="Live hypotheses per engine.")] = None,
    max_texts: Annotated[int | None, typer.Option(help="Texts per request.  [default: 256]")] = None,
    max_characters: Annotated[int | None, typer.Option(help="Characters per text.  [default: 10000]")] = None,
    max_beam_size: Annotated[int | None, typer.Option(help="Largest beam.  [default: 16]")] = None,
    max_concurrent_requests: Annotated[int | None, typer.Option(help="Calls in flight.  [default: 1024]")] = None,
    max_queued_tokens: Annotated[int | None, typer.Option(help="Accepted source tokens.  [default: 262144]")] = None,
    max_request_seconds: Annotated[float | None, typer.Option(help="Longest call.  [default: 60]")] = None,
    reflection: Annotated[bool | None, typer.Option(help="gRPC server reflection.  [default: on]")] = None,
    drain_delay: Annotated[float | None, typer.Option(help="Seconds not ready but accepting.  [default: 0]")] = None,
    grace: Annotated[float | None, typer.Option(help="Seconds for calls to finish at the end.  [default: 30]")] = None,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error.  [default: info]")] = None,
    log_format: Annotated[str | None, typer.Option(help="auto, console or json.  [default: auto]")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="GROUP.NAME=VALUE", help="Any setting; may be repeated.")
    ] = None,
    check_config: Annotated[bool, typer.Option(help="Print the settings as JSON and stop.")] = False,
    demo: Annotated[str | None, typer.Option(metavar="TEXT", help="Once serving, translate this and print it.")] = None,
) -> None:
    """Serve a model over gRPC until Ctrl-C or SIGTERM; calls under way are then finished."""
    with _reported():
        from service.config import load_config

        flags = {
            "engine.bundle": _bundle_dir(bundle),
            "engine.precision": precision,
            "engine.num_engines": engines,
            "engine.threads": threads,
            "engine.max_rows": max_rows,
            "listen.grpc_host": host,
            "listen.grpc_port": port,
            "listen.http_host": http_host,
            "listen.http_port": http_port,
            "listen.reflection": reflection,
            "limits.max_texts": max_texts,
            "limits.max_characters": max_characters,
            "limits.max_beam_size": max_beam_size,
            "limits.max_concurrent_requests": max_concurrent_requests,
            "limits.max_queued_tokens": max_queued_tokens,
            "limits.max_request_seconds": max_request_seconds,
            "lifecycle.drain_delay_s": drain_delay,
            "lifecycle.grace_s": grace,
            "telemetry.log_level": log_level,
            "telemetry.log_format": log_format,
        }
        given = {name: value for name, value in flags.items() if value is not None}
        server_config = load_config(config, _parse_settings(settings or []) | given)
        if check_config:
            typer.echo(json.dumps(asdict(server_config), indent=2, default=str))
            return
        import asyncio

        from service.commands.demo import demonstration
        from service.front.server import serve as serve_until_stopped

        listen = server_config.listen
        with demonstration(demo, listen.grpc_host, listen.grpc_port):
            exit_code = asyncio.run(serve_until_stopped(server_config))
    raise typer.Exit(exit_code)


@app.command(
    epilog=_examples(
        'dragoman translate "The cat sleeps." "It rains."',
        "dragoman translate < english.txt > german.txt",
        "dragoman translate --bundle default --file english.txt --beam-size 1",
        'dragoman translate --json --num-hypotheses 3 "The cat sleeps."',
    )
)
def translate(
    texts: Annotated[list[str] | None, typer.Argument(help="Texts; without any, lines are read.")] = None,
    file: Annotated[Path | None, typer.Option("--file", "-f", help="Read lines from here, not standard input.")] = None,
    server: Server = None,
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
    wait: Wait = _READY_WITHIN_S,
    batch_size: Annotated[
        int | None,
        typer.Option(min=1, help="Texts per call, or read ahead with --bundle; 1 answers each line before the next."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line, with scores.")] = False,
    progress: Annotated[bool | None, typer.Option(help="Progress bar.  [default: where it disturbs nothing]")] = None,
) -> None:
    """Translate texts, one translation a line, in their order; a blank line stays a blank line.

    With --num-hypotheses above 1 a line is: number of the source line, score, text, with tabs between them.

    Exit code 0: all done; 1: some texts failed, and their lines are empty; 2: wrong usage; 3: no answer.
    """
    with _reported():
        from service.commands.translate_command import TranslateCommand, run

        command = TranslateCommand(
            texts=tuple(texts or ()),
            file=file,
            server=server,
            bundle=_bundle_dir(bundle),
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


@app.command(epilog=_examples("dragoman models", "dragoman models --server translate.example:50051 --json"))
def models(
    server: Server = None, bundle: BundleDir = None, wait: Wait = _READY_WITHIN_S, as_json: AsJson = False
) -> None:
    """List the models of a server, or describe a bundle."""
    with _reported():
        infos = _list_models(server, _bundle_dir(bundle), wait)
    if as_json:
        typer.echo(json.dumps([asdict(info) for info in infos], indent=2))
    else:
        _print_models(infos)


@app.command(
    epilog=_examples(
        "dragoman tune",
        "dragoman tune --bundle ./my-model --texts sentences.en --seconds 180",
        "dragoman tune --prefer latency --output laptop.toml --force",
        "dragoman serve --config dragoman.toml",
    )
)
def tune(
    bundle: BundleDir = None,
    precision: Precision = None,
    texts: Annotated[Path | None, typer.Option(metavar="FILE", help="Sentences to measure with, one a line.")] = None,
    beam_size: Annotated[int | None, typer.Option("--beam-size", "-b", min=1, help="The model's if not given.")] = None,
    seconds: Annotated[float, typer.Option(min=1.0, help="Longest time it may take.")] = 60.0,
    prefer: Annotated[str, typer.Option(metavar="WHAT", help="balance, latency or throughput.")] = "balance",
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE")] = Path("dragoman.toml"),
    force: Annotated[bool, typer.Option("--force", help="Replace the output if it exists.")] = False,
    progress: Annotated[bool | None, typer.Option(help="Progress bar.  [default: on a terminal]")] = None,
) -> None:
    """Measure how many engines, threads and rows suit this machine, and write a configuration for `dragoman serve`.

    Takes the CPUs it may use for itself while it runs; other work beside it disturbs the figures.

    balance: the highest throughput of the settings that answer a single sentence at most 1.5 x later than the best.
    """
    with _reported():
        from service.commands.tune_command import TuneCommand, run
        from service.config import load_config

        flags = {"engine.bundle": _bundle_dir(bundle), "engine.precision": precision}
        run(
            TuneCommand(
                config=load_config(None, flags),
                texts=texts,
                beam_size=beam_size,
                seconds=seconds,
                prefer=prefer,
                output=output,
                is_forced=force,
                shows_progress=progress,
            )
        )


@app.command(epilog=_examples("dragoman doctor", "dragoman doctor --bundle ./my-model --port 50052 --json"))
def doctor(
    config: ConfigFile = None,
    bundle: BundleDir = None,
    precision: Precision = None,
    port: Annotated[int | None, typer.Option(help="gRPC port to look at.  [default: 50051]")] = None,
    http_port: Annotated[int | None, typer.Option(help="HTTP port to look at.  [default: 8080]")] = None,
    as_json: AsJson = False,
) -> None:
    """Check whether this machine can serve: runtime, CPU, threads, ports, model.

    Exit code 0 if nothing failed; warnings do not fail.
    """
    with _reported():
        from service.commands.doctor import Level, Target, examine
        from service.config import load_config

        settings = load_config(
            config,
            {
                "engine.bundle": _bundle_dir(bundle),
                "engine.precision": precision,
                "listen.grpc_port": port,
                "listen.http_port": http_port,
            },
        )
        target = Target(
            bundle=settings.engine.bundle,
            precision=settings.engine.precision,
            grpc=(settings.listen.grpc_host, settings.listen.grpc_port),
            http=(settings.listen.http_host, settings.listen.http_port),
        )
        findings = []
        for finding in examine(target):
            findings.append(finding)
            if not as_json:
                color = {Level.PASS: "green", Level.WARN: "yellow", Level.FAIL: "red"}[finding.level]
                typer.echo(f"{typer.style(finding.level.upper(), fg=color)}  {finding.subject}: {finding.detail}")
    if as_json:
        typer.echo(json.dumps([asdict(finding) for finding in findings], indent=2))
    if any(finding.level is Level.FAIL for finding in findings):
        raise typer.Exit(EXIT_SOME_FAILED)


@app.command(epilog=_examples("dragoman health", "dragoman health --server translate.example:50051"))
def health(
    server: Server = None, timeout: Annotated[float, typer.Option(metavar="SECONDS", help="For the answer.")] = 3.0
) -> None:
    """Ask a server whether it serves; exit code 0 if it does, 1 if not."""
    from service.commands.health_command import check
    from service.commands.translate_command import server_address

    problem = check(server_address(server), timeout)
    if problem:
        _fail(problem, EXIT_SOME_FAILED)


@app.command()
def version() -> None:
    """Print the versions of Dragoman, Python and the libraries that matter."""
    import platform
    from importlib import metadata

    typer.echo(f"dragoman {metadata.version('dragoman')}")
    typer.echo(f"python {platform.python_version()} ({platform.machine()})")
    for name in ("onnxruntime", "onnxruntime-gpu", "grpcio", "protobuf", "sentencepiece", "numpy"):
        try:
            typer.echo(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue


@contextmanager
def _reported() -> Iterator[None]:
    """Turn what went wrong into one line on standard error and an exit code."""
    try:
        yield
    except (InvalidInput, NotFound, ValueError) as error:  # ValueError: settings and bundles
        _fail(str(error), EXIT_USAGE)
    except DragomanError as error:
        _fail(str(error), EXIT_NO_ANSWER)
    except BrokenPipeError:  # `dragoman translate | head`: nobody reads on
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123 - else Python complains about the flush at exit
        raise typer.Exit(EXIT_SOME_FAILED) from None
    except OSError as error:
        _fail(f"{error.filename}: {error.strerror}" if error.filename else str(error), EXIT_USAGE)
    except KeyboardInterrupt:
        raise typer.Exit(EXIT_INTERRUPTED) from None


def _fail(message: str, code: int) -> NoReturn:
    typer.echo(f"dragoman: {message}", err=True)
    raise typer.Exit(code)


def _report_line(number: int, error: DragomanError) -> None:
    """One failed text; the server counts texts per call, which says nothing here."""
    message = re.sub(r"^texts\[\d+\] ", "the text ", str(error))
    typer.echo(f"dragoman: line {number}: {message}", err=True)


def _bundle_dir(name: str | None) -> Path | None:
    if name != "default":
        return None if name is None else Path(name)
    from model.bundle import default_bundle_dir

    return default_bundle_dir()


def _parse_settings(pairs: Iterable[str]) -> dict[str, object]:
    """`["limits.max_texts=64"]` -> `{"limits.max_texts": "64"}`."""
    settings: dict[str, object] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or "." not in name:
            raise ValueError(f"--set {pair} is not understood: write GROUP.NAME=VALUE, like limits.max_texts=64")
        settings[name] = value
    return settings


def _list_models(server: str | None, bundle: Path | None, wait_s: float) -> list[ModelInfo]:
    if bundle is not None:
        from model.bundle import Bundle
        from service.models.model_info import describe

        return [describe(Bundle.load(bundle))]
    from service.client import Client
    from service.commands.translate_command import server_address, wait_for

    with Client(server_address(server)) as client:
        wait_for(client, wait_s)
        return client.models()


def _print_models(infos: Iterable[ModelInfo]) -> None:
    rows = [("MODEL", "VERSION", "FROM", "TO", "PRECISION", "DEVICE", "BEAM")]
    for info in infos:
        languages = (info.source_language, info.target_language)
        beam = str(info.default_options.beam_size)
        rows.append((info.name, info.version, *languages, info.precision, info.device, beam))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
