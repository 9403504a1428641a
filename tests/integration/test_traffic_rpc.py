"""What callers see of shares, estimates, brown-out and the books, on servers whose decoder is slow on purpose."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from protos import translation_pb2 as pb
from tests.fakes.calls import Calls, calling, error_info, eventually, failure, words
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
    server = start_server(**SLOW_AND_NARROW)
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
