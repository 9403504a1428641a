"""`dragoman status`: its options."""

from typing import Annotated

import typer

from service.cli.connection import ApiKeyFile, Ca, Cert, Connection, Key, Tls
from service.cli.options import AdminServer, AsJson, examples
from service.cli.reporting import reported

EPILOG = examples(
    "dragoman serve --admin-port 50052",
    "dragoman status",
    "dragoman status --watch",
    "dragoman status --server 127.0.0.1:50052 --json",
)


def status(
    server: AdminServer = None,
    as_json: AsJson = False,
    watch: Annotated[bool, typer.Option("--watch", help="Show it anew every second until Ctrl-C.")] = False,
    requests: Annotated[int, typer.Option(min=1, max=10_000, help="Calls to list, oldest first.")] = 20,
    tls: Tls = False,
    ca: Ca = None,
    cert: Cert = None,
    key: Key = None,
    api_key_file: ApiKeyFile = None,
) -> None:
    """Show what a running server is doing: calls with age and phase, queue, engines.

    It asks the server's admin port, which is off by default: `dragoman serve --admin-port 50052`.
    """
    with reported():
        from service.cli.status_report import StatusQuery, show

        connection = Connection(tls=tls, ca=ca, cert=cert, key=key, api_key_file=api_key_file)
        show(StatusQuery(server=server, connection=connection, max_requests=requests), as_json=as_json, watch=watch)
