"""Commands that load little: `dragoman health`, which containers run every few seconds, and `dragoman version`."""

from typing import Annotated, Any

import typer

from service.cli.options import Connection, Server, ranged, server_address, with_examples, with_options
from service.cli.output import EXIT_SOME_FAILED, fail
from service.ranges import SECONDS

_LIBRARIES = ("onnxruntime", "onnxruntime-gpu", "grpcio", "protobuf", "sentencepiece", "numpy")


@with_examples("dragoman health", "dragoman health --server translate.example:50051")
@with_options
def health(
    *,
    server: Server = None,
    connection: Connection,
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
            from service.client.failures import explained

            fail(f"{address} does not answer: {error.code().name}: {explained(error.details())}", EXIT_SOME_FAILED)
    name = health_pb2.HealthCheckResponse.ServingStatus.Name(reply.status)
    if name != "SERVING":
        fail(f"{address} is {name}", EXIT_SOME_FAILED)


@with_examples("dragoman version")
def version() -> None:
    """Print the versions of Dragoman, Python and the libraries that matter."""
    import platform
    from importlib import metadata

    typer.echo(f"dragoman {metadata.version('dragoman')}")
    typer.echo(f"python {platform.python_version()} ({platform.machine()})")
    for name in _LIBRARIES:
        try:
            typer.echo(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
