"""`dragoman serve`: eight flags for what is set most often, `--set` for every other setting."""

import json
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Annotated

import typer

from service.cli.options import BundleDir, ConfigFile, bundle_dir, ranged, with_examples
from service.config import ServerConfig, load_config, setting_sources
from service.errors import DragomanError
from service.ranges import ANY_PORT, ENGINES

if TYPE_CHECKING:
    from service.client import AsyncClient, ClientConfig

DEMO_READY_WITHIN_S = 60.0  # the model has to load first
_EVERY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - where to call a server that listens everywhere

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
    models: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Serve a repository of bundles, NAME/VERSION.")
    ] = None,
    engines: Annotated[
        int | None, ranged(ENGINES, help="Engine processes of each model; one per CPU if not given.")
    ] = None,
    host: Annotated[str | None, typer.Option(help="Address of the gRPC port; this machine alone if not given.")] = None,
    port: Annotated[int | None, ranged(ANY_PORT, help="gRPC port, 0 for any.")] = None,
    http_port: Annotated[
        int | None, ranged(ANY_PORT, help="Port of /metrics, /healthz and /readyz, 0 for any.")
    ] = None,
    admin_port: Annotated[
        int | None, ranged(ANY_PORT, help="For `dragoman status`, 0 for any; none if not given.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="GROUP.NAME=VALUE", help="Any setting; may be repeated.")
    ] = None,
    check_config: Annotated[bool, typer.Option(help="Check the settings, print them as JSON and stop.")] = False,
    print_config: Annotated[bool, typer.Option(help="Print the settings as TOML, where from, and stop.")] = False,
    demo: Annotated[str | None, typer.Option(metavar="TEXT", help="Once serving, translate this and print it.")] = None,
) -> None:
    """Serve the included models, or others, over gRPC until Ctrl-C or SIGTERM; calls under way are then finished.

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
        from service.cli.settings_page import to_toml

        typer.echo(to_toml(server_config, setting_sources(config, given)))
        return
    if check_config:
        if problems := check_files(server_config):  # models, certificates, keys
            raise ValueError(problems[0])
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
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        exit_code = runner.run(_serve(server_config, demo))
    raise typer.Exit(exit_code)


def check_files(config: ServerConfig) -> list[str]:
    """Return what is wrong with the settings as far as files tell, one line each; starts no engine and binds no port.

    Of each model, the bundles are opened that a start would open.
    """
    from model.files import require_writable
    from service.api.auth import authenticator
    from service.api.grpc.server import server_tls
    from service.telemetry import load_traces
    from service.translate.glossaries import Glossaries

    checks: tuple[Callable[[], object], ...] = (
        lambda: server_tls(config.security),
        lambda: authenticator(config.security),
        lambda: load_traces(config.telemetry),
        lambda: Glossaries(config.models.glossaries, period_s=config.models.watch_period_s),
    )
    problems = list(_bad_models(config))
    for make in checks:  # as the server makes these parts
        try:
            make()
        except ValueError as error:  # ConfigError
            problems.append(str(error))
    ports_file = config.lifecycle.ports_file
    if ports_file is not None:
        try:
            require_writable(ports_file)
        except OSError as error:
            problems.append(f"lifecycle.ports_file {ports_file} cannot be written: {error.strerror}")
    return [" ".join(problem.split()) for problem in problems]


def _bad_models(config: ServerConfig) -> Iterator[str]:
    """Yield a problem for each name without a version that can serve: that of the newest version."""
    from service.models.repository import BundleChecker, bundle_source, check_until_good

    try:
        checker = BundleChecker(config)
        candidates = bundle_source(config)()
    except ValueError as error:
        yield str(error)
        return
    for found in candidates.values():
        checked = check_until_good(checker, found)
        newest = checked[found[0]]
        if isinstance(newest, Exception) and all(isinstance(one, Exception) for one in checked.values()):
            yield str(newest)


async def _serve(config: ServerConfig, demo: str | None) -> int:
    """Run the server and return its exit code; its first translation is that of `demo`, through its own gRPC port."""
    import asyncio

    from service.client import AsyncClient
    from service.server.main import serve as serve_until_stopped

    if demo is None:
        return await serve_until_stopped(config)
    # A client of the server's own loop: gRPC would wake a second one at every event of the server.
    async with AsyncClient(own_address(config), own_client_config(config)) as client:
        task = asyncio.create_task(_demonstrate(client, demo), name="demo")
        try:
            return await serve_until_stopped(config)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def _demonstrate(client: "AsyncClient", text: str) -> None:
    try:
        await client.wait_until_ready(DEMO_READY_WITHIN_S)
        (translation,) = (await client.translate([text])).translations
        print(f"\n  {text}\n  {translation.text}\n", flush=True)
        print(f'Serving at {client.address} until Ctrl-C. Elsewhere: dragoman translate "{text}"', flush=True)
    except DragomanError as error:
        advice = "the demonstration takes its API key and TLS from DRAGOMAN_API_KEY and DRAGOMAN_TLS_*"
        print(f"dragoman: no demonstration: {error}; {advice}", file=sys.stderr, flush=True)


def own_address(config: ServerConfig) -> str:
    """Return the address at which a client on this machine reaches the server; raises ValueError for port 0."""
    from service.addresses import Address

    host, port = config.listen.grpc_host, config.listen.grpc_port
    if port == 0:
        raise ValueError("--demo calls the gRPC port, which is 0, any free one: give a --port")
    return str(Address(_EVERY_ADDRESS.get(host, host), port))


def own_client_config(config: ServerConfig) -> "ClientConfig":
    """Return the client's settings: the environment's API key and TLS; the server's certificate is trusted."""
    from service.client import TlsOptions, config_from_environment

    known = config_from_environment()
    certificate = config.security.tls_certificate
    if certificate is None:
        return replace(known, tls=None)
    tls = known.tls or TlsOptions()
    return replace(known, tls=replace(tls, root_certificates=tls.root_certificates or certificate))


def _parse_settings(pairs: Iterable[str]) -> dict[str, object]:
    """`["limits.max_texts=64"]` -> `{"limits.max_texts": "64"}`."""
    settings: dict[str, object] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or "." not in name:
            raise ValueError(f"--set {pair} is not understood: write GROUP.NAME=VALUE, like limits.max_texts=64")
        settings[name] = value
    return settings
