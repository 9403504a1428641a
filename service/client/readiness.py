"""Waiting until a server says that it serves, for both clients.

A server that restarts ends the Watch it has answered; another is opened, until the time is over.
"""

import asyncio
import time
from typing import Any

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from service.client.failures import CLOSED, closed_is_unavailable, domain_error
from service.errors import DeadlineExceeded, Unavailable

# Between two Watches.  gRPC paces the connections; this is for what accepts them and refuses the call, as a proxy does.
_PAUSE_S = 0.2
_SERVING = health_pb2.HealthCheckResponse.SERVING


def wait_until_ready(channel: grpc.Channel, address: str, timeout_s: float) -> None:
    """Return as soon as the server says SERVING.

    Raises:
        Unavailable: it did not within the timeout, or the channel was closed.
        DragomanError: it refuses to say.
    """
    health: Any = health_pb2_grpc.HealthStub(channel)
    wait = _Wait(address, timeout_s)
    while True:
        failure: grpc.RpcError | None = None
        try:
            for status in health.Watch(health_pb2.HealthCheckRequest(), timeout=wait.left_s, wait_for_ready=True):
                if status.status == _SERVING:
                    return
        except grpc.RpcError as error:
            failure = error
        except ValueError as error:  # gRPC's word for a channel that is closed
            raise Unavailable(CLOSED) from error
        time.sleep(wait.pause_s(failure))


async def wait_until_ready_async(channel: grpc.aio.Channel, address: str, timeout_s: float) -> None:
    """As `wait_until_ready`."""
    health: Any = health_pb2_grpc.HealthStub(channel)
    wait = _Wait(address, timeout_s)
    while True:
        failure: grpc.RpcError | None = None
        try:
            with closed_is_unavailable():
                call = health.Watch(health_pb2.HealthCheckRequest(), timeout=wait.left_s, wait_for_ready=True)
                async for status in call:
                    if status.status == _SERVING:
                        return
        except grpc.RpcError as error:
            failure = error
        await asyncio.sleep(wait.pause_s(failure))


class _Wait:
    """How long one wait goes on, and what it says in the end."""

    def __init__(self, address: str, timeout_s: float) -> None:
        self._address = address
        self._timeout_s = timeout_s
        self._deadline = time.monotonic() + timeout_s
        self._reason = ""  # why the last Watch ended before its time

    @property
    def left_s(self) -> float:
        """Seconds that the next Watch may last."""
        return max(0.0, self._deadline - time.monotonic())

    def pause_s(self, failure: grpc.RpcError | None) -> float:
        """Seconds until the next Watch, after one that failed, or that its server ended.

        Raises:
            DragomanError: the time is over, or no other Watch would do better.
        """
        error = Unavailable("the server ended the watch") if failure is None else domain_error(failure)
        if not isinstance(error, Unavailable | DeadlineExceeded):
            raise error from failure
        if isinstance(error, Unavailable):
            self._reason = f" ({error})"
        left_s = self.left_s
        if left_s == 0.0:
            message = f"no server was ready at {self._address} within {self._timeout_s:g} s{self._reason}"
            raise Unavailable(message) from failure
        return min(_PAUSE_S, left_s)
