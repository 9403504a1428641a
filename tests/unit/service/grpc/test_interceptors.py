"""What every call and stream goes through on its way to its handler and back."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
import pytest

from service.errors import NotFound
from service.grpc.call import current_call
from service.grpc.interceptors import MAX_WATCHES
from service.telemetry.calls import EndedCall, current_progress
from tests.fakes.calls import eventually, failure
from tests.fakes.http2_peer import Peer, call_headers, data_frame, grpc_message, headers_frame
from tests.fakes.intercepted_server import MANY, ONE, SECRET, answering, harness, opening_code, raising
from tests.fakes.logs import log

__all__ = ["harness", "log"]


def broken_observer(_: EndedCall) -> None:
    raise RuntimeError(SECRET)


class TestAnswers:
    async def test_answer_passes_and_is_counted_with_its_model(self, harness):
        async def behaviour(request: bytes, context: Any) -> bytes:
            current_call().use_model("m")
            current_call().priority = "batch"
            return request + b"!"

        harness.behaviour = behaviour

        assert await harness.one() == b"hi!"
        assert await harness.books() == {"OK": 1.0}
        read = harness.metrics.registry.get_sample_value
        labels = {"method": ONE, "model": "m", "priority": "batch", "code_class": "ok"}
        assert read("dragoman_request_duration_seconds_count", labels) == 1.0

    async def test_method_without_a_label_of_its_own_counts_as_other(self, harness):
        async def behaviour(request: bytes, context: Any) -> bytes:
            return b""

        harness.behaviour = behaviour
        await harness.channel.unary_unary("/test.Service/Unlisted")(b"")

        assert await harness.books("_other") == {"OK": 1.0}

    async def test_unknown_method_is_unimplemented_and_counted_as_other(self, harness):
        error = await failure(harness.channel.unary_unary("/test.Service/Nothing")(b""))

        assert (error.code(), error.details()) == (grpc.StatusCode.UNIMPLEMENTED, "Method not found!")
        assert len(dict(error.trailing_metadata())["x-request-id"]) == 32
        assert await harness.books("_other") == {"UNIMPLEMENTED": 1.0}


class TestEnd:
    async def test_answers_on_their_way_are_waited_for_until_they_are_taken_or_the_time_is_over(self, harness):
        """An answer larger than HTTP/2's first window, for a caller who never makes it wider."""

        harness.behaviour = answering(b"x" * 200_000)
        with Peer(harness.port) as peer:
            call = headers_frame(1, call_headers(f"/{ONE}")) + data_frame(1, grpc_message(b"hi"), is_end=True)
            await asyncio.to_thread(peer.send, call)
            async with asyncio.timeout(5):
                while not harness.ended:  # noqa: ASYNC110  books raise no events
                    await asyncio.sleep(0.01)

            await asyncio.wait_for(harness.interceptor.answers_sent(0.05), 5)
            waiting = asyncio.create_task(harness.interceptor.answers_sent(60.0))
            await asyncio.sleep(0)
            has_waited = not waiting.done()

        await asyncio.wait_for(waiting, 5)
        assert has_waited

    async def test_nothing_is_waited_for_when_every_answer_was_taken(self, harness):
        harness.behaviour = answering(b"done")
        await harness.one()
        harness.behaviour = raising(NotFound("no such model"))
        await failure(harness.one())

        await asyncio.wait_for(harness.interceptor.answers_sent(60.0), 5)


class TestRequestId:
    async def test_caller_s_id_comes_back(self, harness):
        harness.behaviour = raising(NotFound("x"))

        error = await failure(harness.one(metadata=(("x-request-id", "order-66"),)))

        assert dict(error.trailing_metadata())["x-request-id"] == "order-66"

    @pytest.mark.parametrize("given", ["", "has space", "x" * 129, 'quote"'])
    async def test_id_that_does_not_belong_into_a_log_is_replaced(self, harness, given):
        async def behaviour(request: bytes, context: Any) -> bytes:
            return current_call().request_id.encode()

        harness.behaviour = behaviour
        call = harness.one(metadata=(("x-request-id", given),))

        used = (await call).decode()

        assert len(used) == 32
        assert dict(await call.trailing_metadata())["x-request-id"] == used


class TestStreams:
    async def test_stream_passes_and_is_counted(self, harness):
        async def stream(request: bytes, context: Any) -> AsyncIterator[bytes]:
            yield b"a"
            yield b"b"

        harness.stream = stream

        assert [item async for item in harness.many()] == [b"a", b"b"]
        assert await harness.books(MANY) == {"OK": 1.0}

    async def test_error_in_a_stream_becomes_its_status(self, harness):
        async def stream(request: bytes, context: Any) -> AsyncIterator[bytes]:
            yield b"a"
            raise NotFound("no more")

        harness.stream = stream
        call = harness.many()

        assert await call.read() == b"a"
        assert (await failure(call.read())).details() == "no more"
        assert await harness.books(MANY) == {"NOT_FOUND": 1.0}

    async def test_malformed_request_of_a_stream_is_refused(self, harness):
        assert (await failure(harness.many(b"bad").read())).code() is grpc.StatusCode.INVALID_ARGUMENT

    async def test_caller_that_leaves_a_stream_frees_it(self, harness):
        async def stream(request: bytes, context: Any) -> AsyncIterator[bytes]:
            yield b"a"
            await asyncio.Event().wait()

        harness.stream = stream
        call = harness.many()
        await call.read()
        call.cancel()

        assert await harness.books(MANY) == {"CANCELLED": 1.0}

    async def test_streams_over_their_limit_are_refused_and_a_closed_one_makes_room(self, harness):
        async def stream(request: bytes, context: Any) -> AsyncIterator[bytes]:
            yield b"a"
            await asyncio.Event().wait()

        harness.stream = stream
        open_streams = [harness.many() for _ in range(MAX_WATCHES)]
        for call in open_streams:
            assert await call.read() == b"a"

        error = await failure(harness.many().read())
        open_streams[0].cancel()

        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert error.details() == "128 streams are open, at most 128 may be"
        rejected = harness.metrics.registry.get_sample_value("dragoman_rejected_total", {"reason": "streams"})
        assert rejected == 1.0
        async with asyncio.timeout(10):
            while await opening_code(late := harness.many()) is not grpc.StatusCode.OK:  # it has not seen it leave yet
                pass
        for call in (*open_streams, late):
            call.cancel()


async def test_a_call_is_listed_from_its_beginning_to_its_end(harness):
    entered, may_leave = asyncio.Event(), asyncio.Event()

    async def behaviour(request: bytes, context: Any) -> bytes:
        current_call().use_model("m")
        entered.set()
        await may_leave.wait()
        return request

    harness.behaviour = behaviour
    call = asyncio.ensure_future(harness.one(metadata=(("x-request-id", "mine"),)))
    await entered.wait()
    (listed,) = harness.interceptor.calls
    may_leave.set()
    await call

    assert (listed.method, listed.request_id, listed.model) == (ONE, "mine", "m")
    await eventually(lambda: harness.interceptor.calls == set())


async def test_observers_hear_of_a_call_when_it_ended_and_a_broken_one_disturbs_nothing(harness, log):
    harness.behaviour = raising(NotFound("no such model"))
    harness.observers.insert(0, broken_observer)
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    await failure(harness.one(metadata=(("x-request-id", "mine"), ("traceparent", trace), ("cookie", SECRET))))

    await eventually(lambda: bool(harness.ended))  # the caller may have the status before
    (ended,) = harness.ended
    assert (ended.method, ended.request_id, ended.code) == (ONE, "mine", "NOT_FOUND")
    assert ended.trace_headers == {"traceparent": trace}
    assert '"observer_failed"' in log.getvalue()
    assert SECRET not in log.getvalue()


async def test_a_call_s_progress_is_that_of_the_tasks_it_starts(harness):
    async def advance() -> None:
        current_progress().phase = "decode"
        current_progress().finished_texts += 1

    async def behaviour(request: bytes, context: Any) -> bytes:
        await asyncio.gather(advance(), advance())
        return request

    harness.behaviour = behaviour
    await harness.one()

    await eventually(lambda: bool(harness.ended))  # the caller may have the status before
    (ended,) = harness.ended
    assert (ended.progress.phase, ended.progress.finished_texts) == ("decode", 2)
