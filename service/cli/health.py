"""`dragoman health`: one look at a server's grpc.health.v1, for a container's HEALTHCHECK and for scripts.

Imports little: it runs every few seconds.
"""

from typing import Annotated, Any

from service.cli.options import Connection, Server, examples, ranged, server_address, with_connection
from service.cli.output import EXIT_SOME_FAILED, fail
from service.ranges import SECONDS

EPILOG = examples("dragoman health", "dragoman health --server translate.example:50051")


@with_connection
def health(
    connection: Connection,
    server: Server = None,
    timeout: Annotated[float, ranged(SECONDS, help="For the answer.")] = 3.0,
) -> None:
    """Ask a server whether it serves; exit code 0 if it does, 1 if not.  DRAGOMAN_TLS_CA and its like hold here too."""
    import grpc
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    from service.client.channel import call_metadata, open_direct_channel

    address, config = server_address(server), connection.client_config()
    with open_direct_channel(address, config) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        try:
            reply = stub.Check(health_pb2.HealthCheckRequest(), timeout=timeout, metadata=call_metadata(config))
        except grpc.RpcError as error:
            fail(f"{address} does not answer within {timeout:g} s: {error.code().name}", EXIT_SOME_FAILED)
    name = health_pb2.HealthCheckResponse.ServingStatus.Name(reply.status)
    if name != "SERVING":
        fail(f"{address} is {name}", EXIT_SOME_FAILED)
