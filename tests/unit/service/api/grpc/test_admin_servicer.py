"""What an operator's calls do, and what a snapshot says, without a server around them."""

import asyncio
import gc
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from protos import admin_pb2 as pb
from service.api.grpc.admin import AdminServicer, encode_status
from service.call import Call, Caller
from service.errors import FailedPrecondition, InvalidInput
from service.models.loaded import LoadedModel, ModelState
from service.models.registry import ModelChange, Refusal, Result
from service.models.repository import BundleCandidate
from service.models.watch import Reloader
from service.scheduler.pool import EngineSnapshot
from service.telemetry.logs import get_logger, set_log_level
from tests.fakes.calls import eventually
from tests.fakes.logs import log
from tests.fakes.model_info import model_info

__all__ = ["log"]


NOW = 1_000.0
ENGINE = EngineSnapshot(pid=None, state="waiting", jobs=1, rows=4, max_rows=64, restarts=3, silent_s=0.5)
SERVING = SimpleNamespace(
    info=model_info("m", "2", source_language="en", precision="int8"),
    state=ModelState.SERVING,
    sha256_12="0" * 12,
    pool=SimpleNamespace(queued_jobs=5, queued_tokens=50, snapshots=lambda now: [ENGINE]),
)
REFUSED = Refusal(
    name="m",
    candidate=BundleCandidate(directory=Path("m/3"), name="m", version="3"),
    error=ValueError("weights.data is truncated"),
)


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
    hosts, num_requests = [cast("LoadedModel", SERVING)], len(calls)
    return encode_status(hosts, [REFUSED], calls, now=NOW, max_requests=max_requests, num_requests=num_requests)


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


def servicer(reloader: FakeReloader) -> AdminServicer:
    async def read(_: int) -> pb.GetStatusResponse:
        return status()

    return AdminServicer(read, set_log_level, cast("Reloader", reloader))


async def test_reload_answers_with_every_change():
    reloader = FakeReloader(change("m", "2", Result.LOADED), change("m", "1", Result.RETIRED))
    reloader.may_end.set()

    response = await servicer(reloader).reload_models(pb.ReloadModelsRequest(model="m"), None)

    assert reloader.asked == ["m"]
    assert [(change.version, change.result) for change in response.changes] == [("2", "loaded"), ("1", "retired")]


async def test_a_refused_bundle_fails_the_reload_by_name():
    reloader = FakeReloader(change("m", "2", Result.LOADED), change("n", "7", Result.REFUSED, "shared.spm is missing"))
    reloader.may_end.set()

    with pytest.raises(FailedPrecondition, match=r"^1 refused: n 7: shared\.spm is missing$"):
        await servicer(reloader).reload_models(pb.ReloadModelsRequest(), None)


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
    assert '"log_level_changed"' in log.getvalue()
    assert '"after"' not in log.getvalue()


async def test_an_unknown_level_is_refused_with_those_there_are(log):
    with pytest.raises(InvalidInput, match="level is 'loud', there are debug, info, warning, error"):
        await servicer(FakeReloader()).set_log_level(pb.SetLogLevelRequest(level="loud"), None)


def test_models_come_with_their_engines_or_their_reason():
    serving, refused = status().models

    assert (serving.source_language, serving.precision, serving.queued_jobs, serving.queued_tokens) == (
        *("en", "int8"),
        *(5, 50),
    )
    (engine,) = serving.engines
    assert (engine.pid, engine.state, engine.jobs, engine.rows, engine.max_rows) == (0, "waiting", 1, 4, 64)
    assert (engine.restarts, engine.silent_s) == (3, 0.5)
    assert (refused.state, refused.reason, list(refused.engines)) == ("refused", "weights.data is truncated", [])


def test_calls_come_oldest_first_and_bounded():
    response = status(call(1.0), call(3.0, request_id="oldest"), call(2.0), max_requests=2)

    assert [request.age_s for request in response.requests] == [3.0, 2.0]
    assert response.num_requests == 3
    oldest = response.requests[0]
    assert (oldest.request_id, oldest.client, oldest.phase) == ("oldest", "shop", "decode")
    assert oldest.client_source == "key"
    assert (oldest.texts, oldest.finished_texts, oldest.remaining_s) == (3, 1, 5.0)
