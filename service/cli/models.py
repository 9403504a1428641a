"""`dragoman models`."""

import json
from dataclasses import asdict

import typer

from model.bundle import Bundle
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
    with_connection,
)
from service.client import Client
from service.registry.model_info import describe

EPILOG = examples("dragoman models", "dragoman models --server translate.example:50051 --json")


@with_connection
def models(
    connection: Connection,
    server: Server = None,
    bundle: BundleDir = None,
    wait: Wait = READY_WITHIN_S,
    as_json: AsJson = False,
) -> None:
    """List the models of a server, or describe a bundle."""
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
    rows = [("MODEL", "VERSION", "FROM", "TO", "PRECISION", "DEVICE", "BEAM")]
    for info in infos:
        languages = (info.source_language, info.target_language)
        beam = str(info.default_options.beam_size)
        rows.append((info.name, info.version, *languages, info.precision, info.device, beam))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
