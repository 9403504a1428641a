"""What callers see of shares, estimates, brown-out and the books, on servers whose decoder is slow on purpose."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from protos import translation_pb2 as pb
from tests.fakes.calls import Calls, calling, error_info, eventually, failure
from tests.fakes.server_process import ServerProcess

SLOW_AND_NARROW = {"ECHO_STEP_S": "0.005", "DRAGOMAN_ENGINE__MAX_ROWS": "4"}
TEXT = "x" * 40  # a fifth of a second
BEAM = pb.TranslateOptions(beam_size=4)
RESOURCE_EXHAUSTED = grpc.StatusCode.RESOURCE_EXHAUSTED


@asynccontextmanager
async def behind_a_queue(server: ServerProcess, **options: Any) -> AsyncIterator[Calls]:
    """Calls to a server that knows how fast it is and has five seconds of work or more."""
    async with calling(server.address) as calls:
        await calls.translate(*[TEXT] * 8, options=BEAM)
        queue = asyncio.ensure_future(calls.translate(*[TEXT] * 40, options=BEAM, **options))
        await eventually(lambda: server.metric("dragoman_queue_work_seconds") > 4.0)
        yield calls
        queue.cancel()


async def test_deadline_that_cannot_be_met_is_refused_at_once_with_a_reason(start_server):
    server = start_server(**SLOW_AND_NARROW)
    async with behind_a_queue(server) as calls:
        error = await failure(calls.translate(TEXT, timeout=2.0))

        assert (error.code(), error_info(error).reason) == (RESOURCE_EXHAUSTED, "deadline_unattainable")
        assert "the deadline is" in (error.details() or "")
        assert int(dict(error.trailing_metadata() or ())["grpc-retry-pushback-ms"]) >= 1_000
        assert server.metric("dragoman_rejected_total", reason="deadline_unattainable") == 1
        assert server.metric("dragoman_running_jobs") + server.metric("dragoman_queue_requests") <= 40


async def test_work_for_longer_than_allowed_is_refused(start_server):
    server = start_server(DRAGOMAN_LIMITS__MAX_QUEUE_SECONDS="1", **SLOW_AND_NARROW)
    async with behind_a_queue(server) as calls:
        error = await failure(calls.translate(TEXT))

        assert (error.code(), error_info(error).reason) == (RESOURCE_EXHAUSTED, "queue_seconds")
        assert server.metric("dragoman_rejected_total", reason="queue_seconds") == 1


async def test_interactive_call_overtakes_batch_work(start_server):
    server = start_server(**SLOW_AND_NARROW)
    async with calling(server.address) as calls:
        await calls.translate(*[TEXT] * 8, options=BEAM)
        document = asyncio.ensure_future(calls.translate(*[TEXT] * 40, options=BEAM, priority=pb.PRIORITY_BATCH))
        await eventually(lambda: server.metric("dragoman_queue_requests") > 20)

        assert await calls.texts("urgent", options=BEAM, timeout=4.0) == ["urgent"]
        assert not document.done()
        document.cancel()


async def test_client_with_one_text_does_not_wait_for_the_queue_of_another(start_server):
    server = start_server(
        DRAGOMAN_SECURITY__IDENTITY_HEADER="x-client", DRAGOMAN_SECURITY__TRUSTED_PROXIES="127.0.0.1", **SLOW_AND_NARROW
    )
    greedy, other = (("x-client", "greedy"),), (("x-client", "other"),)
    async with behind_a_queue(server, metadata=greedy) as calls:
        own = await failure(calls.translate(TEXT, metadata=greedy, timeout=3.0))

        response = await calls.translate("text", metadata=other, timeout=3.0)

        assert error_info(own).reason == "deadline_unattainable"
        assert response.translations[0].hypotheses[0].text == "text"
        assert server.metric("dragoman_queue_requests") > 10


@pytest.mark.parametrize(("allowed", "beam"), [(True, 1), (False, 4)])
async def test_beam_is_smaller_under_load_where_the_caller_allows_it_and_the_answer_says_so(
    start_server, allowed, beam
):
    server = start_server(DRAGOMAN_LIMITS__BROWNOUT_SECONDS="0.5", **SLOW_AND_NARROW)
    async with behind_a_queue(server, priority=pb.PRIORITY_BATCH) as calls:
        options = pb.TranslateOptions(beam_size=4, allow_smaller_beam=allowed)

        response = await calls.translate("text", options=options)

        assert (response.beam_size, response.translations[0].hypotheses[0].text) == (beam, "text")


async def test_usage_is_counted_and_logged_without_the_text(start_server):
    server = start_server()
    async with calling(server.address) as calls:
        await calls.translate("secret one", "", "secret two", options=pb.TranslateOptions(beam_size=2))
    assert server.metric("dragoman_client_texts_total", client="_other") == 3
    source_tokens = server.metric("dragoman_client_tokens_total", direction="source")
    server.terminate()
    server.wait()

    lines = [json.loads(line) for line in server.log_text().splitlines() if '"usage"' in line]
    assert len(lines) == 1
    assert (lines[0]["texts"], lines[0]["characters"], lines[0]["level"]) == (3, 20, "info")
    assert lines[0]["source_tokens"] == lines[0]["target_tokens"] > 0
    assert lines[0]["row_steps"] >= 2 * lines[0]["target_tokens"]
    assert "secret" not in server.log_text()
    assert source_tokens == lines[0]["source_tokens"]
