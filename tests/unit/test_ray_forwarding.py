"""Ray Serve's surroundings without Ray: what stands before it in its proxies, a replica's forwarding, its server."""

import asyncio
import importlib.util
import logging
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import pytest

from service.api.status import to_wire
from service.client.retry import RetryPolicy, service_config
from service.config import ConfigError, load_config
from service.errors import InternalError, Overloaded
from service.ray_serve import calls
from service.ray_serve.calls import ForwardedCall, final_status, forwarded_metadata
from service.ray_serve.edge import Edge, add_to_proxy
from service.ray_serve.owned_server import OwnedServer
from service.ray_serve.replica import Forwarder, server_settings
from tests.fakes.calls import error_info, eventually, failure
from tests.fakes.server_process import ROOT

TIMEOUT_S = 30.0
FULL = to_wire(Overloaded("8 calls are in flight, at most 8 may", reason="queue_full", retry_after_s=0.01))


class FakeServe:
    """Puts `answer` where Serve puts its own functions, as its gRPC server does."""

    def __init__(self, answer: Callable[..., Any]) -> None:
        self.answer = answer
        self.edge: Any = None

    def add_generic_rpc_handlers(self, handlers: Any) -> None:
        (self.edge,) = handlers
        self.edge._method_handlers = {
            path: handler._replace(unary_unary=self.answer, unary_stream=self.answer, stream_stream=self.answer)
            for path, handler in self.edge._method_handlers.items()
        }


@asynccontextmanager
async def proxy(answer: Callable[..., Any], **options: str | int) -> AsyncIterator[grpc.aio.Channel]:
    """A channel to a proxy that calls `answer` as Serve calls replicas."""
    serve = FakeServe(answer)
    add_to_proxy(None, serve)
    async with serving(serve.edge, **options) as channel:
        yield channel


@asynccontextmanager
async def serving(handler: grpc.GenericRpcHandler, **options: str | int) -> AsyncIterator[grpc.aio.Channel]:
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((handler,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    given = [(f"grpc.{name}", value) for name, value in options.items()]
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", given) as channel:
        yield channel
    await server.stop(None)


def fail(context: Any, status: Any) -> None:
    context.set_code(status.code)
    context.set_details(status.message)
    context.set_trailing_metadata(status.trailers)


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


async def test_a_replica_gets_the_client_s_bytes_and_what_is_left_of_its_deadline():
    seen: list[ForwardedCall] = []

    async def answer(call: ForwardedCall, context: Any) -> bytes:
        seen.append(call)
        return call.message[::-1]

    async with proxy(answer) as channel:
        method: Any = channel.unary_unary(calls.TRANSLATE)

        assert await method(b"\xff no message", timeout=TIMEOUT_S) == b"egassem on \xff"
        assert await method(b"", timeout=None) == b""

    assert seen[0].timeout_s is not None
    assert 0 < seen[0].timeout_s <= TIMEOUT_S
    assert seen[1] == ForwardedCall(b"", None)


async def test_a_refusal_arrives_with_its_details_and_is_tried_again_as_the_policy_says():
    num_calls = 0

    async def answer(call: ForwardedCall, context: Any) -> bytes:
        nonlocal num_calls
        num_calls += 1
        if num_calls < 3:
            fail(context, FULL)
            return b""
        return b"third time"

    async with proxy(answer) as channel:
        method: Any = channel.unary_unary(calls.TRANSLATE)
        error = await failure(method(b"", timeout=TIMEOUT_S))
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert (error.details(), error_info(error).reason) == (FULL.message, "queue_full")
        assert dict(error.trailing_metadata() or ())["grpc-retry-pushback-ms"] == "10"
    async with proxy(answer, service_config=service_config(RetryPolicy())) as channel:
        method = channel.unary_unary(calls.TRANSLATE)

        assert await method(b"", timeout=TIMEOUT_S) == b"third time"


async def test_a_call_whose_replica_died_is_tried_again_too_and_serve_s_word_is_kept(monkeypatch, caplog):
    monkeypatch.setattr(logging.getLogger("ray.serve"), "propagate", True)  # Serve's own import switches it off
    num_calls = 0

    async def answer(call: ForwardedCall, context: Any) -> bytes:
        nonlocal num_calls
        num_calls += 1
        if num_calls == 1:
            context.set_code(grpc.StatusCode.INTERNAL)
            context.set_details("ActorDiedError,\nand a trace")
            return b""
        return b"from another one"

    async with proxy(answer, service_config=service_config(RetryPolicy())) as channel:
        method: Any = channel.unary_unary(calls.TRANSLATE)

        assert await method(b"", timeout=TIMEOUT_S) == b"from another one"
    # Once, but caught twice where Ray is imported: pytest listens to loggers that do not propagate, too.
    (record,) = {record for record in caplog.records if record.name == "ray.serve"}
    assert record.getMessage() == r"a call ended as UNAVAILABLE, for Serve's 'ActorDiedError,\nand a trace'"


async def test_a_stream_ends_with_the_status_of_its_last_empty_answer():
    async def answer(requests: AsyncIterator[Any], context: Any) -> AsyncIterator[bytes]:
        opening = await anext(requests)
        assert opening.timeout_s is not None
        async for request in requests:
            yield request[::-1]
        fail(context, FULL)
        yield b""

    async with proxy(answer) as channel:
        method: Any = channel.stream_stream(calls.TRANSLATE_STREAM)
        call = method(iter([b"ab", b"cd"]), timeout=TIMEOUT_S)

        assert [await call.read(), await call.read()] == [b"ba", b"dc"]
        error = await failure(call.read())
        assert (error.code(), error_info(error).reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "queue_full")


async def test_other_methods_are_not_implemented():
    async with serving(Edge()) as channel:
        method: Any = channel.unary_unary("/dragoman.v1.TranslationService/Sing")

        assert (await failure(method(b""))).code() is grpc.StatusCode.UNIMPLEMENTED


def test_what_serve_says_of_its_own_troubles_can_be_tried_again():
    ours = to_wire(InternalError("a bug"))

    assert final_status(ours.code, ours.message, ours.trailers) == ours
    lost = final_status(grpc.StatusCode.INTERNAL, "a trace", [("request_id", "7")])
    assert (lost.code, lost.message) == (grpc.StatusCode.UNAVAILABLE, "the replica that had the call is gone")
    assert lost.trailers[-1] == ("request_id", "7")
    unknown = final_status(grpc.StatusCode.NOT_FOUND, "Application metadata not set.", ())
    assert (unknown.code, unknown.message[:36]) == (grpc.StatusCode.UNAVAILABLE, "Serve does not know the application ")
    late = final_status(grpc.StatusCode.DEADLINE_EXCEEDED, "Request timed out.", ())
    assert late.code is grpc.StatusCode.DEADLINE_EXCEEDED


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


def test_a_replica_decides_where_its_server_listens_and_the_user_the_rest():
    settings = server_settings({"engine.threads": 2, "listen.http": True})

    assert (settings["engine.threads"], settings["listen.http"]) == ("2", "true")
    assert (settings["listen.grpc_host"], settings["listen.grpc_port"]) == ("127.0.0.1", "0")
    assert server_settings({})["listen.http"] == "false"
    with pytest.raises(ConfigError, match=r"listen\.grpc_port: a replica sets that itself"):
        server_settings({"listen.grpc_port": 7})


def test_the_file_that_is_deployed_names_what_is_there():
    yaml = pytest.importorskip("yaml", reason="no PyYAML: make try-ray brings it")
    content = yaml.safe_load((ROOT / "deploy" / "ray" / "serve.yaml").read_text())
    (function,) = content["grpc_options"]["grpc_servicer_functions"]
    (application,) = content["applications"]
    settings = server_settings(application["args"]["settings"])

    module, _, name = function.rpartition(".")
    assert getattr(importlib.import_module(module), name) is add_to_proxy
    assert importlib.util.find_spec(application["import_path"].partition(":")[0])
    assert load_config(None, settings).engine.num_engines == 2


class Server(grpc.GenericRpcHandler):
    """A replica's server: gives messages back, and says what it was told."""

    def __init__(self) -> None:
        self.metadata: dict[str, str | bytes] = {}
        self.was_left = asyncio.Event()

    def service(self, details: Any) -> Any:
        self.metadata = dict(details.invocation_metadata)
        if details.method == calls.TRANSLATE_STREAM:
            return grpc.stream_stream_rpc_method_handler(self._echo_all)
        return grpc.unary_unary_rpc_method_handler(self._echo)

    async def _echo(self, request: bytes, context: Any) -> bytes:
        if request == b"full":
            await context.abort(FULL.code, FULL.message, FULL.trailers)
        if request == b"wait":
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
        await eventually(lambda: bool(server.metadata))

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


def test_a_server_that_does_not_start_is_told_and_not_waited_for():
    with pytest.raises(RuntimeError, match="ended with status 2 before it served"):
        OwnedServer(("--set", "limits.max_texts=0"), lambda status: None)


def test_a_server_whose_parent_has_died_already_does_not_start():
    command = [sys.executable, "-m", "service.ray_serve", str(os.getppid()), "version"]

    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)

    assert (done.returncode, done.stdout) == (0, "")
