"""A snapshot as the message that `dragoman status` shows."""

from service.engines.dispatcher import DispatchSnapshot
from service.engines.handle import EngineSnapshot
from service.grpc.call import Call
from service.grpc.server_status import DEFAULT_MAX_REQUESTS, ServerSnapshot, to_response
from service.queue.callers import Caller
from service.registry.registry import ModelSnapshot
from service.telemetry.calls import Progress
from tests.fakes.model_info import model_info

NOW = 1_000.0
ENGINE = EngineSnapshot(pid=None, state="waiting", jobs=1, rows=4, max_rows=64, restarts=3, silent_s=0.5)
SERVING = ModelSnapshot(
    name="m",
    version="2",
    state="serving",
    info=model_info("m", "2", source_language="en", precision="int8"),
    sha256_12="0" * 12,
    dispatch=DispatchSnapshot(queued_jobs=5, queued_tokens=50, engines=(ENGINE,)),
)
REFUSED = ModelSnapshot(name="m", version="3", state="refused", reason="weights.data is truncated")


def call(age_s: float, *, remaining_s: float = 5.0, request_id: str = "r") -> Call:
    listed = Call(
        method="Translate",
        request_id=request_id,
        started=NOW - age_s,
        deadline=NOW + remaining_s,
        is_limit_ours=True,
        limit_s=60.0,
        client=Caller(name="shop", source="key"),
        progress=Progress(phase="decode", texts=3, finished_texts=1),
    )
    listed.use_model("m")
    return listed


def snapshot(*calls: Call) -> ServerSnapshot:
    return ServerSnapshot(
        version="1.2",
        pid=42,
        uptime_s=60.0,
        state="serving",
        models=[SERVING, REFUSED],
        calls=calls,
        admitted_tokens=7,
        max_admitted_tokens=100,
        queued_work_s=1.5,
        event_loop_lag_s=0.002,
        log_level="info",
    )


def test_models_come_with_their_engines_or_their_reason():
    serving, refused = to_response(snapshot(), NOW, 0).models

    assert (serving.source_language, serving.precision, serving.queued_jobs, serving.queued_tokens) == (
        *("en", "int8"),
        *(5, 50),
    )
    (engine,) = serving.engines
    assert (engine.pid, engine.state, engine.jobs, engine.rows, engine.max_rows) == (0, "waiting", 1, 4, 64)
    assert (engine.restarts, engine.silent_s) == (3, 0.5)
    assert (refused.state, refused.reason, list(refused.engines)) == ("refused", "weights.data is truncated", [])


def test_calls_come_oldest_first_and_bounded():
    response = to_response(snapshot(call(1.0), call(3.0, request_id="oldest"), call(2.0)), NOW, 2)

    assert [request.age_s for request in response.requests] == [3.0, 2.0]
    assert response.num_requests == 3
    oldest = response.requests[0]
    assert (oldest.request_id, oldest.client, oldest.phase) == ("oldest", "shop", "decode")
    assert oldest.client_source == "key"
    assert (oldest.texts, oldest.finished_texts, oldest.remaining_s) == (3, 1, 5.0)


def test_a_call_past_its_deadline_has_nothing_left():
    (request,) = to_response(snapshot(call(1.0, remaining_s=-2.0)), NOW, 0).requests

    assert request.remaining_s == 0.0


def test_as_many_calls_as_the_contract_says_are_listed_by_default():
    calls = [call(1.0) for _ in range(DEFAULT_MAX_REQUESTS + 1)]

    assert len(to_response(snapshot(*calls), NOW, 0).requests) == DEFAULT_MAX_REQUESTS == 100
