"""TranslateStream on the real server: its answers and their order, and the mistakes that end it."""

import asyncio

import grpc
import pytest

from protos import translation_pb2 as pb
from tests.fakes.calls import TRANSLATE_STREAM, calling, details_of, eventually, failure, words
from tests.fakes.streams import LONG, all_of, answers_of, end_of, has_gone_idle, message, opened


class TestAnswers:
    async def test_short_text_overtakes_the_long_one_sent_before_it(self, start_server):
        server = start_server(ECHO_STEP_S="0.005")
        async with calling(server.address) as calls:
            call = await opened(calls, message((1, "long line " * 8 + "here"), (2, "short"), target_language="de"))
            await call.done_writing()
            answers = [answer async for answer in answers_of(call)]

            assert [answer.id for answer in answers] == [2, 1]
            assert [answer.translation.hypotheses[0].text for answer in answers] == ["short", "long line " * 8 + "here"]
            assert {(answer.model_version, answer.beam_size) for answer in answers} == {("1.2.3", 2)}
            assert await call.code() is grpc.StatusCode.OK


class TestMistakes:
    @pytest.mark.parametrize(
        ("messages", "code", "words"),
        [
            ([message((1, LONG), (1, "x"))], "INVALID_ARGUMENT", "id 1 is that of a text without an answer yet"),
            ([message((1, LONG)), message(model="echo")], "INVALID_ARGUMENT", "settings came again"),
            ([message(model="other")], "NOT_FOUND", "there is no model 'other'"),
            ([message(options=pb.TranslateOptions(beam_size=99))], "INVALID_ARGUMENT", "beam_size is 99"),
        ],
    )
    async def test_mistake_ends_the_stream_and_its_work(self, start_server, messages, code, words):
        server = start_server()
        async with calling(server.address) as calls:
            with server.held():
                error = await end_of(await opened(calls, *messages))

            assert error.code().name == code
            assert words in details_of(error)
            await has_gone_idle(server)
            assert server.metric("dragoman_requests_total", method=TRANSLATE_STREAM[1:], code=code) == 1

    async def test_malformed_message_in_the_middle_ends_the_stream(self, start_server):
        server = start_server()
        async with calling(server.address) as calls:
            with server.held():
                call = calls.stream(TRANSLATE_STREAM)
                await call.write(message((1, LONG)).SerializeToString())
                await eventually(lambda: server.metric("dragoman_running_jobs") == 1)
                await call.write(b"\xff\xff\xff")

                error = await failure(call.read())
            assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert error.details() == "the request is not a valid dragoman.v1.TranslateStreamRequest message"
            await has_gone_idle(server)


class TestEnds:
    async def test_cancelled_stream_frees_its_rows_and_leaves_its_neighbour_alone(self, start_server):
        server = start_server()
        method = {"method": TRANSLATE_STREAM[1:], "code": "CANCELLED"}
        async with calling(server.address) as calls:
            with server.held():
                neighbour = await opened(calls, message((1, "good neighbour " * 9 + "here")))
                leaving = await opened(calls, message(*((number, LONG) for number in range(5))))
                await eventually(lambda: server.metric("dragoman_running_jobs") == 6)

                leaving.cancel()

                await eventually(lambda: server.metric("dragoman_requests_total", **method) == 1)
            await neighbour.done_writing()
            assert await all_of(neighbour) == {1: "good neighbour " * 9 + "here"}
            await has_gone_idle(server)
            assert server.metric("dragoman_cancelled_total", where="decode", reason="cancelled") == 5

    async def test_draining_server_answers_what_it_has_taken_in_and_then_ends_the_stream(self, start_server):
        server = start_server()
        async with calling(server.address) as calls:
            with server.held():
                busy = await opened(calls, message(*((number, words(100)) for number in range(20))))
                idle = await opened(calls, message())
                await eventually(lambda: server.metric("dragoman_stream_texts") == 20)
                await eventually(lambda: server.metric("dragoman_streams") == 2)

                server.terminate()
                await eventually(lambda: '"draining"' in server.log_text())

            seen: list[int] = []

            async def read() -> None:
                async for answer in answers_of(busy):
                    seen.append(answer.id)  # noqa: PERF401  kept when the stream ends with an error

            ends = [await failure(read()), await end_of(idle)]
            assert sorted(seen) == list(range(20))
            assert [end.code() for end in ends] == [grpc.StatusCode.UNAVAILABLE] * 2
            assert ends[0].details() == "the server is draining; send what has no answer again"
            assert await asyncio.to_thread(server.wait) == 0
