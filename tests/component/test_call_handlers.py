"""What every call and stream goes through on its way to its handler and back, on a gRPC server in this process."""

import asyncio
import gc
import json
import random
import weakref
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from google.rpc import error_details_pb2

from service.call import Call, Caller
from service.calls.api_keys import digest_of, generate_key
from service.calls.authentication import authenticator
from service.calls.book import REFUSALS_LOGGED
from service.config import SecurityConfig
from service.errors import (
    DeadlineExceeded,
    DragomanError,
    InternalError,
    InvalidInput,
    NotFound,
    Overloaded,
    Unavailable,
)
from service.grpc.call_handlers import MAX_WATCHES
from tests.fakes.calls import eventually, failure, status_of
from tests.fakes.handled_calls import (
    MANY,
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


def broken_observer(_: Call) -> None:
    raise RuntimeError(SECRET)


class TestAnswers:
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

            await asyncio.wait_for(harness.handlers.answers_sent(0.05), 5)
            waiting = asyncio.create_task(harness.handlers.answers_sent(60.0))
            await asyncio.sleep(0)
            has_waited = not waiting.done()

        await asyncio.wait_for(waiting, 5)
        assert has_waited

    async def test_nothing_is_waited_for_when_every_answer_was_taken(self, harness):
        harness.behaviour = answering(b"done")
        await harness.one()
        harness.behaviour = raising(NotFound("no such model"))
        await failure(harness.one())

        await asyncio.wait_for(harness.handlers.answers_sent(60.0), 5)


class TestMessage:
    async def test_call_without_a_message_is_refused(self, harness):
        harness.behaviour = raising(AssertionError("the handler ran"))
        with Peer(harness.port) as peer:
            await asyncio.to_thread(peer.send, headers_frame(1, call_headers(f"/{ONE}"), is_end=True))

            await eventually(lambda: bool(harness.ended))
            assert await harness.books() == {"INVALID_ARGUMENT": 1.0}

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
    async def test_error_in_a_stream_becomes_its_status(self, harness):
        async def stream(request: bytes, call: Call) -> AsyncIterator[bytes]:
            yield b"a"
            raise NotFound("no more")

        harness.stream = stream
        call = harness.many()

        assert await call.read() == b"a"
        assert (await failure(call.read())).details() == "no more"
        assert await harness.books(MANY) == {"NOT_FOUND": 1.0}

    async def test_caller_that_leaves_a_stream_frees_it(self, harness):
        async def stream(request: bytes, call: Call) -> AsyncIterator[bytes]:
            yield b"a"
            await asyncio.Event().wait()

        harness.stream = stream
        call = harness.many()
        await call.read()
        call.cancel()

        assert await harness.books(MANY) == {"CANCELLED": 1.0}

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
        assert error.details() == "128 streams are open, at most 128 may be"
        rejected = harness.metrics.registry.get_sample_value("dragoman_rejected_total", {"reason": "streams"})
        assert rejected == 1.0
        async with asyncio.timeout(10):
            while await opening_code(late := harness.many()) is not grpc.StatusCode.OK:  # it has not seen it leave yet
                pass
        for call in (*open_streams, late):
            call.cancel()


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
        totals = dict.fromkeys(("requests_received_total", "requests_total", "requests_in_flight"), 0.0)
        for family in patient.metrics.registry.collect():
            for sample in family.samples:
                name = sample.name.removeprefix("dragoman_")
                if name in totals:
                    totals[name] += sample.value
        received, answered, in_flight = totals.values()
        differences.append(received - answered - in_flight)

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


async def test_refused_call_leaves_nothing_for_the_garbage_collector(harness):
    refused: list[weakref.ref[Refused]] = []

    async def refuse(request: bytes, call: Call) -> bytes:
        error = Refused("full", reason="queue_full", retry_after_s=1.0)  # its frames lead back to it
        refused.append(weakref.ref(error))
        raise error

    harness.behaviour = refuse
    gc.disable()
    try:
        assert await harness.one().code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        await harness.books()
        for _ in range(3):  # turns of the event loop, in which the server lets go of it
            await asyncio.sleep(0)

        assert refused[0]() is None
    finally:
        gc.enable()


class Refused(Overloaded):
    """One that can be watched."""


class TestErrors:
    @pytest.mark.parametrize(
        ("error", "code"),
        [
            (InvalidInput("bad beam", field="options.beam_size"), grpc.StatusCode.INVALID_ARGUMENT),
            (NotFound("no such pair"), grpc.StatusCode.NOT_FOUND),
            (Overloaded("full", reason="queue_full", retry_after_s=1.5), grpc.StatusCode.RESOURCE_EXHAUSTED),
            (DeadlineExceeded("too late"), grpc.StatusCode.DEADLINE_EXCEEDED),
            (Unavailable("engine lost"), grpc.StatusCode.UNAVAILABLE),
            (InternalError("no numbers"), grpc.StatusCode.INTERNAL),
            (DragomanError("nameless"), grpc.StatusCode.INTERNAL),
        ],
    )
    async def test_domain_error_becomes_its_status_with_its_message(self, harness, error, code):
        harness.behaviour = raising(error)

        received = await failure(harness.one(timeout=30.0))

        assert (received.code(), received.details()) == (code, str(error))
        status = status_of(received)
        assert (status.code, status.message) == (code.value[0], str(error))
        assert await harness.books() == {code.name: 1.0}

    async def test_refusal_says_when_to_come_back(self, harness):
        harness.behaviour = raising(Overloaded("full", reason="queue_full", retry_after_s=1.5))

        received = await failure(harness.one())

        info, retry = error_details_pb2.ErrorInfo(), error_details_pb2.RetryInfo()
        assert status_of(received).details[0].Unpack(info)
        assert status_of(received).details[1].Unpack(retry)
        assert (info.reason, retry.retry_delay.ToMilliseconds()) == ("queue_full", 1_500)
        assert dict(received.trailing_metadata())["grpc-retry-pushback-ms"] == "1500"
        read = harness.metrics.registry.get_sample_value
        assert read("dragoman_rejected_total", {"reason": "queue_full"}) == 1.0

    async def test_bad_field_is_named_for_programs(self, harness):
        harness.behaviour = raising(InvalidInput("bad beam", field="options.beam_size"))

        status = status_of(await failure(harness.one()))

        info, request = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
        assert status.details[0].Unpack(info)
        assert status.details[1].Unpack(request)
        assert (info.reason, info.domain, dict(info.metadata)) == (
            "INVALID_ARGUMENT",
            "dragoman",
            {"field": "options.beam_size"},
        )
        assert request.field_violations[0].field == "options.beam_size"

    async def test_text_of_a_bug_reaches_neither_the_caller_nor_the_log(self, harness, log):
        harness.behaviour = raising(RuntimeError(f"cannot process {SECRET}"))

        error = await failure(harness.one(metadata=(("x-request-id", "abc-1"),)))

        assert error.code() is grpc.StatusCode.INTERNAL
        assert error.details() == "internal error; the server's log has it under request id abc-1"
        event = json.loads(log.getvalue())
        assert (event["event"], event["error"], event["request_id"]) == ("call_failed", "RuntimeError", "abc-1")
        assert "handled_calls.py" in event["trace"]
        assert SECRET not in log.getvalue() + error.debug_error_string()

    async def test_work_that_something_else_cancelled_is_answered(self, harness):
        """CancelledError that escapes while the call lives would leave the caller without an answer for ever."""

        async def behaviour(request: bytes, call: Call) -> bytes:
            inner = asyncio.get_running_loop().create_future()
            inner.cancel()
            await inner
            raise AssertionError

        harness.behaviour = behaviour

        assert (await failure(harness.one())).code() is grpc.StatusCode.UNAVAILABLE
        assert await harness.books() == {"UNAVAILABLE": 1.0}

    async def test_malformed_request_is_refused_before_the_handler(self, harness):
        harness.behaviour = raising(AssertionError("the handler ran"))

        error = await failure(harness.one(b"bad"))

        assert (error.code(), error.details()) == (grpc.StatusCode.INVALID_ARGUMENT, "texts[0] is not valid UTF-8")

    async def test_long_message_is_cut_before_it_breaks_the_trailers(self, harness):
        harness.behaviour = raising(NotFound("x" * 100_000))

        error = await failure(harness.one())

        assert (error.code(), error.details()) == (grpc.StatusCode.NOT_FOUND, "x" * 1_000)


class TestTime:
    @pytest.mark.parametrize(
        ("timeout_s", "least_s", "limit_s"), [(30.0, 20.0, None), (None, 60.0, 60.0), (3_600.0, 60.0, 60.0)]
    )
    async def test_deadline_is_the_caller_s_or_the_server_s_limit_whichever_is_nearer(
        self, harness, timeout_s, least_s, limit_s
    ):
        harness.behaviour = answering(b"")

        await harness.one(timeout=timeout_s)
        await eventually(lambda: bool(harness.ended))

        (call,) = harness.ended
        assert least_s <= call.deadline - call.started < least_s + 10.1
        assert call.limit_s == limit_s

    @pytest.mark.promise("B5")
    async def test_call_over_the_server_s_limit_ends_with_deadline_exceeded(self, impatient):
        impatient.behaviour = forever

        error = await failure(impatient.one())

        assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert error.details() == "the call took longer than 0.05 s, the most this server allows"
        assert await impatient.books() == {"DEADLINE_EXCEEDED": 1.0}

    async def test_late_job_of_a_call_without_deadline_names_the_server_s_limit(self, impatient):
        impatient.behaviour = raising(DeadlineExceeded("while decoding"))

        assert "most this server allows" in ((await failure(impatient.one())).details() or "")

    async def test_caller_whose_deadline_is_rounded_up_is_late_and_has_not_cancelled(self, harness):
        """1.005 s is sent as 1.01 s: the caller's own clock ends the call before the server's does."""
        harness.behaviour = echo_soon
        await harness.one()  # connected: what is left of the deadline is sent at once
        harness.behaviour = forever

        async def is_late() -> bool:
            assert (await failure(harness.one(timeout=1.005))).code() is grpc.StatusCode.DEADLINE_EXCEEDED
            return bool((await harness.books()).get("DEADLINE_EXCEEDED") == 1.0)

        assert await is_late() or await is_late()  # a busy machine may read a call's headers 50 ms late, once

    async def test_call_of_a_client_without_a_clock_ends_at_the_deadline_that_it_sent(self, harness):
        harness.behaviour = forever
        with Peer(harness.port) as peer:
            headers = headers_frame(1, call_headers(f"/{ONE}", [("grpc-timeout", "100m")]))
            await asyncio.to_thread(peer.send, headers + data_frame(1, grpc_message(b"hi"), is_end=True))

            await eventually(lambda: bool(harness.ended))
            assert await harness.books() == {"DEADLINE_EXCEEDED": 1.0}


class Full:
    """Refuses the first calls, so many, and notes what it was told of each call."""

    def __init__(self, num_refused: int) -> None:
        self._num_refused = num_refused
        self.told: list[tuple[str, float]] = []

    def refuse(self, caller: Caller, deadline: float) -> DragomanError | None:
        self.told.append((caller.name, deadline))
        if len(self.told) > self._num_refused:
            return None
        return Overloaded("full", reason="queue_full", retry_after_s=0.01)


class TestRefusalsBeforeTheMessage:
    async def test_refused_call_is_not_parsed_and_is_told_what_a_later_refusal_tells(self):
        async with Harness(60.0, refuse=Full(1).refuse).running() as server:
            server.behaviour = raising(Overloaded("full", reason="queue_full", retry_after_s=0.01))
            early = await failure(server.one(b"x" * 3_000_000, metadata=(("x-request-id", "mine"),)))
            num_parsed = len(server.parsed)
            late = await failure(server.one(metadata=(("x-request-id", "mine"),)))

            assert (num_parsed, len(server.parsed)) == (0, 1)
            assert (early.code(), early.details()) == (late.code(), late.details())
            assert dict(early.trailing_metadata()) == dict(late.trailing_metadata())
            assert dict(early.trailing_metadata())["grpc-retry-pushback-ms"] == "10"
            assert dict(early.trailing_metadata())["x-request-id"] == "mine"
            assert await server.books() == {"RESOURCE_EXHAUSTED": 2.0}
            assert server.metrics.registry.get_sample_value("dragoman_rejected_total", {"reason": "queue_full"}) == 2.0

    async def test_only_calls_of_refusable_methods_are_asked_about_with_their_caller_and_deadline(self):
        full = Full(0)

        async def stream(request: bytes, call: Call) -> AsyncIterator[bytes]:
            yield request

        async with Harness(60.0, refuse=full.refuse).running() as server:
            server.behaviour, server.stream = answering(b"done"), stream
            assert await server.one() == b"done"
            assert await server.many().read() == b"hi"
            await eventually(lambda: len(server.ended) == 2)

            assert full.told == [("127.0.0.1", server.ended[0].deadline)]

    async def test_client_with_a_retry_policy_comes_again_when_it_is_told_to(self):
        """Its own backoff is longer than the call may take."""
        policy = {
            "maxAttempts": 3,
            "initialBackoff": "300s",
            "maxBackoff": "300s",
            "backoffMultiplier": 1,
            "retryableStatusCodes": ["RESOURCE_EXHAUSTED"],
        }
        config = json.dumps({"methodConfig": [{"name": [{}], "retryPolicy": policy}]})
        full = Full(2)
        async with Harness(60.0, refuse=full.refuse).running() as server:
            server.behaviour = answering(b"done")
            options = [("grpc.service_config", config)]
            async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}", options) as channel:
                method: Any = channel.unary_unary(f"/{ONE}")
                assert await method(b"hi", timeout=30.0) == b"done"

            assert len(full.told) == 3
            assert await server.books() == {"OK": 1.0, "RESOURCE_EXHAUSTED": 2.0}


KEY, LIMITED = generate_key(), generate_key()


@pytest.fixture
def keys_file(tmp_path: Path) -> Path:
    file = tmp_path / "keys.toml"
    entries = ((KEY, "shop", ""), (LIMITED, "limited", 'models = ["small"]'))
    written = (f'[[keys]]\nname = "{name}"\nsha256 = "{digest_of(key).hex()}"\n{more}' for key, name, more in entries)
    file.write_text("\n".join(written))
    return file


@pytest.fixture
async def guarded(keys_file: Path) -> AsyncIterator[Harness]:
    async with Harness(60.0, authenticator(SecurityConfig(api_keys=keys_file))).running() as running:
        yield running


def bearing(key: str) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {key}"),)


class TestKeys:
    async def test_call_without_a_key_is_refused_before_its_request_is_parsed(self, guarded):
        guarded.behaviour = raising(AssertionError("the handler ran"))

        error = await failure(guarded.one(b"x" * 3_000_000))

        assert error.code() is grpc.StatusCode.UNAUTHENTICATED
        assert guarded.parsed == []
        assert await guarded.books() == {"UNAUTHENTICATED": 1.0}

    async def test_call_knows_whose_key_it_came_with_else_where_it_came_from(self, guarded, harness):
        for server, metadata in ((guarded, bearing(KEY)), (harness, ())):
            server.behaviour = answering(b"")
            await server.one(metadata=metadata)
            await server.books()

        callers = [server.ended[0].caller for server in (guarded, harness)]
        assert [(caller.source, caller.name) for caller in callers] == [("key", "shop"), ("peer", "127.0.0.1")]

    async def test_key_counts_more_than_the_proxy_s_word(self, keys_file):
        settings = SecurityConfig(api_keys=keys_file, identity_header="x-client", trusted_proxies="127.0.0.1")
        async with Harness(60.0, authenticator(settings)).running() as server:
            server.behaviour = answering(b"")
            await server.one(metadata=(*bearing(KEY), ("x-client", "somebody")))
            await server.books()

        assert server.ended[0].caller.identity == ("key", "shop")

    async def test_key_for_some_models_opens_no_other(self, guarded):
        async def behaviour(request: bytes, call: Call) -> bytes:
            call.use_model(request.decode())
            return b"done"

        guarded.behaviour = behaviour

        assert await guarded.one(b"small", metadata=bearing(LIMITED)) == b"done"
        assert await guarded.one(b"large", metadata=bearing(KEY)) == b"done"
        error = await failure(guarded.one(b"large", metadata=bearing(LIMITED)))
        assert (error.code(), error.details()) == (
            grpc.StatusCode.PERMISSION_DENIED,
            "the API key of limited is not for the model large",
        )

    async def test_refusals_are_logged_without_the_key_and_only_so_often(self, guarded, log):
        for number in range(REFUSALS_LOGGED + 5):
            await failure(guarded.one(metadata=(*bearing("almost" + KEY[9:]), ("x-request-id", f"call-{number}"))))

        events = [json.loads(line) for line in log.getvalue().splitlines()]
        assert [event["request_id"] for event in events] == [f"call-{number}" for number in range(REFUSALS_LOGGED)]
        assert (events[0]["event"], events[0]["code"], events[0]["client"]) == (
            "call_refused",
            "UNAUTHENTICATED",
            "127.0.0.1",
        )
        assert KEY[9:] not in log.getvalue()
