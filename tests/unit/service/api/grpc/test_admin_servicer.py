"""What an operator's calls do, and what a snapshot says, without a server around them."""

import asyncio
import gc
import json
from typing import NoReturn, cast

import pytest

from protos import admin_pb2 as pb
from service.api.grpc.admin import AdminServicer, encode_status
from service.call import Call, Caller
from service.errors import FailedPrecondition, InvalidInput
from service.models.reloader import Reloader
from service.telemetry.logs import get_logger, set_log_level
from tests.fakes.calls import eventually
from tests.fakes.logs import log

__all__ = ["log"]


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


class FakeReloader:
    """Fails when it is told to."""

    def __init__(self, error: Exception | None = None) -> None:
        self._error = error
        self.may_end = asyncio.Event()

    async def reload(self, model: str = "") -> NoReturn:
        await self.may_end.wait()
        raise self._error or AssertionError


def servicer(reloader: FakeReloader) -> AdminServicer:
    async def read(_: int) -> pb.GetStatusResponse:
        return status()

    return AdminServicer(read, set_log_level, cast("Reloader", reloader))


@pytest.mark.parametrize(
    ("error", "words"),
    [(FailedPrecondition("the repository is gone"), '"the repository is gone"'), (KeyError("a"), '"KeyError"')],
)
async def test_a_reload_that_fails_when_its_caller_has_left_is_in_the_log_and_nowhere_else(log, error, words):
    unretrieved: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unretrieved.append(context))
    reloader = FakeReloader(error=error)
    call = asyncio.create_task(servicer(reloader).reload_models(pb.ReloadModelsRequest(), None))
    await asyncio.sleep(0)
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    reloader.may_end.set()
    await eventually(lambda: "reload_failed" in log.getvalue())
    del call
    gc.collect()

    assert words in log.getvalue()
    assert unretrieved == []


async def test_log_level_changes_at_once_and_the_answer_has_the_one_before(log):
    admin = servicer(FakeReloader())
    get_logger().debug("before")
    answers = [await admin.set_log_level(pb.SetLogLevelRequest(level=level), None) for level in ("debug", "error")]
    get_logger().warning("after")

    assert [answer.previous for answer in answers] == ["info", "debug"]
    assert "before" not in log.getvalue()
    changes = [json.loads(line) for line in log.getvalue().splitlines() if "log_level_changed" in line]
    assert [(one["previous"], one["log_level"]) for one in changes] == [("info", "debug")]  # the other is below "error"
    assert '"after"' not in log.getvalue()


async def test_an_unknown_level_is_refused_with_those_there_are(log):
    with pytest.raises(InvalidInput, match="level is 'loud', there are debug, info, warning, error"):
        await servicer(FakeReloader()).set_log_level(pb.SetLogLevelRequest(level="loud"), None)


def test_calls_come_oldest_first_and_bounded():
    response = status(call(1.0), call(3.0, request_id="oldest"), call(2.0), max_requests=2)

    assert [request.age_s for request in response.requests] == [3.0, 2.0]
    assert response.num_requests == 3
    oldest = response.requests[0]
    assert (oldest.request_id, oldest.client, oldest.phase) == ("oldest", "shop", "decode")
    assert oldest.client_source == "key"
    assert (oldest.texts, oldest.finished_texts, oldest.remaining_s) == (3, 1, 5.0)
