"""`translate_stream` of the client, on real servers that lose what they are working with."""

import asyncio
import os
import signal

import pytest

from service.client import AsyncClient
from service.client.channel import ClientConfig
from tests.fakes.calls import eventually
from tests.fakes.server_process import ServerProcess
from tests.fakes.streams import has_gone_idle


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
