"""`dragoman bulk`."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from service.cli.connection import ApiKeyFile, Ca, Cert, Connection, Key, Tls, server_address
from service.cli.options import BundleDir, Precision, Server, bundle_dir, examples, require_bundle_options
from service.cli.reporting import EXIT_SOME_FAILED, reported
from service.records import TranslateOptions

EPILOG = examples(
    "dragoman bulk english.txt german.txt",
    "dragoman bulk reviews.csv reviews.de.csv --column review",
    "dragoman bulk corpus.jsonl out.jsonl --column text --target text_de --bundle default",
    "dragoman bulk corpus.parquet out.parquet --engine ray --workers 8 --bundle ./my-model",
)


def bulk(
    source: Annotated[
        Path,
        typer.Argument(metavar="IN", help=".txt, .csv, .tsv (quotes are text), .jsonl, .parquet; others are lines."),
    ],
    output: Annotated[Path, typer.Argument(metavar="OUT", help="Same format as IN.")],
    column: Annotated[str | None, typer.Option(help="Column or field with the text.  [default: text]")] = None,
    target: Annotated[str, typer.Option(help="Column or field for the translation.")] = "translation",
    server: Server = None,
    tls: Tls = False,
    ca: Ca = None,
    cert: Cert = None,
    key: Key = None,
    api_key_file: ApiKeyFile = None,
    source_language: Annotated[str, typer.Option("--from", help="BCP 47; empty for the model's.")] = "",
    target_language: Annotated[str, typer.Option("--to", help="BCP 47; empty for the model's.")] = "",
    model: Annotated[str | None, typer.Option(help="Name as `dragoman models` shows it.")] = None,
    bundle: BundleDir = None,
    precision: Precision = None,
    beam_size: Annotated[int | None, typer.Option("--beam-size", "-b", help="1 is greedy search.")] = None,
    shortlist: Annotated[bool | None, typer.Option("--shortlist", help="Only likely target words: faster.")] = None,
    engine: Annotated[str, typer.Option(help="local, or ray for a cluster.")] = "local",
    ray_address: Annotated[str | None, typer.Option(help="Of a running cluster.  [default: this machine]")] = None,
    workers: Annotated[int, typer.Option(min=1, help="With --engine ray.")] = 2,
    part_size: Annotated[int, typer.Option(min=1, help="Records kept together; what a kill can cost.")] = 1000,
    max_outage: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            help="Of a server: seconds at a stretch without an answer, or any word of room, before the run ends; they "
            "count from the first call that fails. The start takes at most 30 of them.  [default: 300]",
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Begin again; an OUT that is there stays until the new one is whole.")
    ] = False,
) -> None:
    """Translate a file of any length; the same command goes on where a killed one stopped.

    The output appears when it is complete; until then its parts are in OUT.parts. Nothing is lost or doubled by a kill
    at any moment, and the result is the same as that of a run without one. A server lets other calls go first; the run
    waits for room as long as the server is alive, and says so.

    On a Ray cluster, files (IN, OUT, bundle, --ca, --api-key-file) must lie where all nodes see them.

    Exit code 0: all done; 1: some texts failed, and their translations are empty; 2: wrong usage, a file that cannot be
    used, or a wrong API key; 3: no answer, or another version of the model in mid-file: go on later.
    """
    with reported():
        from rich.console import Console

        from service.cli.bulk_run import Bulk, run

        directory = bundle_dir(bundle)
        require_bundle_options(directory, server=server, precision=precision)
        wanted = Bulk(
            source=source,
            output=output,
            column=column,
            target=target,
            server=None if directory else server_address(server),
            connection=Connection(tls=tls, ca=ca, cert=cert, key=key, api_key_file=api_key_file),
            model=model,
            source_language=source_language,
            target_language=target_language,
            bundle=directory,
            precision=precision,
            options=TranslateOptions(beam_size=beam_size, use_shortlist=shortlist),
            engine=engine,
            ray_address=ray_address,
            num_workers=workers,
            part_size=part_size,
            is_forced=force,
            max_outage_s=max_outage,
        )
        num_failed = run(wanted, Console(stderr=True, width=None if sys.stderr.isatty() else 140))
    if num_failed:
        raise typer.Exit(EXIT_SOME_FAILED)
