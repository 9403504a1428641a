"""`dragoman serve`: its flags, each of which is a setting."""

import json
import os
import signal
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from service.cli.options import BundleDir, ConfigFile, Precision, bundle_dir, examples
from service.cli.reporting import reported

if TYPE_CHECKING:
    from service.config import ServerConfig

EPILOG = examples(
    "dragoman serve",
    "dragoman serve --bundle ./my-model --port 50052 --engines 2 --threads 1",
    "dragoman serve --config dragoman.toml --set limits.max_texts=64",
    "DRAGOMAN_LISTEN__GRPC_HOST=0.0.0.0 dragoman serve --print-config",
)


def serve(
    config: ConfigFile = None,
    bundle: BundleDir = None,
    precision: Precision = None,
    models: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Serve a repository of bundles, NAME/VERSION.")
    ] = None,
    watch_models: Annotated[bool | None, typer.Option(help="Load what changes in it.  [default: off]")] = None,
    models_public_key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Ed25519, PEM: load only bundles that are signed with it.")
    ] = None,
    host: Annotated[str | None, typer.Option(help="Address of the gRPC port.  [default: 127.0.0.1]")] = None,
    port: Annotated[int | None, typer.Option(help="gRPC port, 0 for any.  [default: 50051]")] = None,
    http_host: Annotated[str | None, typer.Option(help="Address of the HTTP port.  [default: 127.0.0.1]")] = None,
    http_port: Annotated[int | None, typer.Option(help="/metrics /healthz /readyz.  [default: 8080]")] = None,
    http: Annotated[bool | None, typer.Option(help="Whether there is an HTTP port.  [default: on]")] = None,
    admin_host: Annotated[str | None, typer.Option(help="Address of the admin port.  [default: 127.0.0.1]")] = None,
    admin_port: Annotated[int | None, typer.Option(help="For `dragoman status`; 0 for any.  [default: none]")] = None,
    engines: Annotated[
        int | None, typer.Option(help="Processes of each model.  [default: allowed CPUs, 16 at most]")
    ] = None,
    threads: Annotated[int | None, typer.Option(help="Threads per engine.  [default: allowed CPUs / engines]")] = None,
    max_rows: Annotated[int | None, typer.Option(help="Live hypotheses per engine.")] = None,
    max_texts: Annotated[int | None, typer.Option(help="Texts per request.  [default: 256]")] = None,
    max_characters: Annotated[int | None, typer.Option(help="Characters per text.  [default: 10000]")] = None,
    max_beam_size: Annotated[int | None, typer.Option(help="Largest beam.  [default: 16]")] = None,
    max_concurrent_requests: Annotated[int | None, typer.Option(help="Calls in flight.  [default: 1024]")] = None,
    max_queued_tokens: Annotated[int | None, typer.Option(help="Accepted source tokens.  [default: 262144]")] = None,
    max_queue_seconds: Annotated[float | None, typer.Option(help="Of work ahead of a call.  [default: 30]")] = None,
    max_request_seconds: Annotated[float | None, typer.Option(help="Longest call.  [default: 60]")] = None,
    reflection: Annotated[bool | None, typer.Option(help="gRPC server reflection.  [default: on]")] = None,
    tls_certificate: Annotated[
        Path | None, typer.Option(metavar="FILE", help="PEM chain; with --tls-key: TLS.")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(metavar="FILE", help="PEM, of the certificate.")] = None,
    tls_client_ca: Annotated[
        Path | None, typer.Option(metavar="FILE", help="PEM; clients must show a certificate that it signed.")
    ] = None,
    api_keys: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Only callers with a key in it may call.")
    ] = None,
    drain_delay: Annotated[float | None, typer.Option(help="Seconds not ready but accepting.  [default: 0]")] = None,
    grace: Annotated[float | None, typer.Option(help="Seconds for calls to finish at the end.  [default: 30]")] = None,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error.  [default: info]")] = None,
    log_format: Annotated[str | None, typer.Option(help="auto, console or json.  [default: auto]")] = None,
    slow_request: Annotated[
        str | None, typer.Option(metavar="SECONDS", help="Longer calls are logged; or never.  [default: 5]")
    ] = None,
    otlp_endpoint: Annotated[
        str | None, typer.Option(metavar="URL", help="OpenTelemetry traces go there; needs the extra `otel`.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="GROUP.NAME=VALUE", help="Any setting; may be repeated.")
    ] = None,
    check_config: Annotated[bool, typer.Option(help="Check the settings, print them as JSON and stop.")] = False,
    print_config: Annotated[bool, typer.Option(help="Print the settings as TOML, where from, and stop.")] = False,
    demo: Annotated[str | None, typer.Option(metavar="TEXT", help="Once serving, translate this and print it.")] = None,
) -> None:
    """Serve the included models, or others, over gRPC until Ctrl-C or SIGTERM; calls under way are then finished."""
    with suppress(ValueError):  # not in the main thread, where no server runs
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # a wish to reload ends no server that is only starting
    with reported():
        from service.cli.printed_config import as_toml
        from service.config import load_config, setting_sources

        flags = {
            "engine.bundle": bundle_dir(bundle),
            "engine.precision": precision,
            "engine.num_engines": engines,
            "engine.threads": threads,
            "engine.max_rows": max_rows,
            "models.directory": models,
            "models.watch": watch_models,
            "models.public_key": models_public_key,
            "listen.grpc_host": host,
            "listen.grpc_port": port,
            "listen.http_host": http_host,
            "listen.http_port": http_port,
            "listen.http": http,
            "listen.admin_host": admin_host,
            "listen.admin_port": admin_port,
            "listen.reflection": reflection,
            "limits.max_texts": max_texts,
            "limits.max_characters": max_characters,
            "limits.max_beam_size": max_beam_size,
            "limits.max_concurrent_requests": max_concurrent_requests,
            "limits.max_queued_tokens": max_queued_tokens,
            "limits.max_queue_seconds": max_queue_seconds,
            "limits.max_request_seconds": max_request_seconds,
            "security.tls_certificate": tls_certificate,
            "security.tls_key": tls_key,
            "security.tls_client_ca": tls_client_ca,
            "security.api_keys": api_keys,
            "lifecycle.drain_delay_s": drain_delay,
            "lifecycle.grace_s": grace,
            "telemetry.log_level": log_level,
            "telemetry.log_format": log_format,
            "telemetry.slow_request_s": slow_request,
            "telemetry.otlp_endpoint": otlp_endpoint,
        }
        given = _parse_settings(settings or []) | {name: value for name, value in flags.items() if value is not None}
        server_config = load_config(config, given)
        if print_config:
            typer.echo(as_toml(server_config, setting_sources(config, given)))
            return
        if check_config:
            preflight(server_config)
            typer.echo(json.dumps(asdict(server_config), indent=2, default=str))
            return
        # Engines are spawned, not forked; gRPC would write a line of its own among the log's whenever one starts.
        os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")  # it looks when it is loaded

        import asyncio

        import uvloop

        from service.cli.demo import demonstration
        from service.server.lifecycle import serve as serve_until_stopped

        with demonstration(demo, server_config), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            exit_code = runner.run(serve_until_stopped(server_config))
    raise typer.Exit(exit_code)


def preflight(config: "ServerConfig") -> None:
    """Check what can be checked without starting: models, certificates, keys.

    Raises:
        ValueError: the first thing that is wrong, in one line.
    """
    from service.server.preflight import check

    problems = check(config)
    if problems:
        raise ValueError(problems[0])


def _parse_settings(pairs: Iterable[str]) -> dict[str, object]:
    """`["limits.max_texts=64"]` -> `{"limits.max_texts": "64"}`."""
    settings: dict[str, object] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or "." not in name:
            raise ValueError(f"--set {pair} is not understood: write GROUP.NAME=VALUE, like limits.max_texts=64")
        settings[name] = value
    return settings
