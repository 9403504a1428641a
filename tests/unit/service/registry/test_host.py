"""One version's life, with a dispatcher that has no processes."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from model.bundle import Bundle, BundleError
from service.config import ModelsConfig, ServerConfig
from service.errors import InternalError
from service.registry.host import HostState, ModelHost
from service.registry.model_info import describe
from service.registry.repository import BundleCandidate
from tests.fakes.dispatchers import EchoDispatcher
from tests.fakes.echo_bundle import write_echo_bundle


def host_of(directory: Path, dispatcher: Any, *, self_test: bool = True) -> ModelHost:
    bundle, config = Bundle.load(directory), ServerConfig(models=ModelsConfig(self_test=self_test))
    return ModelHost(BundleCandidate(directory=directory), bundle, describe(bundle), dispatcher, config)


@pytest.fixture
def dispatcher() -> EchoDispatcher:
    return EchoDispatcher()


async def test_host_serves_once_its_engines_are_up_and_its_golden_sentences_have_come_out(tmp_path, dispatcher):
    bundle = write_echo_bundle(tmp_path / "b", golden=[("one", "one"), ("two", "two")])
    host = host_of(bundle, dispatcher)
    states = [host.state]

    await host.start()

    states.append(host.state)
    assert (dispatcher.state, len(dispatcher.asked)) == ("started", 2)
    assert states == [HostState.LOADING, HostState.SERVING]


async def test_wrong_golden_sentence_ends_the_start_unless_there_is_no_self_test(tmp_path, dispatcher):
    bundle = write_echo_bundle(tmp_path / "b", golden=[("one", "eins")])

    with pytest.raises(BundleError, match="golden sentences differ"):
        await host_of(bundle, dispatcher).start()
    await host_of(bundle, dispatcher, self_test=False).start()


async def test_tokenizer_is_not_opened_here_before_an_engine_has_survived_it(tmp_path, dispatcher):
    bundle = write_echo_bundle(tmp_path / "b")
    host = host_of(bundle, dispatcher)
    (bundle / "shared.spm").write_bytes(b"crafted")
    dispatcher.error = InternalError("the engine did not start: killed by SIGSEGV")

    with pytest.raises(InternalError, match="SIGSEGV"):
        await host.start()


async def test_host_is_drained_when_its_last_call_has_left_and_ends_its_engines_when_closed(tmp_path, dispatcher):
    host = host_of(write_echo_bundle(tmp_path / "b"), dispatcher)
    await host.start()
    with host.lease, host.lease:
        was_in_time = await host.drain(0.01)
        draining = asyncio.create_task(host.drain(5.0))
        await asyncio.sleep(0)
        assert (host.state, host.lease.calls, draining.done()) == (HostState.DRAINING, 2, False)

    assert (was_in_time, await draining) == (False, True)
    await host.close()
    assert dispatcher.state == "closed"
