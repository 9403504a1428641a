"""What the client makes of a call that fails: which error is raised, and what is tried again."""

import grpc
import pytest
from google.protobuf import any_pb2, duration_pb2
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

from service.errors import (
    DeadlineExceeded,
    DragomanError,
    FailedPrecondition,
    InternalError,
    InvalidInput,
    NotFound,
    Overloaded,
    PermissionDenied,
    Unauthenticated,
    Unavailable,
)
from tests.fakes.scripted_server import client, failing, failing_first, running

__all__ = ["client", "running"]


def packed(*details: Message) -> bytes:
    """The trailer `grpc-status-details-bin` with these details."""
    status = status_pb2.Status(code=8, message="no")
    for detail in details:
        item = any_pb2.Any()
        item.Pack(detail)
        status.details.append(item)
    return bytes(status.SerializeToString())


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, InvalidInput),
        (grpc.StatusCode.NOT_FOUND, NotFound),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, Overloaded),
        (grpc.StatusCode.DEADLINE_EXCEEDED, DeadlineExceeded),
        (grpc.StatusCode.UNAVAILABLE, Unavailable),
        (grpc.StatusCode.CANCELLED, Unavailable),
        (grpc.StatusCode.INTERNAL, InternalError),
        (grpc.StatusCode.UNAUTHENTICATED, Unauthenticated),
        (grpc.StatusCode.PERMISSION_DENIED, PermissionDenied),
        (grpc.StatusCode.FAILED_PRECONDITION, FailedPrecondition),
    ],
)
async def test_each_status_is_raised_as_its_error(client, running, code, kind):
    running.service.handler = failing(code, "given 7, at most 5")

    with pytest.raises(DragomanError, match="given 7, at most 5") as caught:
        await client.translate(["one"])
    assert type(caught.value) is kind
    assert isinstance(caught.value.__cause__, grpc.RpcError)


async def test_error_details_become_field_reason_and_wait(client, running):
    info = error_details_pb2.ErrorInfo(reason="queue_full", metadata={"field": "texts[3]"})
    retry = error_details_pb2.RetryInfo(retry_delay=duration_pb2.Duration(seconds=1, nanos=500_000_000))
    stop = ("grpc-retry-pushback-ms", "-1")
    trailers = (("grpc-status-details-bin", packed(retry, info)), stop)

    running.service.handler = failing(grpc.StatusCode.RESOURCE_EXHAUSTED, trailers=trailers)
    with pytest.raises(Overloaded) as overloaded:
        await client.translate(["one"])
    running.service.handler = failing(grpc.StatusCode.INVALID_ARGUMENT, trailers=trailers)
    with pytest.raises(InvalidInput) as invalid:
        await client.translate(["one"])

    assert (overloaded.value.reason, overloaded.value.retry_after_s) == ("queue_full", 1.5)
    assert invalid.value.field == "texts[3]"


@pytest.mark.parametrize(
    "code", [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.CANCELLED]
)
async def test_passing_trouble_is_retried_unseen(client, running, code):
    running.service.handler = failing_first(2, code, (("grpc-retry-pushback-ms", "5"),))

    reply = await client.translate(["one"])

    assert reply.translations[0].text == "ONE"
    assert len(running.service.requests) == 3


async def test_pushback_of_minus_one_ends_the_retries(client, running):
    running.service.handler = failing(grpc.StatusCode.UNAVAILABLE, trailers=(("grpc-retry-pushback-ms", "-1"),))

    with pytest.raises(Unavailable):
        await client.translate(["one"])
    assert len(running.service.requests) == 1
