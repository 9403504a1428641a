"""One version's life, with a pool that has no processes."""

from pathlib import Path
from typing import Any

import pytest

from model.bundle import Bundle, BundleError
from service.config import ModelsConfig, ServerConfig
from service.errors import InternalError
from service.models.info import describe
from service.models.loaded import LoadedModel, ModelState
from service.models.repository import BundleVersion
from tests.fakes.echo_bundle import write_echo_bundle
from tests.fakes.engine_pools import EchoPool


def serving(directory: Path, pool: Any, *, self_test: bool = True) -> LoadedModel:
    bundle, config = Bundle.load(directory), ServerConfig(models=ModelsConfig(self_test=self_test))
    return LoadedModel(BundleVersion(directory=directory), bundle, describe(bundle), pool, config)


@pytest.fixture
def pool() -> EchoPool:
    return EchoPool()


async def test_host_serves_once_its_engines_are_up_and_its_golden_sentences_have_come_out(tmp_path, pool):
    bundle = write_echo_bundle(tmp_path / "b", golden=[("one", "one"), ("two", "two")])
    host = serving(bundle, pool)
    states = [host.state]

    await host.start()

    states.append(host.state)
    assert (pool.state, len(pool.asked)) == ("started", 2)
    assert states == [ModelState.UNLOADED, ModelState.SERVING]


async def test_wrong_golden_sentence_ends_the_start_unless_there_is_no_self_test(tmp_path, pool):
    bundle = write_echo_bundle(tmp_path / "b", golden=[("one", "eins")])

    with pytest.raises(BundleError, match="golden sentences differ"):
        await serving(bundle, pool).start()
    await serving(bundle, pool, self_test=False).start()


async def test_tokenizer_is_not_opened_here_before_an_engine_has_survived_it(tmp_path, pool):
    bundle = write_echo_bundle(tmp_path / "b")
    host = serving(bundle, pool)
    (bundle / "shared.spm").write_bytes(b"crafted")
    pool.error = InternalError("the engine did not start: killed by SIGSEGV")

    with pytest.raises(InternalError, match="SIGSEGV"):
        await host.start()


async def test_host_ends_its_engines_when_closed(tmp_path, pool):
    host = serving(write_echo_bundle(tmp_path / "b"), pool)
    await host.start()

    await host.close()

    assert (host.state, pool.state) == (ModelState.DRAINING, "closed")
