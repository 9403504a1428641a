"""`dragoman doctor`: its options, and how findings are printed."""

import json
from dataclasses import asdict
from typing import Annotated

import typer

from service.cli.options import AsJson, BundleDir, ConfigFile, Precision, bundle_dir, examples
from service.cli.reporting import EXIT_SOME_FAILED, reported

EPILOG = examples("dragoman doctor", "dragoman doctor --bundle ./my-model --port 50052 --json")


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
    with reported():
        from service.cli.doctor import Level, Target, examine
        from service.config import load_config
        from service.registry.repository import bundle_source

        settings = load_config(
            config,
            {
                "engine.bundle": bundle_dir(bundle),
                "engine.precision": precision,
                "listen.grpc_port": port,
                "listen.http_port": http_port,
            },
        )
        listen = settings.listen
        admin = None if listen.admin_port is None else (listen.admin_host, listen.admin_port)
        target = Target(
            source=bundle_source(settings),
            precision=settings.engine.precision,
            grpc=(listen.grpc_host, listen.grpc_port),
            http=(listen.http_host, listen.http_port),
            admin=admin,
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
