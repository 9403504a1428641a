"""`dragoman health`: one look at a server's grpc.health.v1, for a container's HEALTHCHECK and for scripts.

Imports little: it runs every few seconds.
"""

from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc


def check(address: str, timeout_s: float) -> str | None:
    """What is wrong with the server at `address`, or None while it serves."""
    with grpc.insecure_channel(address) as channel:
        try:
            stub: Any = health_pb2_grpc.HealthStub(channel)
            reply = stub.Check(health_pb2.HealthCheckRequest(), timeout=timeout_s)
        except grpc.RpcError as error:
            return f"{address} does not answer within {timeout_s:g} s: {error.code().name}"
    name = health_pb2.HealthCheckResponse.ServingStatus.Name(reply.status)
    return None if name == "SERVING" else f"{address} is {name}"
