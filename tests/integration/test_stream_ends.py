"""How streams end on the real server before their last answer, and that nothing of them stays."""

import asyncio

import grpc

from tests.fakes.calls import TRANSLATE_STREAM, calling, eventually, failure
from tests.fakes.streams import LONG, SLOW, all_of, answers_of, end_of, has_gone_idle, message, opened


class TestEnds:
    async def test_cancelled_stream_frees_its_rows_and_leaves_its_neighbour_alone(self, start_server):
        server = start_server(**SLOW)
        async with calling(server.address) as calls:
            neighbour = await opened(calls, message((1, "neighbour" * 15)))
            leaving = await opened(calls, message(*((number, LONG) for number in range(5))))
            await eventually(lambda: server.metric("dragoman_running_jobs") == 6)

            leaving.cancel()

            await eventually(lambda: server.metric("dragoman_running_jobs") <= 1)
            await neighbour.done_writing()
            assert await all_of(neighbour) == {1: "neighbour" * 15}
            await has_gone_idle(server)
            assert server.metric("dragoman_cancelled_total", where="decode", reason="cancelled") == 5
            assert server.metric("dragoman_requests_total", method=TRANSLATE_STREAM[1:], code="CANCELLED") == 1

    async def test_draining_server_answers_what_it_has_taken_in_and_then_ends_the_stream(self, start_server):
        server = start_server(**SLOW)
        async with calling(server.address) as calls:
            busy = await opened(calls, message(*((number, "x" * 100) for number in range(20))))
            idle = await opened(calls, message())
            await eventually(lambda: server.metric("dragoman_stream_texts") == 20)
            assert server.metric("dragoman_streams") == 2

            server.terminate()

            seen: list[int] = []

            async def read() -> None:
                async for answer in answers_of(busy):
                    seen.append(answer.id)  # noqa: PERF401  kept when the stream ends with an error

            ends = [await failure(read()), await end_of(idle)]
            assert sorted(seen) == list(range(20))
            assert [end.code() for end in ends] == [grpc.StatusCode.UNAVAILABLE] * 2
            assert ends[0].details() == "the server is draining; send what has no answer again"
            assert await asyncio.to_thread(server.wait) == 0
