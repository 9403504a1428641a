"""TranslateStream in short words: what is sent, what comes, and what must be left afterwards."""

from collections.abc import AsyncIterator
from typing import Any

import grpc

from protos import translation_pb2 as pb
from tests.fakes.calls import Calls, eventually, failure, words
from tests.fakes.server_process import ServerProcess

LONG = words(200)
# What the transport itself may hold of a stream whose reader does not read: 64 KiB, however fast the connection is.
SMALL_WINDOW = [("grpc.enable_retries", 0), ("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 1 << 16)]


def message(*texts: tuple[int, str], **settings: Any) -> pb.TranslateStreamRequest:
    """Texts under their ids, with settings if there are any."""
    return pb.TranslateStreamRequest(
        settings=pb.StreamSettings(**settings) if settings else None,
        texts=[pb.StreamText(id=number, text=text) for number, text in texts],
    )


async def opened(calls: Calls, *messages: pb.TranslateStreamRequest, **options: object) -> Any:
    call = calls.translate_stream(**options)
    for each in messages:
        await call.write(each)
    return call


async def answers_of(call: Any) -> AsyncIterator[pb.StreamTranslation]:
    async for response in call:
        for translation in response.translations:
            yield translation


async def all_of(call: Any) -> dict[int, str]:
    """Best translations by id, up to the end of the stream."""
    answers = [answer async for answer in answers_of(call)]
    assert len({answer.id for answer in answers}) == len(answers)
    return {answer.id: answer.translation.hypotheses[0].text for answer in answers}


async def end_of(call: Any) -> grpc.aio.AioRpcError:
    return await failure(all_of(call))


async def has_gone_idle(server: ServerProcess) -> None:
    """Return once no stream, call or job holds anything."""
    await eventually(lambda: server.metric("dragoman_streams") == 0)
    await eventually(lambda: server.metric("dragoman_running_jobs") + server.metric("dragoman_queue_requests") == 0)
    assert server.metric("dragoman_token_budget_used_ratio") == 0
    assert server.metric("dragoman_stream_texts") == 0
