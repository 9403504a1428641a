"""What an operator's calls do, without a server around them."""

import asyncio
import gc
from collections.abc import Sequence

import pytest

from protos import admin_pb2 as pb
from service.errors import FailedPrecondition, InvalidInput
from service.grpc.admin_servicer import AdminServicer
from service.grpc.server_status import ServerSnapshot
from service.registry.registry import ModelChange, Result
from service.telemetry.logs import get_logger
from tests.fakes.calls import eventually
from tests.fakes.logs import log

__all__ = ["log"]


def change(name: str, version: str, result: Result, reason: str = "") -> ModelChange:
    return ModelChange(name=name, version=version, result=result, reason=reason)


class FakeReloader:
    def __init__(self, *changes: ModelChange, error: Exception | None = None) -> None:
        self._changes = changes
        self._error = error
        self.asked: list[str] = []
        self.may_end = asyncio.Event()
        self.ended = asyncio.Event()

    async def reload(self, model: str = "") -> Sequence[ModelChange]:
        self.asked.append(model)
        await self.may_end.wait()
        self.ended.set()
        if self._error:
            raise self._error
        return self._changes


def unread() -> ServerSnapshot:
    raise AssertionError


async def test_reload_answers_with_every_change():
    reloader = FakeReloader(change("m", "2", Result.LOADED), change("m", "1", Result.RETIRED))
    reloader.may_end.set()

    response = await AdminServicer(unread, reloader).reload_models(pb.ReloadModelsRequest(model="m"), None)

    assert reloader.asked == ["m"]
    assert [(change.version, change.result) for change in response.changes] == [("2", "loaded"), ("1", "retired")]


async def test_a_refused_bundle_fails_the_reload_by_name():
    reloader = FakeReloader(change("m", "2", Result.LOADED), change("n", "7", Result.REFUSED, "shared.spm is missing"))
    reloader.may_end.set()

    with pytest.raises(FailedPrecondition, match=r"^1 refused: n 7: shared\.spm is missing$"):
        await AdminServicer(unread, reloader).reload_models(pb.ReloadModelsRequest(), None)


async def test_a_reload_goes_on_when_its_caller_leaves():
    reloader = FakeReloader()
    call = asyncio.create_task(AdminServicer(unread, reloader).reload_models(pb.ReloadModelsRequest(), None))
    await asyncio.sleep(0)
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    reloader.may_end.set()

    async with asyncio.timeout(10):
        await reloader.ended.wait()


@pytest.mark.parametrize(
    ("error", "words"),
    [(FailedPrecondition("the repository is gone"), '"the repository is gone"'), (KeyError("a"), '"KeyError"')],
)
async def test_a_reload_that_fails_when_its_caller_has_left_is_in_the_log_and_nowhere_else(log, error, words):
    unretrieved: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unretrieved.append(context))
    reloader = FakeReloader(error=error)
    call = asyncio.create_task(AdminServicer(unread, reloader).reload_models(pb.ReloadModelsRequest(), None))
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
    servicer = AdminServicer(unread, FakeReloader())
    get_logger().debug("before")
    answers = [await servicer.set_log_level(pb.SetLogLevelRequest(level=level), None) for level in ("debug", "error")]
    get_logger().warning("after")

    assert [answer.previous for answer in answers] == ["info", "debug"]
    assert "before" not in log.getvalue()
    assert '"log_level_changed"' in log.getvalue()
    assert '"after"' not in log.getvalue()


async def test_an_unknown_level_is_refused_with_those_there_are(log):
    with pytest.raises(InvalidInput, match="level is 'loud', there are debug, info, warning, error"):
        await AdminServicer(unread, FakeReloader()).set_log_level(pb.SetLogLevelRequest(level="loud"), None)
