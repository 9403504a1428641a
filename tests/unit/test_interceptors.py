"""What every call goes through, on a real gRPC server with handlers that the test scripts."""

import asyncio
import gc
import json
import random
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from io import StringIO
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from google.rpc import error_details_pb2, status_pb2

from service.api.api_keys import KeyFile, digest_of, generate_key
from service.api.authentication import Authenticator
from service.api.call import Call, current_call
from service.api.interceptors import MAX_WATCHES, REFUSALS_LOGGED, CallInterceptor, _late_from
from service.api.wire import Malformed
from service.config import TelemetryConfig
from service.errors import (
    DeadlineExceeded,
    DragomanError,
    InternalError,
    InvalidInput,
    NotFound,
    Overloaded,
    Unavailable,
)
from service.telemetry.calls import CallObserver, EndedCall, current_progress
from service.telemetry.logs import configure_logging
from service.telemetry.metrics import Metrics
from tests.fakes.http2_peer import Peer, call_headers, data_frame, grpc_message, headers_frame

ONE, MANY, SECRET = "test.Service/One", "test.Service/Many", "geheim"
Behaviour = Callable[[bytes, Any], Awaitable[bytes]]


def parse(data: bytes) -> bytes | Malformed:
    return Malformed("texts[0] is not valid UTF-8", "texts[0]") if data == b"bad" else data


def broken_observer(_: EndedCall) -> None:
    raise RuntimeError(SECRET)


class Harness:
    """A server whose One method runs `behaviour` and whose Many method streams `stream`."""

    def __init__(self, max_request_seconds: float, authenticator: Authenticator | None = None) -> None:
        self.metrics = Metrics()
        self.ended: list[EndedCall] = []
        self.observers: list[CallObserver] = [self.ended.append]
        self.interceptor = CallInterceptor(
            self.metrics,
            methods=frozenset({ONE, MANY}),
            max_request_seconds=max_request_seconds,
            authenticator=authenticator,
            observers=self.observers,
        )
        self.behaviour: Behaviour
        self.stream: Callable[..., AsyncIterator[bytes]]
        self.server = grpc.aio.server(interceptors=[self.interceptor])
        handlers: Any = {
            "One": grpc.unary_unary_rpc_method_handler(self._one, request_deserializer=parse),
            "Many": grpc.unary_stream_rpc_method_handler(self._many, request_deserializer=parse),
            "Unlisted": grpc.unary_unary_rpc_method_handler(self._one),
        }
        self.server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Service", handlers),))
        self.port = self.server.add_insecure_port("127.0.0.1:0")

    async def _one(self, request: bytes, context: Any) -> bytes:
        return await self.behaviour(request, context)

    async def _many(self, request: bytes, context: Any) -> AsyncIterator[bytes]:
        async for item in self.stream(request, context):
            yield item

    def one(self, request: bytes = b"hi", **options: Any) -> Any:
        method: Any = self.channel.unary_unary(f"/{ONE}")
        return method(request, **options)

    def many(self, request: bytes = b"hi") -> Any:
        method: Any = self.channel.unary_stream(f"/{MANY}")
        return method(request)

    async def books(self, method: str = ONE) -> dict[str, float]:
        """Received, in flight, and answered by code, once every call that was cancelled is in the books."""
        read = self.metrics.registry.get_sample_value
        async with asyncio.timeout(5):
            while read("dragoman_requests_in_flight", {"method": method}):  # noqa: ASYNC110  books raise no events
                await asyncio.sleep(0.01)
        samples = [sample for family in self.metrics.registry.collect() for sample in family.samples]
        answered = {
            sample.labels["code"]: sample.value
            for sample in samples
            if sample.name == "dragoman_requests_total" and sample.labels["method"] == method
        }
        received = read("dragoman_requests_received_total", {"method": method}) or 0.0
        assert received == sum(answered.values())
        return answered

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Harness"]:
        await self.server.start()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{self.port}") as self.channel:
            yield self
        await self.server.stop(None)


@pytest.fixture
async def harness() -> AsyncIterator[Harness]:
    async with Harness(max_request_seconds=60.0).running() as running:
        yield running


@pytest.fixture
async def impatient() -> AsyncIterator[Harness]:
    async with Harness(max_request_seconds=0.05).running() as running:
        yield running


@pytest.fixture
def log() -> StringIO:
    stream = StringIO()
    configure_logging(TelemetryConfig(log_format="json"), stream)
    return stream


def raising(error: BaseException) -> Behaviour:
    async def behaviour(request: bytes, context: Any) -> bytes:
        raise error

    return behaviour


def answering(answer: bytes) -> Behaviour:
    async def behaviour(request: bytes, context: Any) -> bytes:
        return answer

    return behaviour


async def forever(request: bytes, context: Any) -> bytes:
    await asyncio.Event().wait()
    raise AssertionError


async def failure(call: Any) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await asyncio.wait_for(call, 10)
    return error.value


async def code_of(call: Any) -> grpc.StatusCode:
    """The status of a stream after its first message."""
    try:
        return grpc.StatusCode.OK if await call.read() else grpc.StatusCode.UNKNOWN
    except grpc.aio.AioRpcError as error:
        return error.code()


def details(error: grpc.aio.AioRpcError) -> status_pb2.Status:
    trailers = dict(error.trailing_metadata() or ())
    return status_pb2.Status.FromString(trailers["grpc-status-details-bin"])


class TestAnswers:
    async def test_answer_passes_and_is_counted_with_its_model(self, harness):
        async def behaviour(request: bytes, context: Any) -> bytes:
            current_call().use_model("m")
            return request + b"!"

        harness.behaviour = behaviour

        assert await harness.one() == b"hi!"
        assert await harness.books() == {"OK": 1.0}
        read = harness.metrics.registry.get_sample_value
        assert read("dragoman_request_duration_seconds_count", {"model": "m", "code_class": "ok"}) == 1.0

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
        status = details(received)
        assert (status.code, status.message) == (code.value[0], str(error))
        assert await harness.books() == {code.name: 1.0}

    async def test_bad_field_is_named_for_programs(self, harness):
        harness.behaviour = raising(InvalidInput("bad beam", field="options.beam_size"))

        status = details(await failure(harness.one()))

        info, request = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
        assert status.details[0].Unpack(info)
        assert status.details[1].Unpack(request)
        assert (info.reason, info.domain, dict(info.metadata)) == (
            "INVALID_ARGUMENT",
            "dragoman",
            {"field": "options.beam_size"},
        )
        assert request.field_violations[0].field == "options.beam_size"

    async def test_refusal_says_why_and_when_to_come_back(self, harness):
        harness.behaviour = raising(Overloaded("full", reason="queue_full", retry_after_s=1.5))

        error = await failure(harness.one())

        assert dict(error.trailing_metadata())["grpc-retry-pushback-ms"] == "1500"
        info, retry = error_details_pb2.ErrorInfo(), error_details_pb2.RetryInfo()
        assert details(error).details[0].Unpack(info)
        assert details(error).details[1].Unpack(retry)
        assert (info.reason, retry.retry_delay.ToMilliseconds()) == ("queue_full", 1500)
        rejected = harness.metrics.registry.get_sample_value("dragoman_rejected_total", {"reason": "queue_full"})
        assert rejected == 1.0

    async def test_text_of_a_bug_reaches_neither_the_caller_nor_the_log(self, harness, log):
        harness.behaviour = raising(RuntimeError(f"cannot process {SECRET}"))

        error = await failure(harness.one(metadata=(("x-request-id", "abc-1"),)))

        assert error.code() is grpc.StatusCode.INTERNAL
        assert error.details() == "internal error; the server's log has it under request id abc-1"
        event = json.loads(log.getvalue())
        assert (event["event"], event["error"], event["request_id"]) == ("call_failed", "RuntimeError", "abc-1")
        assert "test_interceptors.py" in event["trace"]
        assert SECRET not in log.getvalue() + error.debug_error_string()

    async def test_work_that_something_else_cancelled_is_answered(self, harness):
        """CancelledError that escapes while the call lives would leave the caller without an answer for ever."""

        async def behaviour(request: bytes, context: Any) -> bytes:
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
    async def test_caller_s_deadline_is_the_call_s(self, harness):
        async def behaviour(request: bytes, context: Any) -> bytes:
            call = current_call()
            return f"{call.deadline - call.started:.3f} {call.is_limit_ours}".encode()

        harness.behaviour = behaviour

        seconds, is_limit_ours = (await harness.one(timeout=5.0)).split()

        assert 4.0 < float(seconds) < 5.1
        assert is_limit_ours == b"False"

    @pytest.mark.parametrize("timeout_s", [None, 3_600.0])
    async def test_server_s_limit_holds_without_a_nearer_deadline(self, harness, timeout_s):
        async def behaviour(request: bytes, context: Any) -> bytes:
            call = current_call()
            return f"{call.deadline - call.started:.3f} {call.is_limit_ours}".encode()

        harness.behaviour = behaviour

        assert await harness.one(timeout=timeout_s) == b"60.000 True"

    async def test_call_over_the_server_s_limit_ends_with_deadline_exceeded(self, impatient):
        impatient.behaviour = forever

        error = await failure(impatient.one())

        assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert error.details() == "the call took longer than 0.05 s, the most this server allows"
        assert await impatient.books() == {"DEADLINE_EXCEEDED": 1.0}

    async def test_late_job_of_a_call_without_deadline_names_the_server_s_limit(self, impatient):
        impatient.behaviour = raising(DeadlineExceeded("while decoding"))

        assert "most this server allows" in ((await failure(impatient.one())).details() or "")

    async def test_late_caller_frees_the_handler(self, harness):
        ended = asyncio.Event()

        async def behaviour(request: bytes, context: Any) -> bytes:
            try:
                return await forever(request, context)
            finally:
                ended.set()

        harness.behaviour = behaviour

        assert (await failure(harness.one(timeout=0.1))).code() is grpc.StatusCode.DEADLINE_EXCEEDED
        await asyncio.wait_for(ended.wait(), 5)
        assert await harness.books() == {"DEADLINE_EXCEEDED": 1.0}

    async def test_caller_whose_deadline_is_rounded_up_is_late_and_has_not_cancelled(self, harness):
        """1.005 s is sent as 1.01 s: the caller's own clock ends the call before the server's does."""
        harness.behaviour = echo_soon
        await harness.one()  # connected: what is left of the deadline is sent at once
        harness.behaviour = forever

        assert (await failure(harness.one(timeout=1.005))).code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert await harness.books() == {"OK": 1.0, "DEADLINE_EXCEEDED": 1.0}

    async def test_caller_who_cancels_long_before_its_deadline_has_cancelled(self, harness):
        begun = asyncio.Event()

        async def behaviour(request: bytes, context: Any) -> bytes:
            begun.set()
            return await forever(request, context)

        harness.behaviour = behaviour
        call = harness.one(timeout=5.0)
        await asyncio.wait_for(begun.wait(), 5)
        call.cancel()

        assert await harness.books() == {"CANCELLED": 1.0}

    @pytest.mark.parametrize(
        ("timeout_s", "cancelled_after_s", "is_late"),
        [(0.05, 0.001, False), (0.05, 0.044, False), (0.05, 0.046, True), (1.0, 0.93, False), (1.0, 0.95, True)],
    )
    def test_cancel_is_late_in_the_last_moment_which_is_a_share_of_a_short_deadline(
        self, timeout_s, cancelled_after_s, is_late
    ):
        call = Call(
            method="One", request_id="r", started=100.0, deadline=100.0 + timeout_s, is_limit_ours=False, limit_s=60.0
        )

        assert (100.0 + cancelled_after_s >= _late_from(call)) is is_late

    async def test_caller_that_leaves_frees_the_handler(self, harness):
        begun, ended = asyncio.Event(), asyncio.Event()

        async def behaviour(request: bytes, context: Any) -> bytes:
            begun.set()
            try:
                return await forever(request, context)
            finally:
                ended.set()

        harness.behaviour = behaviour
        call = harness.one()
        await asyncio.wait_for(begun.wait(), 5)
        call.cancel()

        await asyncio.wait_for(ended.wait(), 5)
        assert await harness.books() == {"CANCELLED": 1.0}


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
            while await code_of(late := harness.many()) is not grpc.StatusCode.OK:  # until the server has seen it leave
                pass
        for call in (*open_streams, late):
            call.cancel()


KEY, LIMITED = generate_key(), generate_key()


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[Harness]:
    file = tmp_path / "keys.toml"
    entries = ((KEY, "shop", ""), (LIMITED, "limited", 'models = ["small"]'))
    written = (f'[[keys]]\nname = "{name}"\nsha256 = "{digest_of(key).hex()}"\n{more}' for key, name, more in entries)
    file.write_text("\n".join(written))
    async with Harness(60.0, Authenticator(KeyFile(file, period_s=60.0))).running() as running:
        yield running


def bearing(key: str) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {key}"),)


class TestKeys:
    async def test_call_without_a_key_is_refused_before_its_request_is_parsed(self, guarded, monkeypatch):
        monkeypatch.setattr(f"{__name__}.parse", lambda data: pytest.fail("parsed"))
        guarded.behaviour = raising(AssertionError("the handler ran"))

        error = await failure(guarded.one(b"x" * 3_000_000))

        assert error.code() is grpc.StatusCode.UNAUTHENTICATED
        assert await guarded.books() == {"UNAUTHENTICATED": 1.0}

    async def test_stream_without_a_key_is_refused(self, guarded):
        assert await code_of(guarded.many()) is grpc.StatusCode.UNAUTHENTICATED
        assert await guarded.books(MANY) == {"UNAUTHENTICATED": 1.0}

    async def test_unknown_method_is_not_told_apart_without_a_key(self, guarded):
        nothing = guarded.channel.unary_unary("/test.Service/Nothing")

        assert (await failure(nothing(b""))).code() is grpc.StatusCode.UNAUTHENTICATED
        assert (await failure(nothing(b"", metadata=bearing(KEY)))).code() is grpc.StatusCode.UNIMPLEMENTED

    async def test_call_knows_whose_key_it_came_with(self, guarded):
        async def behaviour(request: bytes, context: Any) -> bytes:
            client = current_call().client
            return f"{client.source} {client.name}".encode()

        guarded.behaviour = behaviour

        assert await guarded.one(metadata=bearing(KEY)) == b"key shop"

    async def test_call_without_keys_knows_where_it_came_from(self, harness):
        async def behaviour(request: bytes, context: Any) -> bytes:
            client = current_call().client
            return f"{client.source} {client.name}".encode()

        harness.behaviour = behaviour

        assert await harness.one() == b"peer 127.0.0.1"

    async def test_key_for_some_models_opens_no_other(self, guarded):
        async def behaviour(request: bytes, context: Any) -> bytes:
            current_call().use_model(request.decode())
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
    assert harness.interceptor.calls == set()


async def test_observers_hear_of_a_call_when_it_ended_and_a_broken_one_disturbs_nothing(harness, log):
    harness.behaviour = raising(NotFound("no such model"))
    harness.observers.insert(0, broken_observer)
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    await failure(harness.one(metadata=(("x-request-id", "mine"), ("traceparent", trace), ("cookie", SECRET))))

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

    (ended,) = harness.ended
    assert (ended.progress.phase, ended.progress.finished_texts) == ("decode", 2)


async def echo_soon(request: bytes, context: Any) -> bytes:
    await asyncio.sleep(0)
    return request


OUTCOMES: tuple[Behaviour, ...] = (
    echo_soon,
    forever,
    raising(InvalidInput("bad", field="texts")),
    raising(Overloaded("full", reason="queue_full", retry_after_s=1.0)),
    raising(Unavailable("gone")),
    raising(RuntimeError(SECRET)),
)


async def test_received_is_always_answered_plus_in_flight(impatient, log):
    """Whatever becomes of a call: answered, refused, failed, cancelled by its caller, or out of time."""
    chance = random.Random(7)
    checks = 0

    def check() -> None:
        nonlocal checks
        checks += 1
        totals = dict.fromkeys(("requests_received_total", "requests_total", "requests_in_flight"), 0.0)
        for family in impatient.metrics.registry.collect():
            for sample in family.samples:
                name = sample.name.removeprefix("dragoman_")
                if name in totals:
                    totals[name] += sample.value
        assert totals["requests_received_total"] == totals["requests_total"] + totals["requests_in_flight"]

    async def behaviour(request: bytes, context: Any) -> bytes:
        check()
        try:
            if request in left:
                left[request].set()
                return await forever(request, context)
            return await chance.choice(OUTCOMES)(request, context)
        finally:
            check()

    async def one_call(_: int) -> None:
        method = "/test.Service/Nowhere" if chance.random() < 0.1 else f"/{ONE}"
        call = impatient.channel.unary_unary(method)(b"bad" if chance.random() < 0.1 else b"hi")
        await asyncio.gather(call, return_exceptions=True)
        check()

    async def left_call(name: bytes) -> None:
        call = impatient.one(name)
        await left[name].wait()
        call.cancel()
        check()

    left = {b"left %d" % number: asyncio.Event() for number in range(20)}
    impatient.behaviour = behaviour
    await asyncio.gather(*map(one_call, range(200)), *map(left_call, left))

    answered = await impatient.books()
    check()
    assert checks > 400
    assert {"OK", "INVALID_ARGUMENT", "UNAVAILABLE", "INTERNAL", "DEADLINE_EXCEEDED", "CANCELLED"} <= answered.keys()


async def test_a_thousand_unknown_names_make_no_new_series(harness):
    def num_series() -> int:
        return sum(len(family.samples) for family in harness.metrics.registry.collect())

    async def call(number: int) -> None:
        await failure(harness.channel.unary_unary(f"/any.Service/Method{number}")(b""))

    await call(0)
    before = num_series()
    await asyncio.gather(*(call(number) for number in range(1_000)))

    assert num_series() == before
    assert harness.metrics.registry.get_sample_value("dragoman_requests_received_total", {"method": "_other"}) == 1_001


async def test_refused_call_leaves_nothing_for_the_garbage_collector(harness):
    refused: list[weakref.ref[Refused]] = []

    def refusal() -> Refused:  # no variable of the handler's holds it: that would be a cycle, too
        error = Refused("full", reason="queue_full", retry_after_s=1.0)
        refused.append(weakref.ref(error))
        return error

    async def refuse(request: bytes, context: Any) -> bytes:
        raise refusal()

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
