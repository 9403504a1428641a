"""`dragoman reload`."""

from typing import Annotated

import typer

from service.cli.options import AdminServer, Connection, examples, ranged, with_connection
from service.client.admin import DEFAULT_ADMIN_ADDRESS, AdminClient
from service.ranges import SECONDS

EPILOG = examples("dragoman reload", "dragoman reload --model en-de --server 127.0.0.1:50052")


@with_connection
def reload(
    connection: Connection,
    model: Annotated[str, typer.Option(help="Only this one.  [default: all]")] = "",
    timeout: Annotated[float, ranged(SECONDS, help="For loading and self-test.")] = 600.0,
    server: AdminServer = DEFAULT_ADMIN_ADDRESS,
) -> None:
    """Have a running server look at its repository of models again, as SIGHUP does, and wait for the outcome.

    Exit code 0: every change was made; 2: a bundle was refused, and what was loaded before keeps serving, or a wrong
    API key; 3: no answer.
    """
    with AdminClient(server, connection.client_config()) as client:
        changes = client.reload_models(model, timeout).changes
    for change in changes:
        typer.echo(f"{change.name} {change.version}: {change.result}")
