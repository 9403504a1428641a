"""Short ways to call a real server in tests."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import pytest
from google.rpc import error_details_pb2, status_pb2
from grpc_health.v1 import health_pb2_grpc

from protos import translation_pb2 as pb

TRANSLATE = "/dragoman.v1.TranslationService/Translate"
TRANSLATE_STREAM = "/dragoman.v1.TranslationService/TranslateStream"
SCORE = "/dragoman.v1.TranslationService/Score"
LIST_MODELS = "/dragoman.v1.TranslationService/ListModels"
TIMEOUT_S = 120.0


def words(length: int) -> str:
    """Return a text of so many characters, a step each of the slow engine; a run of one letter would not reach it."""
    return ("some words " * (length // 11 + 1))[: length - 1] + "s"


class Calls:
    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.channel = channel

    def translate(self, *texts: str, timeout: float | None = TIMEOUT_S, metadata: Any = None, **fields: Any) -> Any:
        """Start a Translate call; await it for the response."""
        return self.send(pb.TranslateRequest(texts=texts, **fields), timeout=timeout, metadata=metadata)

    def send(self, request: pb.TranslateRequest, **options: Any) -> Any:
        method = self.channel.unary_unary(
            TRANSLATE, pb.TranslateRequest.SerializeToString, pb.TranslateResponse.FromString
        )
        return method(request, **options)

    def translate_stream(self, **options: Any) -> Any:
        """A started TranslateStream call; write requests, read responses."""
        method = self.channel.stream_stream(
            TRANSLATE_STREAM, pb.TranslateStreamRequest.SerializeToString, pb.TranslateStreamResponse.FromString
        )
        return method(**options)

    def method(self, name: str) -> Any:
        return self.channel.unary_unary(name)

    def stream(self, name: str) -> Any:
        method: Any = self.channel.stream_stream(name)
        return method()

    @property
    def health(self) -> Any:
        """A stub of grpc.health.v1, as far as its published types reach and beyond."""
        return health_pb2_grpc.HealthStub(self.channel)

    def send_bytes(self, data: bytes) -> Any:
        """Start a Translate call with these bytes as its message."""
        method: Any = self.channel.unary_unary(TRANSLATE, None, pb.TranslateResponse.FromString)
        return method(data, timeout=TIMEOUT_S)

    async def texts(self, *texts: str, **fields: Any) -> list[str]:
        response = await self.translate(*texts, **fields)
        return [translation.hypotheses[0].text for translation in response.translations]


@asynccontextmanager
async def calling(
    address: str, credentials: grpc.ChannelCredentials | None = None, **options: int | str
) -> AsyncIterator[Calls]:
    """Calls over a connection of their own, without retries, so that a test sees every status.

    Args:
        options: gRPC's channel arguments, "grpc." left out.
    """
    arguments = {"enable_retries": 0, "use_local_subchannel_pool": 1, **options}
    given = [(f"grpc.{name}", value) for name, value in arguments.items()]
    open_channel = (
        grpc.aio.secure_channel(address, credentials, given)
        if credentials
        else grpc.aio.insecure_channel(address, given)
    )
    async with open_channel as channel:
        yield Calls(channel)


def details_of(error: grpc.aio.AioRpcError) -> str:
    return error.details() or ""


async def failure(call: Any) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await asyncio.wait_for(call, TIMEOUT_S)
    return error.value


async def code_of(call: Any) -> grpc.StatusCode:
    """The status that a call ends with, OK included."""
    try:
        await asyncio.wait_for(call, TIMEOUT_S)
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


def trailer(error: grpc.aio.AioRpcError, name: str) -> object:
    """One value that came with an error; None if it did not."""
    return dict(error.trailing_metadata() or ()).get(name)


def status_of(error: grpc.aio.AioRpcError) -> status_pb2.Status:
    """The status with the details that came with an error."""
    return status_pb2.Status.FromString(trailer(error, "grpc-status-details-bin"))


def error_info(error: grpc.aio.AioRpcError) -> error_details_pb2.ErrorInfo:
    info = error_details_pb2.ErrorInfo()
    assert status_of(error).details[0].Unpack(info)
    return info


async def eventually(is_so: Callable[[], bool], within_s: float = TIMEOUT_S) -> None:
    """Return once `is_so`; what another process does cannot be awaited.  The default only catches a hang."""
    deadline = time.monotonic() + within_s
    while not await asyncio.to_thread(is_so):
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.01)
