"""What gRPC reports, as errors of `service.errors`; why there is no connection; waiting until a server serves.

The statuses themselves are read in `service.api.grpc.status`.
"""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2

from service.api.grpc.status import to_error
from service.errors import DeadlineExceeded, DragomanError, Unavailable

CLOSED = "the client was closed before the answer came"

# Between two Watches.  gRPC paces the connections; this is for what accepts them and refuses the call, as a proxy does.
_PAUSE_S = 0.2
_ANSWER_S = 5.0  # for the answer of a server that is not to be waited for: a busy one may take a moment
# Without any time at all, the deadline wins over the reason once in some thirty times, although that is known.
_REASON_WITHIN_S = 0.05
_SERVING = health_pb2.HealthCheckResponse.SERVING


# What a library says of a connection that does not come about, and what helps.
_REMEDIES = {
    "Socket closed": "if the server has TLS, name who signed its certificate (--ca, DRAGOMAN_TLS_CA); if it asks for"
    " one of yours, give it (--cert, --key)",
    "unable to get local issuer certificate": "name who signed the server's certificate (--ca, DRAGOMAN_TLS_CA)",
    "self signed certificate": "name the server's certificate itself, or who signed it (--ca, DRAGOMAN_TLS_CA)",
    "WRONG_VERSION_NUMBER": "the server has no TLS there: call it without",
    "Hostname Verification Check failed": "its certificate is for another name (DRAGOMAN_TLS_SERVER_NAME)",
    "certificate has expired": "renew the server's certificate",
    "certificate is not yet valid": "check the clocks of both machines",
    "Failed parsing HTTP/2": "that is no port of gRPC, perhaps that of HTTP; the log of a server names all its ports",
}


def explained(details: str | None) -> str:
    """Return what gRPC says of a connection that does not come about, with what helps where that is known."""
    details = details or ""
    if details == "Method not found!":  # gRPC's own words; a server of this project has others
        return f"{details} No such service answers at this port; perhaps it is the admin port, or another program's"
    _, _, last = details.partition("last error: ")  # of the attempts to connect; empty of a call that has begun
    return next((f"{details}; {remedy}" for said, remedy in _REMEDIES.items() if said in last), details)


def domain_error(error: Any, way: str = "") -> DragomanError:
    """Return the error that a gRPC error stands for; `way`, the proxy if there is one, is said of a lost connection."""
    details, trailers = error.details() or error.code().name, error.trailing_metadata() or ()
    if not trailers:  # a server's own answer has some
        details = explained(details)
        if way and error.code() is grpc.StatusCode.UNAVAILABLE:
            details = f"{details} ({way})"
    return to_error(error.code(), details, trailers)


def times_cancelled() -> int:
    """Return how often somebody has cancelled the running task; a task that swallowed it goes on with more than 0."""
    task = asyncio.current_task()
    return task.cancelling() if task else 0


@contextmanager
def closed_is_unavailable() -> Iterator[None]:
    """Raise Unavailable for what comes of `close`.

    gRPC then raises CancelledError in whoever waits for a call, as it does where the task itself is cancelled; the
    latter stays what it is.
    """
    before = times_cancelled()
    try:
        yield
    except grpc.aio.UsageError as error:
        raise Unavailable(CLOSED) from error
    except asyncio.CancelledError as error:
        if times_cancelled() > before:
            raise
        raise Unavailable(CLOSED) from error


async def connection_failure(health: Any, way: str) -> str:
    """Return what keeps gRPC from connecting, like a wrong address or certificate; empty where nothing is known.

    A call that waits for a connection until its deadline does not say why there was none.  A health check that does
    not wait fails at once with the reason; with a connection, it ends when the server answers or is late again.

    Args:
        health: HealthStub of the client's channel.
        way: what to say of the proxy on the way; empty without one.
    """
    try:
        with closed_is_unavailable():
            await health.Check(health_pb2.HealthCheckRequest(), timeout=_REASON_WITHIN_S, wait_for_ready=False)
    except grpc.RpcError as error:
        return str(domain_error(error, way)) if error.code() is grpc.StatusCode.UNAVAILABLE else ""
    return ""


async def wait_until_ready(health: Any, address: str, timeout_s: float, way: str) -> None:
    """Return as soon as the server says SERVING; without any time, ask a server that is there once.

    A server that restarts ends the Watch it has answered; another Watch is opened until the time is over.

    Raises:
        Unavailable: it did not within the timeout, or the channel was closed.
        DragomanError: it refuses to say.
    """
    deadline = time.monotonic() + timeout_s
    has_time = timeout_s > 0.0
    reason = ""  # why the last Watch ended before its time, or reached no server
    while True:
        failure: grpc.RpcError | None = None
        error: DragomanError = Unavailable("the server ended the watch")
        try:
            timeout = max(0.0, deadline - time.monotonic()) if has_time else _ANSWER_S
            with closed_is_unavailable():
                call = health.Watch(health_pb2.HealthCheckRequest(), timeout=timeout, wait_for_ready=has_time)
                try:
                    async for status in call:
                        if status.status == _SERVING:
                            return
                        if not has_time:
                            raise Unavailable(f"no server was ready at {address} within 0 s")
                finally:
                    call.cancel()  # or it would hold a place in the server until its deadline
        except grpc.RpcError as rpc_error:
            failure, error = rpc_error, domain_error(rpc_error, way)
        if isinstance(error, Unavailable):
            reason = f" ({error})"
        elif not isinstance(error, DeadlineExceeded):
            raise error from failure
        elif why := await connection_failure(health, way):
            reason = f" ({why})"
        left_s = deadline - time.monotonic()
        if left_s <= 0.0:
            raise Unavailable(f"no server was ready at {address} within {timeout_s:g} s{reason}") from failure
        await asyncio.sleep(min(_PAUSE_S, left_s))
