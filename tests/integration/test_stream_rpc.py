"""TranslateStream on the real server: its answers and their order, and the mistakes that end it."""

import asyncio
import os
import signal
from typing import Any

import grpc
import pytest

from protos import translation_pb2 as pb
from service.client import AsyncClient
from service.client.channel import ClientConfig
from tests.fakes.calls import TRANSLATE_STREAM, Calls, calling, details_of, error_info, eventually, failure, words
from tests.fakes.edges import TWO_EDGES, calling_each_edge
from tests.fakes.server_process import ServerProcess
from tests.fakes.streams import LONG, SMALL_WINDOW, all_of, answers_of, end_of, has_gone_idle, message, opened


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


async def has_restarted(server: ServerProcess, num_engines: int) -> None:
    await eventually(lambda: server.metric("dragoman_engine_restarts_total") == num_engines)


def kill(server: ServerProcess) -> None:
    server.process.kill()
    server.wait()


def drain(server: ServerProcess) -> None:
    server.terminate()
    assert server.wait() == 0


class TestClientHelper:
    async def test_engine_killed_in_mid_stream_costs_no_answer(self, start_server):
        server = start_server(DRAGOMAN_ENGINE__NUM_ENGINES="2", ECHO_STEP_S="0.002")
        num_texts, answers, num_killed = 400, [], 0
        async with AsyncClient(server.address) as client:
            async for number, answer in client.translate_stream(f"text {number}" for number in range(num_texts)):
                answers.append((number, answer.text))
                if len(answers) in {20, 200}:
                    os.kill(server.engine_pids()[0], signal.SIGKILL)
                    num_killed += 1  # and it is back before the next one goes: a text survives one loss, not two
                    await has_restarted(server, num_killed)

        assert sorted(answers) == [(number, f"text {number}") for number in range(num_texts)]
        assert num_killed == 2
        assert server.metric("dragoman_failed_texts_total") == 0
        await has_gone_idle(server)

    @pytest.mark.parametrize("lose", [kill, drain], ids=lambda lose: lose.__name__)
    async def test_server_lost_in_mid_stream_and_started_again_costs_no_answer(self, start_server, lose):
        first = start_server(ECHO_STEP_S="0.002")
        num_texts, answers = 300, []
        async with AsyncClient(first.address, ClientConfig(max_stream_texts=32)) as client:
            async for number, answer in client.translate_stream(f"text {number}" for number in range(num_texts)):
                answers.append((number, answer.text))
                if len(answers) == 50:
                    await asyncio.to_thread(lose, first)
                    await asyncio.to_thread(start_server, DRAGOMAN_LISTEN__GRPC_PORT=str(first.grpc_port))

        assert sorted(answers) == [(number, f"text {number}") for number in range(num_texts)]


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
