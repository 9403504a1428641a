"""`dragoman serve`: eight flags for what is set most often, `--set` for every other setting."""

import json
import os
import signal
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, fields
from itertools import chain
from pathlib import Path
from threading import Thread
from typing import Annotated

import typer

from service.cli.options import BundleDir, ConfigFile, bundle_dir, ranged, with_examples
from service.config import NEVER, ServerConfig, load_config, may_be_never, setting_sources
from service.ranges import ANY_PORT, ENGINES

# The setting of each flag; the page of settings reads this table, too.
FLAGS = {
    "bundle": "engine.bundle",
    "models": "models.directory",
    "engines": "engine.num_engines",
    "host": "listen.grpc_host",
    "port": "listen.grpc_port",
    "http_port": "listen.http_port",
    "admin_port": "listen.admin_port",
}


@with_examples(
    "dragoman serve",
    "dragoman serve --bundle ./my-model --port 50052 --engines 2 --set engine.threads=1",
    "dragoman serve --config dragoman.toml --set limits.max_texts=64",
    "DRAGOMAN_LISTEN__GRPC_HOST=0.0.0.0 dragoman serve --print-config",
)
def serve(
    config: ConfigFile = None,
    bundle: BundleDir = None,
    models: Annotated[Path | None, typer.Option(metavar="DIR", help="Serve the bundles at DIR/NAME/VERSION/.")] = None,
    engines: Annotated[
        int | None, ranged(ENGINES, help="Engine processes of each model.  [default: one for each CPU]")
    ] = None,
    host: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Of the gRPC port; 0.0.0.0: all.  [default: 127.0.0.1]")
    ] = None,
    port: Annotated[int | None, ranged(ANY_PORT, help="gRPC port, 0 for any.  [default: 50051]")] = None,
    http_port: Annotated[
        int | None, ranged(ANY_PORT, help="Port of the console, HTTP APIs and /metrics, 0 for any.  [default: 8080]")
    ] = None,
    admin_port: Annotated[
        int | None, ranged(ANY_PORT, help="For `dragoman status` and `reload`, 0 for any.  [default: none]")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="GROUP.NAME=VALUE", help="Any setting; may be repeated.")
    ] = None,
    check_config: Annotated[
        bool, typer.Option("--check-config", help="Check settings, models, keys; print the settings as JSON; stop.")
    ] = False,
    print_config: Annotated[
        bool, typer.Option("--print-config", help="Print the settings as TOML with their sources, and stop.")
    ] = False,
) -> None:
    """Serve the included models, or others, over gRPC and HTTP until Ctrl-C or SIGTERM, which lets calls finish.

    docs/configuration.md has every setting with its default; `--print-config` shows those in force.
    """
    flags: dict[str, object] = {"models": models, "engines": engines, "host": host, "port": port}
    flags |= {"http_port": http_port, "admin_port": admin_port}
    with suppress(ValueError):  # not in the main thread, where no server runs
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # a wish to reload ends no server that is only starting
    flags["bundle"] = bundle_dir(bundle)
    given = _parse_settings(settings or [])
    given |= {FLAGS[flag]: value for flag, value in flags.items() if value is not None}
    server_config = load_config(config, given)
    if print_config:
        typer.echo(_as_toml(server_config, setting_sources(config, given)))
        return
    if check_config:
        from service.server.checks import check_bundles, check_files

        for problem in chain(check_files(server_config), check_bundles(server_config)):
            raise ValueError(problem)
        typer.echo(json.dumps(asdict(server_config), indent=2, default=str))
        return
    # Engines are spawned, not forked; gRPC would write a line of its own among the log's whenever one starts.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")  # gRPC reads it when it is imported

    import asyncio

    import uvloop

    from service.server.process import leave_process_1, num_frontends
    from service.telemetry.logs import never_wait_for_stderr
    from service.text.languages import load_ahead

    never_wait_for_stderr()
    leave_process_1()
    if num_frontends(server_config) == 1:  # else each frontend has its own; meanwhile modules are imported
        Thread(target=load_ahead, name="languages", daemon=True).start()
    from service.server.main import serve as serve_until_stopped

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        exit_code = runner.run(serve_until_stopped(server_config))
    raise typer.Exit(exit_code)


def _as_toml(settings: ServerConfig, sources: Mapping[str, str]) -> str:
    """Return the settings as TOML that `--config` takes again, with the source of each value behind it.

    A setting without a value is `never`, or a comment, as TOML has no word for that.
    """
    lines = []
    for group in fields(settings):
        lines += ["", f"[{group.name}]"]
        values = getattr(settings, group.name)
        for item in fields(values):
            value = getattr(values, item.name)
            if value is None and may_be_never(group.name, item.name):
                value = NEVER
            # JSON's numbers, booleans and strings are TOML's too.
            literal = json.dumps(str(value) if isinstance(value, Path) else value, ensure_ascii=False)
            line = f"# {item.name} is not set" if value is None else f"{item.name} = {literal}"
            lines.append(f"{line:50}  # {sources[f'{group.name}.{item.name}']}")
    return "\n".join(lines[1:])


def _parse_settings(pairs: Iterable[str]) -> dict[str, object]:
    """`["limits.max_texts=64"]` -> `{"limits.max_texts": "64"}`."""
    settings: dict[str, object] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or "." not in name:
            raise ValueError(f"--set {pair} is not understood: write GROUP.NAME=VALUE, like limits.max_texts=64")
        settings[name] = value
    return settings
