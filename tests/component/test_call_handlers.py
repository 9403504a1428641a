"""What every call and stream goes through on its way to its handler and back, on a gRPC server in this process."""

import asyncio
import random
from collections.abc import AsyncIterator

import grpc
import grpc.aio
import pytest

from service.call import Call
from service.errors import (
    InvalidInput,
    Overloaded,
    Unavailable,
)
from tests.fakes.books import imbalance, sample_of
from tests.fakes.calls import eventually, failure
from tests.fakes.handled_calls import (
    MAX_WATCHES,
    ONE,
    SECRET,
    Behaviour,
    Harness,
    answering,
    echo_soon,
    forever,
    harness,
    impatient,
    opening_code,
    raising,
)
from tests.fakes.http2_peer import Peer, call_headers, data_frame, grpc_message, headers_frame, reset_frame
from tests.fakes.logs import log

__all__ = ["harness", "impatient", "log"]


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

            await asyncio.wait_for(harness.handlers.answers_sent(0.05), 60)
            waiting = asyncio.create_task(harness.handlers.answers_sent(60.0))
            await asyncio.sleep(0)
            has_waited = not waiting.done()

        await asyncio.wait_for(waiting, 60)
        assert has_waited


class TestMessage:
    @pytest.mark.parametrize("leave", [reset_frame(1), b""])
    async def test_caller_that_leaves_before_its_message_is_there_has_cancelled(self, harness, leave):
        with Peer(harness.port) as peer:
            await asyncio.to_thread(peer.send, headers_frame(1, call_headers(f"/{ONE}")))
            await eventually(lambda: bool(harness.book.calls))
            await asyncio.to_thread(peer.send, leave)
            if not leave:
                peer.close()

            await eventually(lambda: bool(harness.ended))
            assert await harness.books() == {"CANCELLED": 1.0}

    @pytest.mark.promise("B5")
    async def test_call_whose_message_does_not_come_ends_at_the_server_s_limit(self, impatient):
        with Peer(impatient.port) as peer:
            await asyncio.to_thread(peer.send, headers_frame(1, call_headers(f"/{ONE}")))

            await eventually(lambda: bool(impatient.ended))
            assert await impatient.books() == {"DEADLINE_EXCEEDED": 1.0}


class TestRequestId:
    @pytest.mark.parametrize("given", ["", "has space", "x" * 129, 'quote"'])
    async def test_id_that_does_not_belong_into_a_log_is_replaced(self, harness, given):
        async def behaviour(request: bytes, call: Call) -> bytes:
            return call.request_id.encode()

        harness.behaviour = behaviour
        call = harness.one(metadata=(("x-request-id", given),))

        used = (await call).decode()

        assert len(used) == 32
        assert dict(await call.trailing_metadata())["x-request-id"] == used


class TestStreams:
    async def test_streams_over_their_limit_are_refused_and_a_closed_one_makes_room(self, harness):
        async def stream(request: bytes, call: Call) -> AsyncIterator[bytes]:
            yield b"a"
            await asyncio.Event().wait()

        harness.stream = stream
        open_streams = [harness.many() for _ in range(MAX_WATCHES)]
        for call in open_streams:
            assert await call.read() == b"a"

        error = await failure(harness.many().read())
        open_streams[0].cancel()

        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert error.details() == "16 streams are open, at most 16 may be"
        rejected = sample_of(harness.metrics, "dragoman_rejected_total", {"reason": "streams"})
        assert rejected == 1.0
        async with asyncio.timeout(10):
            while await opening_code(late := harness.many()) is not grpc.StatusCode.OK:  # it has not seen it leave yet
                pass
        for call in (*open_streams, late):
            call.cancel()


OUTCOMES: tuple[Behaviour, ...] = (
    echo_soon,
    forever,
    raising(InvalidInput("bad", field="texts")),
    raising(Overloaded("full", reason="queue_full", retry_after_s=1.0)),
    raising(Unavailable("gone")),
    raising(RuntimeError(SECRET)),
)


@pytest.fixture
async def patient() -> AsyncIterator[Harness]:
    """One that lets calls take half a second, so that a caller can leave before."""
    async with Harness(max_request_seconds=0.5).running() as running:
        yield running


async def test_received_is_always_answered_plus_in_flight(patient, log):
    """Whatever becomes of a call: answered, refused, failed, cancelled by its caller, or out of time."""
    chance = random.Random(7)
    differences: list[float] = []  # an assertion in a handler would only be one more error of a call

    def check() -> None:
        differences.append(sum(map(abs, imbalance(b"".join(patient.metrics.exposition()).decode()).values())))

    async def behaviour(request: bytes, call: Call) -> bytes:
        check()
        try:
            if request in left:
                left[request].set()
                return await forever(request, call)
            return await chance.choice(OUTCOMES)(request, call)
        finally:
            check()

    async def one_call(_: int) -> None:
        method = "/test.Service/Nowhere" if chance.random() < 0.1 else f"/{ONE}"
        call = patient.channel.unary_unary(method)(b"bad" if chance.random() < 0.1 else b"hi")
        await asyncio.gather(call, return_exceptions=True)
        check()

    async def left_call(name: bytes) -> None:
        call = patient.one(name)
        await left[name].wait()
        call.cancel()
        check()

    left = {b"left %d" % number: asyncio.Event() for number in range(20)}
    patient.behaviour = behaviour
    await asyncio.gather(*map(one_call, range(200)), *map(left_call, left))

    answered = await patient.books()
    check()
    assert len(differences) > 400
    assert set(differences) == {0.0}
    assert {"OK", "INVALID_ARGUMENT", "UNAVAILABLE", "INTERNAL", "DEADLINE_EXCEEDED", "CANCELLED"} <= answered.keys()
