"""Waiting until a server says that it serves, for both clients.

A server that restarts ends the Watch it has answered; another is opened, until the time is over.  Each is cancelled
when nobody needs it any more, or it would hold a place in the server until its deadline.

The caller makes the stub while its channel is open: gRPC crashes where one is made on a channel that is closed.
"""

import asyncio
import time
from typing import Any

import grpc
from grpc_health.v1 import health_pb2

from service.client.connection_failure import connection_failure, connection_failure_async
from service.client.failures import closed_channel_is_unavailable, closed_is_unavailable, domain_error
from service.errors import DeadlineExceeded, Unavailable

# Between two Watches.  gRPC paces the connections; this is for what accepts them and refuses the call, as a proxy does.
_PAUSE_S = 0.2
_ANSWER_S = 5.0  # for the answer of a server that is not to be waited for: a busy one may take a moment
_SERVING = health_pb2.HealthCheckResponse.SERVING


def wait_until_ready(health: Any, address: str, timeout_s: float) -> None:
    """Return as soon as the server says SERVING; with no time at all, it is asked once whether it does.

    Args:
        health: HealthStub of the client's channel.

    Raises:
        Unavailable: it did not within the timeout, or the channel was closed.
        DragomanError: it refuses to say.
    """
    wait = _Wait(address, timeout_s)
    while True:
        failure: grpc.RpcError | None = None
        with closed_channel_is_unavailable():
            call = health.Watch(health_pb2.HealthCheckRequest(), **wait.call_options())
        try:
            for status in call:
                if status.status == _SERVING:
                    return
                wait.require_patience()
        except grpc.RpcError as error:
            failure = error
        finally:
            call.cancel()
        time.sleep(wait.pause_s(failure, connection_failure(health)))


async def wait_until_ready_async(health: Any, address: str, timeout_s: float) -> None:
    """As `wait_until_ready`."""
    wait = _Wait(address, timeout_s)
    while True:
        failure: grpc.RpcError | None = None
        try:
            with closed_is_unavailable():
                call = health.Watch(health_pb2.HealthCheckRequest(), **wait.call_options())
                try:
                    async for status in call:
                        if status.status == _SERVING:
                            return
                        wait.require_patience()
                finally:
                    call.cancel()
        except grpc.RpcError as error:
            failure = error
        await asyncio.sleep(wait.pause_s(failure, await connection_failure_async(health)))


class _Wait:
    """How long one wait goes on, and what it says in the end."""

    def __init__(self, address: str, timeout_s: float) -> None:
        self._address = address
        self._timeout_s = timeout_s
        self._deadline = time.monotonic() + timeout_s
        self._reason = ""  # why the last Watch ended before its time, or reached no server

    def call_options(self) -> dict[str, Any]:
        """Of the next Watch; without any time, only a server that is there is asked."""
        if self._timeout_s <= 0.0:
            return {"timeout": _ANSWER_S, "wait_for_ready": False}
        return {"timeout": self._left_s(), "wait_for_ready": True}

    def require_patience(self) -> None:
        """Go on although the server does not serve now.

        Raises:
            Unavailable: there is no time for that.
        """
        if self._timeout_s <= 0.0:
            raise self._given_up()

    def pause_s(self, failure: grpc.RpcError | None, no_connection: str) -> float:
        """Seconds until the next Watch, after one that failed, or that its server ended.

        Args:
            no_connection: why there is none now, empty where there may be one.

        Raises:
            DragomanError: the time is over, or no other Watch would do better.
        """
        error = Unavailable("the server ended the watch") if failure is None else domain_error(failure)
        if not isinstance(error, Unavailable | DeadlineExceeded):
            raise error from failure
        if isinstance(error, Unavailable):
            self._reason = f" ({error})"
        elif no_connection:
            self._reason = f" ({no_connection})"
        left_s = self._left_s()
        if left_s == 0.0:
            raise self._given_up() from failure
        return min(_PAUSE_S, left_s)

    def _left_s(self) -> float:
        return max(0.0, self._deadline - time.monotonic())

    def _given_up(self) -> Unavailable:
        return Unavailable(f"no server was ready at {self._address} within {self._timeout_s:g} s{self._reason}")
