"""A replica's forwarding to its server, without Ray: what is kept of a call, an answer and a refusal."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio

from service.ray_serve import calls
from service.ray_serve.calls import ForwardedCall, forwarded_metadata
from service.ray_serve.replica import Forwarder
from tests.fakes.calls import TIMEOUT_S
from tests.fakes.generic_server import FULL, serving


class Context:
    """Serve's record of a call."""

    def __init__(self, metadata: calls.Metadata = (), peer: str = "ipv4:10.0.0.7:41234") -> None:
        self._metadata, self._peer = metadata, peer
        self.code: grpc.StatusCode | None = None
        self.details = ""
        self.trailers: list[tuple[str, str | bytes]] = []

    def peer(self) -> str:
        return self._peer

    def invocation_metadata(self) -> calls.Metadata:
        return self._metadata

    def set_code(self, code: grpc.StatusCode) -> None:
        self.code = code

    def set_details(self, details: str) -> None:
        self.details = details

    def set_trailing_metadata(self, trailing_metadata: list[tuple[str, str | bytes]]) -> None:
        self.trailers = trailing_metadata


class Server(grpc.GenericRpcHandler):
    """A replica's server: gives messages back, and says what it was told."""

    def __init__(self) -> None:
        self.metadata: dict[str, str | bytes] = {}
        self.has_begun, self.was_left = asyncio.Event(), asyncio.Event()

    def service(self, details: Any) -> Any:
        self.metadata = dict(details.invocation_metadata)
        if details.method == calls.TRANSLATE_STREAM:
            return grpc.stream_stream_rpc_method_handler(self._echo_all)
        return grpc.unary_unary_rpc_method_handler(self._echo)

    async def _echo(self, request: bytes, context: Any) -> bytes:
        if request == b"full":
            await context.abort(FULL.code, FULL.message, FULL.trailers)
        if request == b"wait":
            self.has_begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.was_left.set()
        context.set_trailing_metadata((("x-request-id", "7"),))
        return request

    async def _echo_all(self, requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        async for request in requests:
            if request == b"full":
                await context.abort(FULL.code, FULL.message, FULL.trailers)
            yield request


def test_metadata_of_serve_and_of_the_channel_stay_behind_and_nobody_names_another_client():
    sent = [
        ("authorization", "Bearer key"),
        ("x-request-id", "7"),
        ("application", "dragoman"),
        ("user-agent", "grpc-go"),
        ("grpc-previous-rpc-attempts", "1"),
        (calls.CLIENT_HEADER, "somebody else"),
    ]

    assert forwarded_metadata(sent, "10.0.0.7") == (
        ("authorization", "Bearer key"),
        ("x-request-id", "7"),
        (calls.CLIENT_HEADER, "10.0.0.7"),
    )


async def test_forwarding_keeps_metadata_answer_and_trailers():
    server = Server()
    context = Context([("authorization", "Bearer key")])
    async with serving(server) as channel:
        answer = await Forwarder(channel).once(calls.TRANSLATE, ForwardedCall(b"text", TIMEOUT_S), context)

    assert answer.SerializeToString() == b"text"
    assert (context.code, context.trailers) == (None, [("x-request-id", "7")])
    assert (server.metadata["authorization"], server.metadata[calls.CLIENT_HEADER]) == ("Bearer key", "10.0.0.7")


async def test_forwarding_keeps_a_refusal_and_its_details():
    context = Context()
    async with serving(Server()) as channel:
        answer = await Forwarder(channel).once(calls.TRANSLATE, ForwardedCall(b"full", TIMEOUT_S), context)

    assert answer.SerializeToString() == b""
    assert (context.code, context.details) == (FULL.code, FULL.message)
    assert set(context.trailers) == set(FULL.trailers)


async def test_forwarding_keeps_the_deadline():
    context = Context()
    async with serving(Server()) as channel:
        await Forwarder(channel).once(calls.TRANSLATE, ForwardedCall(b"wait", 0.05), context)

    assert context.code is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_a_call_that_serve_cancels_is_cancelled_at_the_server():
    server = Server()
    async with serving(server) as channel:
        call = asyncio.ensure_future(
            Forwarder(channel).once(calls.TRANSLATE, ForwardedCall(b"wait", TIMEOUT_S), Context())
        )
        await asyncio.wait_for(server.has_begun.wait(), TIMEOUT_S)

        call.cancel()

        await asyncio.wait_for(server.was_left.wait(), TIMEOUT_S)


async def test_a_stream_is_forwarded_to_its_status():
    async def requests() -> AsyncIterator[bytes]:
        yield b"one"
        yield b"full"

    context = Context()
    async with serving(Server()) as channel:
        forward = Forwarder(channel)
        opening = ForwardedCall(b"", TIMEOUT_S)
        answers = [answer.data async for answer in forward.stream(calls.TRANSLATE_STREAM, opening, requests(), context)]

    assert answers == [b"one", b""]
    assert (context.code, context.details) == (FULL.code, FULL.message)
