"""Deadlines, cancellation, full queues and sentences without numbers, on servers whose decoder is held on purpose."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2

from protos import translation_pb2 as pb
from tests.fakes.calls import Calls, calling, code_of, error_info, eventually, failure, status_of, words
from tests.fakes.server_process import ServerProcess

LONG_S = 600.0  # a busy machine may need minutes for the queue, and a queue that is refused is none
SLOW_AND_NARROW = {
    "ECHO_STEP_S": "0.005",
    "DRAGOMAN_ENGINE__MAX_ROWS": "4",
    "DRAGOMAN_LIMITS__MAX_REQUEST_SECONDS": str(LONG_S),
}
TEXT = words(40)  # a fifth of a second
BEAM = pb.TranslateOptions(beam_size=4)
RESOURCE_EXHAUSTED = grpc.StatusCode.RESOURCE_EXHAUSTED


@asynccontextmanager
async def behind_a_queue(server: ServerProcess, **options: Any) -> AsyncIterator[Calls]:
    """Calls to a server that knows how fast it is and has ten seconds of work or more."""
    async with calling(server.address) as calls:
        await calls.translate(*[TEXT] * 8, options=BEAM)
        queue = asyncio.ensure_future(calls.translate(*[TEXT] * 80, options=BEAM, timeout=LONG_S, **options))
        await eventually(lambda: server.metric("dragoman_queue_work_seconds") > 4.0)
        yield calls
        queue.cancel()


@pytest.mark.promise("D3")
async def test_deadline_that_cannot_be_met_is_refused_at_once_with_a_reason(start_server):
    server = start_server(DRAGOMAN_LIMITS__MAX_QUEUE_SECONDS="600", **SLOW_AND_NARROW)
    async with behind_a_queue(server) as calls:
        error = await failure(calls.translate(TEXT, timeout=2.0))

        assert (error.code(), error_info(error).reason) == (RESOURCE_EXHAUSTED, "deadline_unattainable")
        assert "the deadline is" in (error.details() or "")
        assert int(dict(error.trailing_metadata() or ())["grpc-retry-pushback-ms"]) >= 1_000
        assert server.metric("dragoman_rejected_total", reason="deadline_unattainable") == 1
        assert server.metric("dragoman_running_jobs") + server.metric("dragoman_queue_requests") <= 80


@pytest.mark.parametrize(("allowed", "beam"), [(True, 1), (False, 4)])
async def test_beam_is_smaller_under_load_where_the_caller_allows_it_and_the_answer_says_so(
    start_server, allowed, beam
):
    server = start_server(DRAGOMAN_LIMITS__BROWNOUT_SECONDS="0.5", **SLOW_AND_NARROW)
    async with behind_a_queue(server, priority=pb.PRIORITY_BATCH) as calls:
        options = pb.TranslateOptions(beam_size=4, allow_smaller_beam=allowed)

        response = await calls.translate("text", options=options)

        assert (response.beam_size, response.translations[0].hypotheses[0].text) == (beam, "text")


LONG = words(200)


def is_idle(server: ServerProcess) -> Callable[[], bool]:
    return lambda: server.metric("dragoman_running_jobs") == 0 and server.metric("dragoman_queue_requests") == 0


@pytest.mark.promise("B4")
async def test_deadline_in_mid_decode_frees_the_rows(start_server):
    server = start_server()
    async with calling(server.address) as calls:
        await calls.texts("warm")

        with server.held():
            error = await failure(calls.translate(LONG, LONG, timeout=2.0))

        assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        await eventually(is_idle(server))
        # By the server's clock or the client's: on a busy machine either may be the first.
        reasons, codes = ("deadline", "cancelled"), ("DEADLINE_EXCEEDED", "CANCELLED")
        freed = [server.metric("dragoman_cancelled_total", where="decode", reason=reason) for reason in reasons]
        assert sum(freed) == 2
        await eventually(lambda: sum(server.metric("dragoman_requests_total", code=code) for code in codes) == 1)
        assert await calls.texts("next") == ["next"]


@pytest.mark.promise("B2")
async def test_cancelled_call_frees_its_rows_and_leaves_its_neighbour_alone(start_server):
    server = start_server()
    async with calling(server.address) as calls:
        with server.held():
            neighbour = asyncio.ensure_future(calls.texts("good neighbour " * 9 + "here"))
            leaving = calls.translate(*[LONG] * 5)
            await eventually(lambda: server.metric("dragoman_running_jobs") == 6)

            leaving.cancel()

            await eventually(lambda: server.metric("dragoman_requests_total", code="CANCELLED") == 1)
        assert await neighbour == ["good neighbour " * 9 + "here"]
        await eventually(is_idle(server))
        assert server.metric("dragoman_cancelled_total", where="decode", reason="cancelled") == 5


@pytest.mark.promise("B1")
async def test_job_cancelled_in_the_queue_never_runs(start_server):
    """With room for one row and eight more to come, most of these texts wait in the core."""
    server = start_server(DRAGOMAN_ENGINE__MAX_ROWS="1")
    async with calling(server.address) as calls:
        with server.held():
            leaving = calls.translate(*[LONG] * 40, options=pb.TranslateOptions(beam_size=1))
            await eventually(lambda: server.metric("dragoman_queue_requests") >= 30)

            leaving.cancel()

            await eventually(lambda: server.metric("dragoman_requests_total", code="CANCELLED") == 1)
        await eventually(is_idle(server))
        dropped = server.metric("dragoman_cancelled_total", where="queue", reason="cancelled")
        assert dropped >= 30
        assert dropped + server.metric("dragoman_cancelled_total", where="decode", reason="cancelled") == 40
        assert server.metric("dragoman_decode_steps_total") < 200


@pytest.mark.promise("B6")
async def test_client_that_is_killed_frees_its_rows(start_server):
    import subprocess
    import sys

    from tests.fakes.server_process import ROOT

    server = start_server()
    program = (
        "import grpc; from protos import translation_pb2 as pb, translation_pb2_grpc as stubs\n"
        f"stub = stubs.TranslationServiceStub(grpc.insecure_channel('{server.address}'))\n"
        f"stub.Translate(pb.TranslateRequest(texts=['{LONG}'] * 3))"
    )
    with server.held():
        client = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT)  # noqa: ASYNC220  it is only killed
        await eventually(lambda: server.metric("dragoman_running_jobs") == 3)

        client.kill()
        client.wait()

        await eventually(lambda: server.metric("dragoman_requests_total", code="CANCELLED") == 1)
    await eventually(is_idle(server))
    assert server.metric("dragoman_cancelled_total", where="decode", reason="cancelled") == 3


@pytest.mark.promise("D1", "D7")
@pytest.mark.parametrize(("limit", "num_calls"), [(8, 10), (50, 120)])
async def test_full_server_refuses_exactly_the_calls_too_many(start_server, limit, num_calls):
    server = start_server(DRAGOMAN_LIMITS__MAX_CONCURRENT_REQUESTS=str(limit))
    async with calling(server.address) as calls, calling(server.address) as others:
        callers = (calls, others)  # one connection may have fewer calls at a time
        with server.held():
            answers = asyncio.gather(*(code_of(callers[n % 2].translate(words(50))) for n in range(num_calls)))
            await eventually(lambda: server.metric("dragoman_rejected_total") == num_calls - limit)
        codes = await answers

        assert sorted(code.name for code in codes) == ["OK"] * limit + ["RESOURCE_EXHAUSTED"] * (num_calls - limit)
        assert server.metric("dragoman_rejected_total", reason="queue_full") == num_calls - limit
        assert await calls.texts("next") == ["next"]


@pytest.mark.promise("B15")
async def test_refusal_tells_a_program_why_and_when_to_come_back(start_server):
    server = start_server(DRAGOMAN_LIMITS__MAX_QUEUED_TOKENS="100", DRAGOMAN_LIMITS__RETRY_AFTER_S="0.25")
    async with calling(server.address) as calls:
        with server.held():
            first = calls.translate(words(90))
            await eventually(lambda: server.metric("dragoman_running_jobs") == 1)

            error = await failure(calls.translate(words(90)))

        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert error.details() == (
            "90 characters, 92 source tokens wait or run and the request has 90 characters, "
            "at most 800 characters, 100 tokens may"
        )
        trailers = dict(error.trailing_metadata())
        retry = error_details_pb2.RetryInfo()
        assert status_of(error).details[1].Unpack(retry)
        assert (trailers["grpc-retry-pushback-ms"], retry.retry_delay.ToMilliseconds()) == ("250", 250)
        assert error_info(error).reason == "token_budget"
        assert (await first).translations[0].status.code == 0


@pytest.mark.promise("E1")
async def test_sentence_without_numbers_fails_alone(start_server):
    server = start_server(ECHO_NAN_LENGTH="5")
    async with calling(server.address) as calls:
        response = await calls.translate("before", "Nan", "after")  # word mark, three letters, end: five tokens

        codes = [translation.status.code for translation in response.translations]
        assert codes == [0, grpc.StatusCode.INTERNAL.value[0], 0]
        assert [response.translations[index].hypotheses[0].text for index in (0, 2)] == ["before", "after"]
        assert server.metric("dragoman_failed_texts_total") == 1
