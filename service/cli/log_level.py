"""`dragoman log-level`."""

from typing import Annotated

import typer

from service.cli.options import AdminServer, Connection, examples, with_connection
from service.client.admin import DEFAULT_ADMIN_ADDRESS, AdminClient

EPILOG = examples("dragoman log-level debug", "dragoman log-level info --server 127.0.0.1:50052")


@with_connection
def log_level(
    connection: Connection,
    level: Annotated[str, typer.Argument(metavar="LEVEL", help="debug, info, warning or error.")],
    server: AdminServer = DEFAULT_ADMIN_ADDRESS,
) -> None:
    """Change the level of a running server's log, until its next start."""
    with AdminClient(server, connection.client_config()) as client:
        previous = client.set_log_level(level)
    typer.echo(f"{previous} -> {level}")
