"""A gRPC server with what every call goes through, and with behaviours that the test scripts."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import grpc
import grpc.aio
import pytest

from service.api.auth import Authenticator
from service.api.calls import CallLifecycle, CallObserver, Refuse
from service.api.grpc.calls import CallHandlers, Malformed
from service.call import Call
from service.telemetry.metrics import Metrics
from tests.fakes.books import sample_of, samples

ONE, MANY = "test.Service/One", "test.Service/Many"
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

    def _parse(self, data: bytes) -> bytes | Malformed:
        self.parsed.append(data)
        return Malformed("texts[0] is not valid UTF-8", "texts[0]") if data == b"bad" else data

    async def _one(self, request: bytes, call: Call) -> bytes:
        return await self.behaviour(request, call)

    async def _many(self, requests: AsyncIterator[bytes], call: Call) -> AsyncIterator[bytes]:
        request = await anext(requests)
        async for item in self.stream(request, call):
            yield item

    def one(self, request: bytes = b"hi", **options: Any) -> Any:
        method: Any = self.channel.unary_unary(f"/{ONE}")
        return method(request, **options)

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
