"""`dragoman log-level`."""

from typing import Annotated

import typer

from service.cli.options import AdminServer, ApiKeyFile, Ca, Cert, Connection, Key, Tls, admin_address, examples
from service.cli.reporting import reported

EPILOG = examples("dragoman log-level debug", "dragoman log-level info --server 127.0.0.1:50052")


def log_level(
    level: Annotated[str, typer.Argument(metavar="LEVEL", help="debug, info, warning or error.")],
    server: AdminServer = None,
    tls: Tls = False,
    ca: Ca = None,
    cert: Cert = None,
    key: Key = None,
    api_key_file: ApiKeyFile = None,
) -> None:
    """Change the level of a running server's log, until its next start."""
    with reported():
        from service.client.admin import AdminClient

        connection = Connection(tls=tls, ca=ca, cert=cert, key=key, api_key_file=api_key_file)
        with AdminClient(admin_address(server), connection.client_config()) as client:
            previous = client.set_log_level(level)
    typer.echo(f"{previous} -> {level}")
