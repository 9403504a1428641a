"""Models that come and go in a running server: nothing is lost, and nothing bad gets in."""

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from protos import translation_pb2 as pb
from protos.translation_pb2_grpc import TranslationServiceStub
from tests.fakes.calls import Calls, calling, eventually, words
from tests.fakes.echo_bundle import ModelRepository, cut_tokenizer, tamper
from tests.fakes.edges import TWO_EDGES, calling_each_edge
from tests.fakes.server_process import ServerProcess

CHANGES = "dragoman_model_reload_total"
# What is found by reading a bundle, and what an engine finds that starts with it; the rest is shown by unit tests.
BEFORE_AND_IN_AN_ENGINE = [
    (tamper, "encoder.onnx has another SHA-256 than the manifest says"),
    (cut_tokenizer, "the engine did not start: ValueError: tokenizer"),
]


@pytest.fixture
def repository(tmp_path: Path) -> ModelRepository:
    (tmp_path / "models").mkdir()
    return ModelRepository(tmp_path / "models")


@pytest.fixture
def serve(start_server, repository) -> Callable[..., ServerProcess]:
    """Starts a server of the repository."""
    return lambda **variables: start_server(DRAGOMAN_MODELS__DIRECTORY=str(repository.directory), **variables)


async def change(server: ServerProcess, result: str, action: Callable[[], object]) -> None:
    """Do something to the repository, ask for a reload, and return when one more version has this result."""
    before = server.metric(CHANGES, result=result)
    action()
    server.process.send_signal(signal.SIGHUP)
    await eventually(lambda: server.metric(CHANGES, result=result) > before)


@contextmanager
def held(server: ServerProcess) -> Iterator[None]:
    """Keeps its only engine, and what that decodes, from going on."""
    (engine,) = server.engine_pids()
    os.kill(engine, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(engine, signal.SIGCONT)


async def version_of(calls: Calls, **request: Any) -> tuple[str, str]:
    answer = await calls.translate("hello", **request)
    return answer.model, answer.model_version


class TestReload:
    async def test_swaps_under_load_good_and_bad_lose_no_call(self, serve, repository):
        """Every answer names a version that was good; then there is one model again, in processes and in memory."""
        repository.put("echo", "0")
        server = serve(ECHO_STEP_S="0.002")
        front = psutil.Process(server.process.pid)
        answers: list[str] = []
        is_over = False
        async with calling(server.address) as calls:

            async def caller(number: int) -> None:
                text = f"caller {number} says something"
                while not is_over:
                    answer = await calls.translate(text)
                    assert answer.translations[0].hypotheses[0].text == text
                    answers.append(answer.model_version)

            callers = [asyncio.create_task(caller(number)) for number in range(8)]
            good = []
            resident = 0
            for number, (spoil, reason) in enumerate(BEFORE_AND_IN_AN_ENGINE):
                bad_version, version = str(2 * number + 1), str(2 * number + 2)
                good.append(version)
                await change(server, "refused", partial(repository.put_bad, "echo", bad_version, spoil))
                assert reason in server.log_text()
                await change(server, "retired", partial(repository.put, "echo", version))
                await eventually(partial(answers.__contains__, version))
                resident = resident or front.memory_info().rss
            is_over = True
            await asyncio.gather(*callers)
            await eventually(lambda: len(server.engine_pids()) == 1)
            grown = front.memory_info().rss - resident

        assert set(answers) == {"0", *good}
        assert server.metric("dragoman_requests_total", code="OK") == len(answers)
        assert server.metric("dragoman_requests_total") - server.metric("dragoman_requests_total", code="OK") == 0
        assert server.metric("dragoman_model_info") == 1
        assert grown < 10 << 20

    async def test_call_under_way_is_finished_by_the_version_it_has_found(self, serve, repository):
        repository.put("echo", "1")
        server = serve()
        async with calling(server.address) as calls:
            with held(server):
                under_way = calls.translate(words(100))
                await eventually(lambda: server.metric("dragoman_running_jobs") == 1)
                await change(server, "loaded", lambda: repository.put("echo", "2"))

                assert await version_of(calls) == ("echo", "2")
                assert not under_way.done()
            assert (await under_way).model_version == "1"
            await eventually(lambda: len(server.engine_pids()) == 1)

    async def test_version_whose_process_crashes_is_refused_and_costs_that_process_only(self, serve, repository):
        repository.put("echo", "1")
        server = serve(ECHO_CRASH="2")
        async with calling(server.address) as calls:
            await change(server, "refused", lambda: repository.put("echo", "2"))

            assert await version_of(calls) == ("echo", "1")
        assert "killed by SIGSEGV" in server.log_text()
        assert len(server.engine_pids()) == 1

    async def test_watched_repository_is_followed_without_a_signal(self, serve, repository):
        repository.put("echo", "1")
        server = serve(DRAGOMAN_MODELS__WATCH="true", DRAGOMAN_MODELS__WATCH_PERIOD_S="0.05")

        repository.put_bad("echo", "2", tamper)
        await eventually(lambda: server.metric(CHANGES, result="refused") == 1)
        repository.put("echo", "3")
        await eventually(lambda: server.metric(CHANGES, result="loaded") == 2)

        async with calling(server.address) as calls:
            assert await version_of(calls) == ("echo", "3")
        assert server.metric(CHANGES, result="refused") == 1


class TestOnDemand:
    async def test_models_are_loaded_and_unloaded_on_two_edges_without_an_error(self, serve, repository):
        for name in ("a", "b"):
            repository.put(name, "1")
        limited = {"DRAGOMAN_MODELS__MAX_MEMORY_MB": "8000", "DRAGOMAN_MODELS__IDLE_S": "0.2"}
        server = serve(**TWO_EDGES, **limited)
        async with calling_each_edge(server) as edges:
            for number, (calls,) in enumerate(edges.values(), start=1):
                listed = await TranslationServiceStub(calls.channel).ListModels(pb.ListModelsRequest())
                assert [model.name for model in listed.models] == ["a", "b"]
                assert [await version_of(calls, model=name) for name in "ba"] == [("b", "1"), ("a", "1")]
                await eventually(lambda: server.metric("dragoman_models_loaded") == 0)
                await eventually(lambda: server.engine_pids() == [])
                loads = server.metric("dragoman_model_load_seconds_count")
                assert (loads >= 2 * number, server.get("/readyz")[0]) == (True, 200)
        assert server.metric("dragoman_requests_total", code="OK") >= 4
        assert server.metric("dragoman_model_unloads_total", reason="idle") == loads
