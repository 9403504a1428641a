"""Why a client has no connection, in gRPC's words, which a call that waits for one until its deadline does not give.

A health check that does not wait for a connection tells: without one it fails at once with the reason.  With one, it
is over when the server answers, or is as late with this as with the call before.
"""

from typing import Any

import grpc
from grpc_health.v1 import health_pb2

from service.client.failures import closed_channel_is_unavailable, closed_is_unavailable

# Without any time at all, the deadline wins over the reason once in some thirty times, although that is known.
_OPTIONS: dict[str, Any] = {"timeout": 0.05, "wait_for_ready": False}


def connection_failure(health: Any) -> str:
    """What keeps gRPC from connecting, like a wrong address or certificate; empty where nothing is known to.

    Args:
        health: HealthStub of the client's channel.

    Raises:
        Unavailable: the channel is closed.
    """
    try:
        with closed_channel_is_unavailable():
            health.Check(health_pb2.HealthCheckRequest(), **_OPTIONS)
    except grpc.RpcError as error:
        return _reason(error)
    return ""


async def connection_failure_async(health: Any) -> str:
    """As `connection_failure`."""
    try:
        with closed_is_unavailable():
            await health.Check(health_pb2.HealthCheckRequest(), **_OPTIONS)
    except grpc.RpcError as error:
        return _reason(error)
    return ""


def _reason(error: Any) -> str:
    return error.details() or "" if error.code() is grpc.StatusCode.UNAVAILABLE else ""
