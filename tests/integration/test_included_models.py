"""A server that is told of no model: it serves all that are included, and the English-German one answers by default."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from model.bundle import PRETRAINED_DIR
from protos import translation_pb2 as pb
from tests.fakes.calls import LIST_MODELS, Calls, calling
from tests.fakes.echo_bundle import write_echo_bundle
from tests.fakes.server_process import ROOT, ServerProcess, start


class Installation:
    """A package `model` of links, which Python finds before ours."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        package = directory / "model"
        package.mkdir(parents=True)
        for module in PRETRAINED_DIR.parent.glob("*.py"):
            (package / module.name).symlink_to(module)

    @property
    def environment(self) -> dict[str, str]:
        """Variables for a process that is to run it."""
        return {"PYTHONPATH": f"{self._directory}:{ROOT}", "PYTHONSAFEPATH": "1"}  # safe: not from where it is started

    def include(self, name: str, *, version: str = "1") -> Path:
        """Add a bundle, or replace it; its languages are those of its name: `en-de`."""
        source, target = name.split("-")
        directory = self._directory / "model" / PRETRAINED_DIR.name / name
        return write_echo_bundle(directory, name=name, version=version, languages=(source, target))


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
    with start(None, directory, *options, **installation.environment) as server:
        yield server


async def model_of(calls: Calls, **request: Any) -> str:
    answer = await calls.translate("hello", **request)
    return f"{answer.model} {answer.model_version}"


async def models_of(calls: Calls) -> list[str]:
    answer = pb.ListModelsResponse.FromString(await calls.method(LIST_MODELS)(b"", timeout=120.0))
    return [model.name for model in answer.models]


async def test_request_that_names_nothing_goes_to_the_default_and_others_where_they_say(server):
    async with calling(server.address) as calls:
        assert await model_of(calls) == "en-de 1"
        assert await model_of(calls, source_language="de") == "de-en 1"
        assert await model_of(calls, source_language="de", target_language="en") == "de-en 1"
        assert await model_of(calls, model="de-en") == "de-en 1"
        assert await models_of(calls) == ["en-de", "de-en"]
    assert len(server.engine_pids()) == 2  # one of each: `engine.num_engines` is of a model
