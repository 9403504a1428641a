"""`dragoman models`: what a server, or a bundle, translates with; `models add` imports one for it."""

import asyncio
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from model.bundle import Bundle
from service.child_process import bound
from service.cli.options import (
    READY_WITHIN_S,
    AsJson,
    BundleDir,
    Connection,
    Server,
    Wait,
    bundle_dir,
    examples,
    require_bundle_options,
    server_address,
    wait_for,
    with_options,
)
from service.cli.output import EXIT_USAGE, reported
from service.client import Client
from service.config import EngineConfig, ServerConfig, TelemetryConfig
from service.errors import FailedPrecondition
from service.models.info import describe
from service.records import ModelInfo

app = typer.Typer(name="models", invoke_without_command=True, add_completion=False, rich_markup_mode=None)

_RELOAD_WITHIN_S = 600.0


@app.callback(epilog=examples("dragoman models", "dragoman models --server translate.example:50051 --json"))
@reported()
@with_options
def models(
    *,
    context: typer.Context,
    server: Server = None,
    connection: Connection,
    bundle: BundleDir = None,
    wait: Wait = READY_WITHIN_S,
    as_json: AsJson = False,
) -> None:
    """List the models of a server, describe a bundle, or add a model to a repository."""
    if context.invoked_subcommand is not None:
        return
    directory = bundle_dir(bundle)
    require_bundle_options(directory, server=server)
    if directory is not None:
        infos = [describe(Bundle.load(directory))]
    else:
        with Client(server_address(server), connection.client_config()) as client:
            wait_for(client, wait)
            infos = client.models()
    if as_json:
        typer.echo(json.dumps([asdict(info) for info in infos], indent=2))
        return
    rows = [("MODEL", "VERSION", "FROM", "TO", "PRECISION", "DEVICE", "RUNTIME", "BEAM")]
    for info in infos:
        languages = (_shown(info.source_languages), _shown(info.target_languages))
        beam = str(info.default_options.beam_size)
        rows.append((info.name, info.version, *languages, info.precision, info.device, _runtime(info), beam))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    for info in infos:
        if info.runtime == "onnxruntime" and info.runtime_detail:
            typer.echo(f"{info.name} runs in ONNX Runtime: {info.runtime_detail}")


@app.command(
    short_help="Import a model into a repository.",
    epilog=examples(
        "dragoman models add opus-mt-en-mg --models ./models",
        "dragoman models add translate-en_de-1_0.argosmodel --models ./models",
        "dragoman models add my-ct2-model --models ./models --source-language en --target-language de --version 2",
    ),
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)
@reported()
@with_options
def add(
    *,
    context: typer.Context,
    source: Annotated[Path, typer.Argument(help="Directory of the foreign model, or an Argos package.")],
    repository: Annotated[
        Path,
        typer.Option("--models", metavar="DIR", envvar="DRAGOMAN_MODELS__DIRECTORY", help="The server's repository."),
    ],
    server: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", envvar="DRAGOMAN_ADMIN_SERVER", help="Admin host:port of a server to reload."),
    ] = None,
    connection: Connection,
) -> None:
    """Import a model, let an engine translate with it, and put it into a repository.

    Takes every option of `python -m export import` too, such as --name, --version, --source-language and --calibration.
    """
    if any(find_spec(name) is None for name in ("torch", "onnx", "export")):
        raise ValueError("an import needs PyTorch, which is not installed: pip install '.[cpu,export]' from a checkout")
    if not source.exists():
        raise ValueError(f"{source} does not exist: give the directory of a model, or an .argosmodel file")
    repository.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".add-", dir=repository) as drafts:
        draft = Path(drafts) / "bundle"
        words = ["export", "import", str(source), str(draft), *context.args]
        code = f"import runpy, sys; sys.argv = {words!r}; runpy.run_module('export', run_name='__main__')"
        if subprocess.run([sys.executable, "-c", bound(code)], check=False).returncode != 0:
            raise typer.Exit(EXIT_USAGE)  # it has said why
        manifest = Bundle.load(draft).manifest
        target = repository / manifest.name / manifest.version
        if target.exists():
            raise FailedPrecondition(f"{target} exists: give another --version or --name")
        asyncio.run(_try(draft))
        target.parent.mkdir(exist_ok=True)
        draft.rename(target)
    typer.echo(f"{target}: imported, and translates")
    if server is None:
        typer.echo("A server that runs finds it after `dragoman reload`, or with models.watch.")
        return
    from service.cli.operate import AdminClient

    with AdminClient(server, connection.client_config()) as client:
        for change in client.reload_models(manifest.name, _RELOAD_WITHIN_S).changes:
            typer.echo(f"{change.name} {change.version}: {change.result}")


async def _try(bundle: Path) -> None:
    """Load a bundle as a server does, self-test included; raise what the server would say."""
    from service.server.model_hosting import ModelParts
    from service.telemetry.logs import configure_logging

    configure_logging(TelemetryConfig(log_level="warning"))
    parts = ModelParts(ServerConfig(engine=EngineConfig(bundle=bundle, num_engines=1)))
    try:
        await parts.reloader.prepare()
        await parts.reloader.load()
    finally:
        await parts.close()


def _runtime(info: ModelInfo) -> str:
    return f"{info.runtime} {info.runtime_detail}" if info.runtime == "native" else info.runtime


def _shown(languages: Sequence[str]) -> str:
    return languages[0] if len(languages) == 1 else f"{len(languages)} languages"
