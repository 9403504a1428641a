"""A server that is told of no model: it serves all that are included, and the English-German one answers by default."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from protos import translation_pb2 as pb
from tests.fakes.calls import LIST_MODELS, Calls, calling, eventually
from tests.fakes.command_line import run
from tests.fakes.installation import Installation
from tests.fakes.server_process import ServerProcess, environment, start


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """One that includes two models."""
    installation = Installation(tmp_path_factory.mktemp("installed"))
    for name in ("de-en", "en-de"):
        installation.include(name)
    return installation


@pytest.fixture(scope="module")
def server(both: Installation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    yield from running(both, tmp_path_factory.mktemp("server"))


def running(installation: Installation, directory: Path, *options: str) -> Iterator[ServerProcess]:
    """A server of its included models, until the test is done with it."""
    server = start(None, directory, *options, **installation.environment)
    yield server
    server.process.kill()
    server.process.wait()


async def model_of(calls: Calls, **request: Any) -> str:
    answer = await calls.translate("hello", **request)
    return f"{answer.model} {answer.model_version}"


async def models_of(calls: Calls) -> list[str]:
    answer = pb.ListModelsResponse.FromString(await calls.method(LIST_MODELS)(b"", timeout=10))
    return [model.name for model in answer.models]


async def test_request_that_names_nothing_goes_to_the_default_and_others_where_they_say(server):
    async with calling(server.address) as calls:
        assert await model_of(calls) == "en-de 1"
        assert await model_of(calls, source_language="de") == "de-en 1"
        assert await model_of(calls, source_language="de", target_language="en") == "de-en 1"
        assert await model_of(calls, model="de-en") == "de-en 1"
        assert await models_of(calls) == ["en-de", "de-en"]
    assert len(server.engine_pids()) == 2  # one of each: `engine.num_engines` is of a model


def test_commands_reach_both(server):
    listed = run("models", "--server", server.address).stdout.splitlines()
    before = server.metric("dragoman_requests_total", model="de-en", code="OK")
    translated = run("translate", "--server", server.address, "--from", "de", "--to", "en", "Hallo")

    assert [line.split()[0] for line in listed] == ["MODEL", "en-de", "de-en"]
    assert translated.exit_code == 0, translated.output
    assert server.metric("dragoman_requests_total", model="de-en", code="OK") == before + 1


def test_default_stays_the_default_when_it_is_reloaded(tmp_path):
    installation = Installation(tmp_path / "installed")
    for name in ("de-en", "en-de"):
        installation.include(name)
    (tmp_path / "server").mkdir()

    async def reload(server: ServerProcess) -> None:
        installation.include("en-de", version="2")
        server.process.send_signal(signal.SIGHUP)
        await eventually(lambda: server.metric("dragoman_model_reload_total", result="loaded") == 3)
        async with calling(server.address) as calls:
            assert await model_of(calls) == "en-de 2"
            assert await models_of(calls) == ["en-de", "de-en"]

    for server in running(installation, tmp_path / "server"):
        asyncio.run(reload(server))


@pytest.mark.parametrize(("name", "model"), [("default", "en-de"), ("en-de", "en-de"), ("de-en", "de-en")])
def test_one_that_is_named_is_meant_alone(both, name, model):
    command = [sys.executable, "-m", "service", "models", "--bundle", name]
    listed = subprocess.run(
        command, env=environment(None, **both.environment), capture_output=True, text=True, timeout=30, check=False
    )

    assert [line.split()[0] for line in listed.stdout.splitlines()] == ["MODEL", model], listed.stderr


async def test_server_of_one_that_is_named_has_no_other(both, tmp_path):
    for server in running(both, tmp_path, "--bundle", "default"):
        async with calling(server.address) as calls:
            assert await models_of(calls) == ["en-de"]
        assert len(server.engine_pids()) == 1
