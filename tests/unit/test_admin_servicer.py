"""What an operator's calls do, without a server around them."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from io import StringIO

import pytest

from protos import admin_pb2 as pb
from service.api.admin_servicer import AdminServicer, ModelChange
from service.api.server_status import ServerSnapshot
from service.config import TelemetryConfig
from service.errors import FailedPrecondition, InvalidInput
from service.telemetry.logs import configure_logging, get_logger


@dataclass(frozen=True)
class Change:
    name: str
    version: str
    result: str
    reason: str = ""


class FakeReloader:
    def __init__(self, *changes: Change) -> None:
        self._changes = changes
        self.asked: list[str] = []
        self.may_end = asyncio.Event()
        self.ended = asyncio.Event()

    async def reload(self, model: str = "") -> Sequence[ModelChange]:
        self.asked.append(model)
        await self.may_end.wait()
        self.ended.set()
        return self._changes


def unread() -> ServerSnapshot:
    raise AssertionError


@pytest.fixture
def log() -> StringIO:
    stream = StringIO()
    configure_logging(TelemetryConfig(log_format="json"), stream)
    return stream


async def test_reload_answers_with_every_change():
    reloader = FakeReloader(Change("m", "2", "loaded"), Change("m", "1", "retired"))
    reloader.may_end.set()

    response = await AdminServicer(unread, reloader).reload_models(pb.ReloadModelsRequest(model="m"), None)

    assert reloader.asked == ["m"]
    assert [(change.version, change.result) for change in response.changes] == [("2", "loaded"), ("1", "retired")]


async def test_a_refused_bundle_fails_the_reload_by_name():
    reloader = FakeReloader(Change("m", "2", "loaded"), Change("n", "7", "refused", "shared.spm is missing"))
    reloader.may_end.set()

    with pytest.raises(FailedPrecondition, match=r"^n 7: shared\.spm is missing$"):
        await AdminServicer(unread, reloader).reload_models(pb.ReloadModelsRequest(), None)


async def test_a_server_of_one_bundle_reloads_nothing_and_says_so():
    with pytest.raises(FailedPrecondition, match="--models"):
        await AdminServicer(unread).reload_models(pb.ReloadModelsRequest(), None)


async def test_a_reload_goes_on_when_its_caller_leaves():
    reloader = FakeReloader()
    call = asyncio.create_task(AdminServicer(unread, reloader).reload_models(pb.ReloadModelsRequest(), None))
    await asyncio.sleep(0)
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    reloader.may_end.set()

    async with asyncio.timeout(10):
        await reloader.ended.wait()


async def test_log_level_changes_at_once_and_the_answer_has_the_one_before(log):
    servicer = AdminServicer(unread)
    get_logger().debug("before")
    answers = [await servicer.set_log_level(pb.SetLogLevelRequest(level=level), None) for level in ("debug", "error")]
    get_logger().warning("after")

    assert [answer.previous for answer in answers] == ["info", "debug"]
    assert "before" not in log.getvalue()
    assert '"log_level_changed"' in log.getvalue()
    assert '"after"' not in log.getvalue()


async def test_an_unknown_level_is_refused_with_those_there_are(log):
    with pytest.raises(InvalidInput, match="level is 'loud', there are debug, info, warning, error"):
        await AdminServicer(unread).set_log_level(pb.SetLogLevelRequest(level="loud"), None)
