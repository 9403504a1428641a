"""TranslateStream on the real server: order, flow control both ways, statuses, ends of all kinds."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from protos import translation_pb2 as pb
from service.client import AsyncClient
from service.client.channel import ClientConfig
from tests.fakes.calls import (
    TIMEOUT_S,
    TRANSLATE,
    TRANSLATE_STREAM,
    Calls,
    calling,
    code_of,
    details_of,
    error_info,
    eventually,
    failure,
)
from tests.fakes.server_process import ServerProcess

SLOW = {"ECHO_STEP_S": "0.02"}
LONG = "x" * 200  # four seconds when slow
# What the transport itself may hold of a stream whose reader does not read: 64 KiB, however fast the connection is.
SMALL_WINDOW = [("grpc.enable_retries", 0), ("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 1 << 16)]


def message(*texts: tuple[int, str], **settings: Any) -> pb.TranslateStreamRequest:
    return pb.TranslateStreamRequest(
        settings=pb.StreamSettings(**settings) if settings else None,
        texts=[pb.StreamText(id=number, text=text) for number, text in texts],
    )


async def opened(calls: Calls, *messages: pb.TranslateStreamRequest, **options: object):
    """A stream that these messages were sent on."""
    call = calls.translate_stream(**options)
    for each in messages:
        await call.write(each)
    return call


async def answers_of(call) -> AsyncIterator[pb.StreamTranslation]:
    async for response in call:
        for translation in response.translations:
            yield translation


async def all_of(call) -> dict[int, str]:
    """Best translations by id, up to the end of the stream."""
    answers = [answer async for answer in answers_of(call)]
    assert len({answer.id for answer in answers}) == len(answers)
    return {answer.id: answer.translation.hypotheses[0].text for answer in answers}


async def end_of(call) -> grpc.aio.AioRpcError:
    return await failure(all_of(call))


async def has_gone_idle(server: ServerProcess) -> None:
    await eventually(lambda: server.metric("dragoman_streams") == 0)
    await eventually(lambda: server.metric("dragoman_running_jobs") + server.metric("dragoman_queue_requests") == 0)
    assert server.metric("dragoman_token_budget_used_ratio") == 0
    assert server.metric("dragoman_stream_texts") == 0


async def has_restarted(server: ServerProcess, num_engines: int) -> None:
    await eventually(lambda: server.metric("dragoman_engine_restarts_total") == num_engines)


async def standstill(server: ServerProcess, num_texts: int) -> float:
    """Answered texts once streams hold so many, none of them runs, and that was so for two looks without an answer."""
    names = ("stream_texts", "running_jobs", "queue_requests", "source_tokens_count")
    looks = [[-1.0]]

    def is_still() -> bool:
        looks.append([server.metric(f"dragoman_{name}") for name in names])
        return looks[-1][:3] == [num_texts, 0, 0] and looks[-1] == looks[-2]

    await eventually(is_still)
    return looks[-1][3]


class TestAnswers:
    async def test_short_text_overtakes_the_long_one_sent_before_it(self, start_server):
        server = start_server(ECHO_STEP_S="0.005")
        async with calling(server.address) as calls:
            call = await opened(calls, message((1, "long" * 20), (2, "short"), target_language="de"))
            await call.done_writing()
            answers = [answer async for answer in answers_of(call)]

            assert [answer.id for answer in answers] == [2, 1]
            assert [answer.translation.hypotheses[0].text for answer in answers] == ["short", "long" * 20]
            assert {(answer.model_version, answer.beam_size) for answer in answers} == {("1.2.3", 2)}
            assert await call.code() is grpc.StatusCode.OK

    async def test_long_text_holds_nobody_up(self, start_server):
        """Ten short texts, one after the other, are all answered while the long one before them decodes."""
        server = start_server(ECHO_STEP_S="0.005")
        async with calling(server.address) as calls:
            call = await opened(calls, message((100, LONG)))
            answers = answers_of(call)
            order = []
            for number in range(10):
                await call.write(message((number, "short")))
                order.append((await anext(answers)).id)
            await call.done_writing()

            assert [*order, (await anext(answers)).id] == [*range(10), 100]

    async def test_answer_comes_while_the_client_still_sends(self, server):
        async with calling(server.address) as calls:
            call = await opened(calls, message((1, "first")))
            answers = answers_of(call)
            assert (await anext(answers)).id == 1

            await call.write(message((1, "second")))  # the id is free again
            await call.done_writing()
            assert [answer.translation.hypotheses[0].text async for answer in answers] == ["second"]

    async def test_bad_and_blank_texts_have_their_own_answers(self, server):
        async with calling(server.address) as calls:
            call = await opened(calls, message((1, "x" * 600), (2, ""), (3, "y" * 20_000), (4, "good")))
            await call.done_writing()
            answers = {answer.id: answer.translation async for answer in answers_of(call)}

            assert {number: answer.status.code for number, answer in answers.items()} == {1: 3, 2: 0, 3: 3, 4: 0}
            assert answers[1].status.message == "the text has 602 tokens, at most 512 are accepted"
            assert answers[3].status.message == "the text has 20000 characters, at most 10000 are accepted"

    async def test_stream_without_texts_ends_well(self, server):
        async with calling(server.address) as calls:
            call = calls.translate_stream()
            await call.done_writing()

            assert await all_of(call) == {}

    async def test_message_with_more_texts_than_there_are_places_is_answered(self, start_server):
        server = start_server(DRAGOMAN_LIMITS__MAX_STREAM_TEXTS="3")
        async with calling(server.address) as calls:
            call = await opened(calls, message(*((number, f"text {number}") for number in range(50))))
            await call.done_writing()

            assert await all_of(call) == {number: f"text {number}" for number in range(50)}

    async def test_settings_hold_for_every_text(self, server):
        async with calling(server.address) as calls:
            options = pb.TranslateOptions(beam_size=4, num_hypotheses=3)
            call = await opened(calls, message(options=options), message((1, "one")), message((2, "two")))
            await call.done_writing()
            answers = [answer async for answer in answers_of(call)]

            assert [(len(answer.translation.hypotheses), answer.beam_size) for answer in answers] == [(3, 4)] * 2


class TestMistakes:
    @pytest.mark.parametrize(
        ("messages", "code", "words"),
        [
            ([message((1, LONG), (1, "x"))], "INVALID_ARGUMENT", "id 1 is that of a text without an answer yet"),
            ([message((1, LONG)), message((1, "x"))], "INVALID_ARGUMENT", "id 1 is that of a text without an answer"),
            ([message((1, LONG), model="echo"), message(model="echo")], "INVALID_ARGUMENT", "settings came again"),
            ([message((1, LONG)), message(model="echo")], "INVALID_ARGUMENT", "settings came again"),
            ([message(model="other")], "NOT_FOUND", "there is no model 'other'"),
            ([message(target_language="fr")], "NOT_FOUND", "no model for any language to 'fr'"),
            ([message(options=pb.TranslateOptions(beam_size=99))], "INVALID_ARGUMENT", "beam_size is 99"),
        ],
    )
    async def test_mistake_ends_the_stream_and_its_work(self, start_server, messages, code, words):
        server = start_server(**SLOW)
        async with calling(server.address) as calls:
            error = await end_of(await opened(calls, *messages))

            assert error.code().name == code
            assert words in details_of(error)
            await has_gone_idle(server)
            assert server.metric("dragoman_requests_total", method=TRANSLATE_STREAM[1:], code=code) == 1

    async def test_malformed_message_in_the_middle_ends_the_stream(self, start_server):
        server = start_server(**SLOW)
        async with calling(server.address) as calls:
            call = calls.stream(TRANSLATE_STREAM)
            await call.write(message((1, LONG)).SerializeToString())
            await eventually(lambda: server.metric("dragoman_running_jobs") == 1)
            await call.write(b"\xff\xff\xff")

            error = await failure(call.read())
            assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert error.details() == "the request is not a valid dragoman.v1.TranslateStreamRequest message"
            await has_gone_idle(server)


class TestFlowControl:
    async def test_slow_reader_stops_its_own_stream_and_nothing_else(self, start_server):
        """With every place taken by an answer nobody reads, nothing runs, nothing more is read, others are served."""
        server = start_server(DRAGOMAN_LIMITS__MAX_STREAM_TEXTS="16")
        num_texts, text = 600, "x" * 50
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
        server = start_server(DRAGOMAN_LIMITS__MAX_STREAMS="3", DRAGOMAN_LIMITS__MAX_CONCURRENT_REQUESTS="1", **SLOW)
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

    async def _done(self, call: Any) -> Any:
        await call.done_writing()
        return call

    async def test_text_without_room_waits_where_a_call_is_refused(self, start_server):
        server = start_server(DRAGOMAN_LIMITS__MAX_QUEUED_TOKENS="100", ECHO_STEP_S="0.005")
        async with calling(server.address) as calls:
            call = await opened(calls, message(*((number, "x" * 58) for number in range(10))))
            await eventually(lambda: server.metric("dragoman_stream_texts") == 10)

            assert await code_of(calls.translate("x" * 90)) is grpc.StatusCode.RESOURCE_EXHAUSTED
            await call.done_writing()
            assert await all_of(call) == dict.fromkeys(range(10), "x" * 58)
            assert server.metric("dragoman_rejected_total", reason="token_budget") == 1
            await has_gone_idle(server)

    async def test_waiting_text_is_woken_by_a_call_that_leaves(self, start_server):
        server = start_server(DRAGOMAN_LIMITS__MAX_QUEUED_TOKENS="100", ECHO_STEP_S="0.005")
        async with calling(server.address) as calls:
            before = calls.translate("x" * 90)
            await eventually(lambda: server.metric("dragoman_running_jobs") == 1)
            call = await opened(calls, message((1, "y" * 90)))
            await call.done_writing()

            assert await all_of(call) == {1: "y" * 90}
            assert (await before).translations[0].status.code == 0


class TestEnds:
    async def test_cancelled_stream_frees_its_rows_and_leaves_its_neighbour_alone(self, start_server):
        server = start_server(**SLOW)
        async with calling(server.address) as calls:
            neighbour = await opened(calls, message((1, "neighbour" * 5)))
            leaving = await opened(calls, message(*((number, LONG) for number in range(5))))
            await eventually(lambda: server.metric("dragoman_running_jobs") == 6)

            leaving.cancel()

            await eventually(lambda: server.metric("dragoman_running_jobs") <= 1)
            await neighbour.done_writing()
            assert await all_of(neighbour) == {1: "neighbour" * 5}
            await has_gone_idle(server)
            assert server.metric("dragoman_cancelled_total", where="decode", reason="cancelled") == 5
            assert server.metric("dragoman_requests_total", method=TRANSLATE_STREAM[1:], code="CANCELLED") == 1

    async def test_stream_cancelled_while_its_answers_are_stuck_frees_everything(self, start_server):
        server = start_server(DRAGOMAN_LIMITS__MAX_STREAM_TEXTS="16")
        async with grpc.aio.insecure_channel(server.address, options=SMALL_WINDOW) as channel:
            call = Calls(channel).translate_stream()
            sending = asyncio.create_task(self._send_64_megabytes(call))
            await eventually(lambda: server.metric("dragoman_stream_texts") == 16)
            await asyncio.wait([sending], timeout=0.5)
            assert not sending.done()  # it is held, too

            call.cancel()

            await has_gone_idle(server)
            await asyncio.gather(sending, return_exceptions=True)

    async def _send_64_megabytes(self, call) -> None:
        for number in range(0, 64 * 5_000, 200):
            await call.write(message(*((number + index, "x" * 200) for index in range(200))))

    async def test_caller_s_deadline_frees_the_rows(self, start_server):
        server = start_server(**SLOW)
        async with calling(server.address) as calls:
            await calls.texts("")  # connected
            call = await opened(calls, message((1, LONG * 2)), timeout=4.001)  # sent as 4.01
            await eventually(lambda: server.metric("dragoman_running_jobs") == 1)

            error = await end_of(call)

            assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
            await eventually(lambda: server.metric("dragoman_requests_in_flight") == 0)
            code = {"method": TRANSLATE_STREAM[1:], "code": "DEADLINE_EXCEEDED"}
            assert server.metric("dragoman_requests_total", **code) == 1
            await has_gone_idle(server)

    async def test_server_s_own_limit_is_that_of_streams(self, start_server):
        server = start_server(
            DRAGOMAN_LIMITS__MAX_STREAM_SECONDS="2", DRAGOMAN_LIMITS__MAX_REQUEST_SECONDS="0.1", **SLOW
        )
        async with calling(server.address) as calls:
            call = await opened(calls, message((1, "x" * 8), (2, LONG)))
            answers = answers_of(call)
            assert (await anext(answers)).id == 1  # later than a call may take

            error = await failure(anext(answers))
            assert error.details() == "the call took longer than 2 s, the most this server allows"
            await has_gone_idle(server)

    async def test_draining_server_answers_what_it_has_taken_in_and_then_ends_the_stream(self, start_server):
        server = start_server(ECHO_STEP_S="0.005")
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


class TestClientHelper:
    """`translate_stream` of the client, on servers that lose what they are working with."""

    async def test_engine_killed_in_mid_stream_costs_no_answer(self, start_server):
        server = start_server(DRAGOMAN_ENGINE__NUM_ENGINES="2", ECHO_STEP_S="0.002")
        num_texts, answers, num_killed = 400, [], 0
        async with AsyncClient(server.address) as client:
            async for number, answer in client.translate_stream(f"text {number}" for number in range(num_texts)):
                answers.append((number, answer.text))
                if len(answers) in {20, 200}:
                    _kill(server.engine_pids()[0])
                    num_killed += 1  # and it is back before the next one goes: a text survives one loss, not two
                    await has_restarted(server, num_killed)

        assert sorted(answers) == [(number, f"text {number}") for number in range(num_texts)]
        assert num_killed == 2
        assert server.metric("dragoman_failed_texts_total") == 0
        await has_gone_idle(server)

    async def test_server_killed_in_mid_stream_and_started_again_costs_no_answer(self, start_server):
        first = start_server(ECHO_STEP_S="0.002")
        num_texts, answers = 300, []
        async with AsyncClient(first.address, ClientConfig(max_stream_texts=32)) as client:
            async for number, answer in client.translate_stream(f"text {number}" for number in range(num_texts)):
                answers.append((number, answer.text))
                if len(answers) == 50:
                    _kill(first.process.pid)
                    first.process.wait()
                    await asyncio.to_thread(start_server, DRAGOMAN_LISTEN__GRPC_PORT=str(first.grpc_port))

        assert sorted(answers) == [(number, f"text {number}") for number in range(num_texts)]

    async def test_drained_server_and_its_successor_answer_everything_once(self, start_server):
        first = start_server(ECHO_STEP_S="0.002")
        num_texts, answers = 300, []
        async with AsyncClient(first.address, ClientConfig(max_stream_texts=32)) as client:
            async for number, answer in client.translate_stream(f"text {number}" for number in range(num_texts)):
                answers.append((number, answer.text))
                if len(answers) == 50:
                    first.terminate()
                    assert await asyncio.to_thread(first.wait) == 0
                    await asyncio.to_thread(start_server, DRAGOMAN_LISTEN__GRPC_PORT=str(first.grpc_port))

        assert sorted(answers) == [(number, f"text {number}") for number in range(num_texts)]


async def test_a_hundred_streams_beside_calls(start_server):
    server = start_server(DRAGOMAN_LIMITS__MAX_STREAMS="100", DRAGOMAN_LIMITS__MAX_STREAM_TEXTS="4")
    async with calling(server.address) as calls:

        async def stream(number: int) -> bool:
            texts = {index: f"{number} text {index}" * (1 + (number + index) % 4) for index in range(12)}
            call = calls.translate_stream()
            for index, text in texts.items():
                await call.write(message((index, text)))
            await call.done_writing()
            return await all_of(call) == texts

        async def one_call(number: int) -> bool:
            return await calls.texts(f"call {number}") == [f"call {number}"]

        works = [*(stream(number) for number in range(100)), *(one_call(number) for number in range(100))]
        assert all(await asyncio.wait_for(asyncio.gather(*works), TIMEOUT_S))
        await has_gone_idle(server)
        await eventually(lambda: server.metric("dragoman_requests_in_flight") == 0)
        for method in (TRANSLATE, TRANSLATE_STREAM):
            assert server.metric("dragoman_requests_received_total", method=method[1:]) == 100
            assert server.metric("dragoman_requests_total", method=method[1:], code="OK") == 100


def _kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
