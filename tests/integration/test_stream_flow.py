"""Flow control of TranslateStream on the real server, both ways, and beside calls."""

import asyncio
from typing import Any

import grpc

from protos import translation_pb2 as pb
from tests.fakes.calls import Calls, calling, error_info, eventually, words
from tests.fakes.edges import TWO_EDGES, calling_each_edge
from tests.fakes.server_process import ServerProcess
from tests.fakes.streams import SMALL_WINDOW, all_of, end_of, has_gone_idle, message, opened


async def standstill(server: ServerProcess, num_texts: int) -> float:
    """Answered texts once streams hold so many, none of them runs, and that was so for two looks without an answer."""
    names = ("stream_texts", "running_jobs", "queue_requests", "source_tokens_count")
    looks = [[-1.0]]

    def is_still() -> bool:
        looks.append([server.metric(f"dragoman_{name}") for name in names])
        return looks[-1][:3] == [num_texts, 0, 0] and looks[-1] == looks[-2]

    await eventually(is_still)
    return looks[-1][3]


class TestFlowControl:
    async def test_slow_reader_stops_its_own_stream_and_nothing_else(self, start_server):
        """With every place taken by an answer nobody reads, nothing runs, nothing more is read, others are served."""
        server = start_server(DRAGOMAN_LIMITS__MAX_STREAM_TEXTS="16")
        num_texts, text = 600, words(50)
        options = pb.TranslateOptions(beam_size=8, num_hypotheses=8)  # answers larger than texts
        async with grpc.aio.insecure_channel(server.address, options=SMALL_WINDOW) as channel:
            call = Calls(channel).translate_stream()

            async def send_all() -> None:
                await call.write(message(options=options))
                for number in range(num_texts):
                    await call.write(message((number, text)))
                await call.done_writing()

            sending = asyncio.create_task(send_all())
            answered = await standstill(server, num_texts=16)
            async with calling(server.address) as others:
                for number in range(50):
                    assert await others.texts(f"other {number}") == [f"other {number}"]

            assert server.metric("dragoman_source_tokens_count") == answered + 50
            assert answered < num_texts / 2
            assert server.metric("dragoman_token_budget_used_ratio") == 0
            assert await all_of(call) == dict.fromkeys(range(num_texts), text)  # once it reads, it gets everything
            await sending

    async def test_idle_streams_and_health_watches_take_nothing_from_calls(self, start_server):
        server = start_server(DRAGOMAN_LIMITS__MAX_STREAMS="3", DRAGOMAN_LIMITS__MAX_CONCURRENT_REQUESTS="1")
        async with calling(server.address) as calls:
            streams = [await opened(calls, message()) for _ in range(3)]
            await eventually(lambda: server.metric("dragoman_streams") == 3)

            error = await end_of(calls.translate_stream())
            assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert error.details() == "3 streams are open, at most 3 may be"
            assert error_info(error).reason == "streams"
            assert server.metric("dragoman_rejected_total", reason="streams") == 1
            assert server.metric("dragoman_running_jobs") == 0
            assert await calls.texts("a call") == ["a call"]

            await streams[0].done_writing()
            assert await all_of(streams[0]) == {}
            assert await all_of(await self._done(await opened(calls, message((1, "next"))))) == {1: "next"}

    async def test_streams_of_all_edges_share_limits_and_wait_for_each_other_s_room(self, start_server):
        """The second text does not fit beside the first, which came by way of the other edge."""
        limits = {"DRAGOMAN_LIMITS__MAX_STREAMS": "2", "DRAGOMAN_LIMITS__MAX_QUEUED_TOKENS": "150"}
        server = start_server(**TWO_EDGES, **limits, DRAGOMAN_LIMITS__RETRY_AFTER_S="600")
        text = words(100)
        async with calling_each_edge(server) as connections:
            first, second = (calls for (calls,) in connections.values())
            with server.held():
                ahead = await opened(first, message((1, text)))
                await eventually(lambda: server.metric("dragoman_running_jobs") == 1)
                behind = await opened(second, message((2, text)))
                await eventually(lambda: server.metric("dragoman_stream_texts") == 2)
                error = await end_of(first.translate_stream())

            assert error.details() == "2 streams are open, at most 2 may be"
            assert await all_of(await self._done(ahead)) == {1: text}
            async with asyncio.timeout(300):  # not after `retry_after_s`
                assert await all_of(await self._done(behind)) == {2: text}
        await has_gone_idle(server)

    async def _done(self, call: Any) -> Any:
        await call.done_writing()
        return call
