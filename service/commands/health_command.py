"""`dragoman health`: one look at a server's grpc.health.v1, for a container's HEALTHCHECK and for scripts.

Imports little: it runs every few seconds.
"""

from typing import Annotated, Any

import typer

from service.commands.options import Server, examples
from service.commands.reporting import EXIT_SOME_FAILED, fail, reported

EPILOG = examples("dragoman health", "dragoman health --server translate.example:50051")


def health(
    server: Server = None, timeout: Annotated[float, typer.Option(metavar="SECONDS", help="For the answer.")] = 3.0
) -> None:
    """Ask a server whether it serves; exit code 0 if it does, 1 if not.  DRAGOMAN_TLS_CA and its like hold here too."""
    with reported():
        from service.commands.translation_run import server_address

        problem = _look(server_address(server), timeout)
    if problem:
        fail(problem, EXIT_SOME_FAILED)


def _look(address: str, timeout_s: float) -> str | None:
    """What is wrong with the server, or None while it serves."""
    import grpc
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    from service.client.channel import config_from_environment, open_channel

    with open_channel(address, config_from_environment()) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        try:
            reply = stub.Check(health_pb2.HealthCheckRequest(), timeout=timeout_s)
        except grpc.RpcError as error:
            return f"{address} does not answer within {timeout_s:g} s: {error.code().name}"
    name = health_pb2.HealthCheckResponse.ServingStatus.Name(reply.status)
    return None if name == "SERVING" else f"{address} is {name}"
