"""The calls that an operator is shown, and a log level that there is not."""

from typing import Any

import pytest

from protos import admin_pb2 as pb
from service.api.grpc.admin import AdminServicer, encode_status
from service.call import Call, Caller
from service.errors import InvalidInput
from service.telemetry.logs import set_log_level

NOW = 1_000.0


def call(age_s: float, *, remaining_s: float = 5.0, request_id: str = "r") -> Call:
    return Call(
        method="Translate",
        request_id=request_id,
        started=NOW - age_s,
        deadline=NOW + remaining_s,
        caller=Caller(name="shop", source="key"),
        model="m",
        phase="decode",
        texts=3,
        finished_texts=1,
    )


def status(*calls: Call, max_requests: int = 0) -> pb.GetStatusResponse:
    return encode_status([], [], calls, now=NOW, max_requests=max_requests, num_requests=len(calls))


async def test_an_unknown_level_is_refused_with_those_there_are():
    nothing: Any = None
    servicer = AdminServicer(nothing, set_log_level, nothing)

    with pytest.raises(InvalidInput, match="level is 'loud', there are debug, info, warning, error"):
        await servicer.set_log_level(pb.SetLogLevelRequest(level="loud"), None)


def test_calls_come_oldest_first_and_bounded():
    response = status(call(1.0), call(3.0, request_id="oldest"), call(2.0), max_requests=2)

    assert [request.age_s for request in response.requests] == [3.0, 2.0]
    assert response.num_requests == 3
    oldest = response.requests[0]
    assert (oldest.request_id, oldest.client, oldest.phase) == ("oldest", "shop", "decode")
    assert oldest.client_source == "key"
    assert (oldest.texts, oldest.finished_texts, oldest.remaining_s) == (3, 1, 5.0)
