"""What gRPC raises, as errors of `service.errors`.

Knows no call; the statuses themselves are read in `service.grpc.replies`.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc.aio

from service.errors import DragomanError, Unavailable
from service.grpc.replies import to_error

CLOSED = "the client was closed before the answer came"


def domain_error(error: Any) -> DragomanError:
    """The error that a gRPC error stands for."""
    return to_error(error.code(), error.details() or error.code().name, error.trailing_metadata() or ())


def times_cancelled() -> int:
    """How often somebody has cancelled the task that runs; one that swallowed it goes on with more than 0."""
    task = asyncio.current_task()
    return task.cancelling() if task else 0


@contextmanager
def closed_channel_is_unavailable() -> Iterator[None]:
    """Raise Unavailable where a call is started on a blocking channel that is closed."""
    try:
        yield
    except ValueError as error:  # gRPC's word for it
        raise Unavailable(CLOSED) from error


@contextmanager
def closed_is_unavailable() -> Iterator[None]:
    """Raise Unavailable for what comes of the asyncio client's `close`.

    gRPC raises CancelledError in whoever waits for a call then, as where the task itself is cancelled, which stays so.
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
