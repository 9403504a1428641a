"""A small real server whose answers the test scripts; it translates into capital letters unless told otherwise."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health, health_pb2_grpc

from protos import translation_pb2 as pb
from protos import translation_pb2_grpc
from service.client import AsyncClient
from service.client.channel import ClientConfig

Context = Any  # grpc.aio.ServicerContext
StreamHandler = Callable[[AsyncIterator[pb.TranslateStreamRequest], Context], AsyncIterator[pb.TranslateStreamResponse]]
Handler = Callable[[pb.TranslateRequest, Context], Awaitable[pb.TranslateResponse]]


async def shout(request: pb.TranslateRequest, _: object) -> pb.TranslateResponse:
    """Upper case as translation: order and pairing can be seen."""
    translations = [
        pb.Translation(
            hypotheses=[
                pb.Hypothesis(
                    text=text.upper(),
                    score=-0.5,
                    finish_reason=pb.FINISH_REASON_LENGTH,
                    target_tokens=3,
                )
            ],
            source_tokens=4,
        )
        for text in request.texts
    ]
    return pb.TranslateResponse(translations=translations, model="loud", model_version="7")


async def shout_each(
    requests: AsyncIterator[pb.TranslateStreamRequest], _: object
) -> AsyncIterator[pb.TranslateStreamResponse]:
    """`shout` for each text of a stream, the last of a message first."""
    async for request in requests:
        if request.texts:
            yield shouted(*reversed(request.texts))


def shouted(*texts: pb.StreamText) -> pb.TranslateStreamResponse:
    translations = [
        pb.StreamTranslation(id=text.id, translation=pb.Translation(hypotheses=[pb.Hypothesis(text=text.text.upper())]))
        for text in texts
    ]
    return pb.TranslateStreamResponse(translations=translations)


class ScriptedService(translation_pb2_grpc.TranslationServiceServicer):
    """Answers as `handler` says; remembers what came in and how much of it at the same time."""

    def __init__(self) -> None:
        self.handler: Handler = shout
        self.stream_handler: StreamHandler = shout_each
        self.requests: list[pb.TranslateRequest] = []
        self.deadlines: list[float | None] = []
        self.live = 0
        self.most_live = 0

    async def Translate(self, request, context):  # noqa: N802 - the wire's name
        self.requests.append(request)
        self.deadlines.append(context.time_remaining())
        self.live += 1
        self.most_live = max(self.live, self.most_live)
        try:
            return await self.handler(request, context)
        finally:
            self.live -= 1

    async def TranslateStream(self, requests, context):  # noqa: N802 - gRPC's name
        self.deadlines.append(context.time_remaining())
        async for response in self.stream_handler(requests, context):
            yield response

    async def ListModels(self, request, context):  # noqa: N802 - gRPC's name
        options = pb.TranslateOptions(beam_size=4, length_penalty=1.0)
        return pb.ListModelsResponse(models=[pb.Model(name="loud", target_language="de", default_options=options)])


class ScriptedServer:
    """A server on a port of its own, or on that of one that has ended."""

    def __init__(self, port: int = 0) -> None:
        self.service = ScriptedService()
        self.health = health.aio.HealthServicer()
        self.server = grpc.aio.server()
        translation_pb2_grpc.add_TranslationServiceServicer_to_server(self.service, self.server)
        health_pb2_grpc.add_HealthServicer_to_server(self.health, self.server)
        self.address = f"127.0.0.1:{self.server.add_insecure_port(f'127.0.0.1:{port}')}"


@pytest.fixture
async def running() -> AsyncIterator[ScriptedServer]:
    scripted = ScriptedServer()
    await scripted.server.start()
    yield scripted
    await scripted.server.stop(grace=None)


def failing(code: grpc.StatusCode, message: str = "no", trailers: tuple[tuple[str, str | bytes], ...] = ()) -> Handler:
    async def handler(_: object, context: Context) -> pb.TranslateResponse:
        context.set_trailing_metadata(trailers)
        await context.abort(code, message)
        raise AssertionError

    return handler


def failing_first(times: int, code: grpc.StatusCode, trailers: tuple[tuple[str, str | bytes], ...] = ()) -> Handler:
    fail = failing(code, "not yet", trailers)
    attempts = iter(range(1_000))

    async def handler(request: pb.TranslateRequest, context: Context) -> pb.TranslateResponse:
        return await (fail if next(attempts) < times else shout)(request, context)

    return handler


QUICK = ClientConfig(timeout_s=10.0)


@pytest.fixture
async def client(running: ScriptedServer) -> AsyncIterator[AsyncClient]:
    """One whose retries do not keep a test waiting."""
    async with AsyncClient(running.address, QUICK) as connected:
        yield connected
