"""What every call and stream goes through on its way to its handler and back, on a gRPC server in this process."""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from service.api.auth import Authenticator, authenticator, digest_of, generate_key
from service.api.grpc.handlers import MAX_UNREAD, CallHandlers
from service.api.lifecycle import REFUSALS_LOGGED, CallLifecycle, CallObserver, Refuse
from service.call import Call, Caller
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
from service.telemetry.metrics import Metrics
from tests.fakes.books import imbalance, sample_of, samples
from tests.fakes.calls import eventually, failure, status_of
from tests.fakes.http2_peer import Peer, call_headers, headers_frame, reset_frame
from tests.fakes.logs import log

__all__ = ["log"]

ONE, MANY = "test.Service/One", "test.Service/Many"
OPEN = "grpc.health.v1.Health/Check"  # needs no key
MAX_WATCHES = 16
SECRET = "geheim"
Behaviour = Callable[[bytes, Call], Awaitable[bytes]]


class Harness:
    """A server whose One method runs `behaviour` and whose Many method streams `stream`."""

    def __init__(
        self,
        max_request_seconds: float,
        authenticator: Authenticator | None = None,
        *,
        refuse: Refuse | None = None,
    ) -> None:
        self.metrics = Metrics()
        self.parsed: list[bytes] = []
        self.ended: list[Call] = []
        self.observers: list[CallObserver] = [self.ended.append]
        methods: Any = {
            ONE: grpc.unary_unary_rpc_method_handler(self._one, request_deserializer=self._parse),
            OPEN: grpc.unary_unary_rpc_method_handler(self._one, request_deserializer=self._parse),
            MANY: grpc.stream_stream_rpc_method_handler(self._many, request_deserializer=self._parse),
        }
        self.book = CallLifecycle(self.metrics, authenticator=authenticator, refuse=refuse, observers=self.observers)
        self.handlers = CallHandlers(
            methods,
            self.book,
            max_request_seconds=max_request_seconds,
            max_watches=MAX_WATCHES,
            work=frozenset({ONE}),
        )
        self.behaviour: Behaviour
        self.stream: Callable[..., AsyncIterator[bytes]]
        self.server = grpc.aio.server(handlers=[self.handlers])
        self.port = self.server.add_insecure_port("127.0.0.1:0")

    def _parse(self, data: bytes) -> bytes | InvalidInput:
        self.parsed.append(data)
        return InvalidInput("texts[0] is not valid UTF-8", field="texts[0]") if data == b"bad" else data

    async def _one(self, request: bytes, call: Call) -> bytes:
        return await self.behaviour(request, call)

    async def _many(self, requests: AsyncIterator[bytes], call: Call) -> AsyncIterator[bytes]:
        request = await anext(requests)
        async for item in self.stream(request, call):
            yield item

    def one(self, request: bytes = b"hi", method: str = ONE, **options: Any) -> Any:
        call: Any = self.channel.unary_unary(f"/{method}")
        return call(request, **options)

    def many(self, request: bytes = b"hi") -> Any:
        method: Any = self.channel.unary_stream(f"/{MANY}")
        return method(request)

    async def books(self, method: str = ONE) -> dict[str, float]:
        """Answered calls by code, once every call that was cancelled is in the books; received ones are as many."""
        read = partial(sample_of, self.metrics)
        async with asyncio.timeout(5):
            while read("dragoman_requests_in_flight", {"method": method}):  # noqa: ASYNC110  books raise no events
                await asyncio.sleep(0.01)
        page = b"".join(self.metrics.exposition()).decode()
        answered = {
            labels["code"]: value
            for name, labels, value in samples(page)
            if name == "dragoman_requests_total" and labels["method"] == method
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
    """One that lets calls take a minute."""
    async with Harness(max_request_seconds=60.0).running() as running:
        yield running


@pytest.fixture
async def impatient() -> AsyncIterator[Harness]:
    """One that lets calls take 50 ms."""
    async with Harness(max_request_seconds=0.05).running() as running:
        yield running


def raising(error: BaseException) -> Behaviour:
    async def behaviour(request: bytes, call: Call) -> bytes:
        raise error

    return behaviour


def answering(answer: bytes) -> Behaviour:
    """Answers this, whatever the request."""

    async def behaviour(request: bytes, call: Call) -> bytes:
        return answer

    return behaviour


async def forever(request: bytes, call: Call) -> bytes:
    await asyncio.Event().wait()
    raise AssertionError


async def echo_soon(request: bytes, call: Call) -> bytes:
    """The request, a turn of the event loop later."""
    await asyncio.sleep(0)
    return request


async def opening_code(call: Any) -> grpc.StatusCode:
    """OK once a stream's first message is there, else the status that the stream ended with."""
    try:
        return grpc.StatusCode.OK if await call.read() else grpc.StatusCode.UNKNOWN
    except grpc.aio.AioRpcError as error:
        return error.code()


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

    async def test_text_of_a_bug_reaches_neither_the_caller_nor_the_log(self, harness, log):
        harness.behaviour = raising(RuntimeError(f"cannot process {SECRET}"))

        error = await failure(harness.one(metadata=(("x-request-id", "abc-1"),)))

        assert error.code() is grpc.StatusCode.INTERNAL
        assert error.details() == "internal error; the server's log has it under request id abc-1"
        event = json.loads(log.getvalue())
        assert (event["event"], event["error"], event["request_id"]) == ("call_failed", "RuntimeError", "abc-1")
        assert "test_grpc_calls.py" in event["trace"]
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
            assert sample_of(server.metrics, "dragoman_rejected_total", {"reason": "queue_full"}) == 2.0


KEY, LIMITED = generate_key(), generate_key()


@pytest.fixture
def keys_file(tmp_path: Path) -> Path:
    file = tmp_path / "keys.toml"
    entries = ((KEY, "shop", ""), (LIMITED, "limited", 'models = ["small"]'))
    written = (f'[[keys]]\nname = "{name}"\nsha256 = "{digest_of(key)}"\n{more}' for key, name, more in entries)
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

    async def test_strangers_that_send_no_message_keep_nobody_else_out(self, harness):
        harness.behaviour = answering(b"SERVING")
        calls = [headers_frame(1 + 2 * number, call_headers(f"/{OPEN}")) for number in range(MAX_UNREAD + 1)]
        with Peer(harness.port) as peer:
            await asyncio.to_thread(peer.send, b"".join(calls))
            await eventually(lambda: bool(harness.ended))

            assert [call.code for call in harness.ended] == ["INVALID_ARGUMENT"]  # of the oldest
            assert await harness.one(method=OPEN) == b"SERVING"


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
