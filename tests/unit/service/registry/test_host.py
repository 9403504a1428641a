"""One version's life, with a dispatcher that has no processes."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from model.bundle import Bundle, BundleError
from service.config import ModelsConfig, ServerConfig
from service.engine.job import FinishReason, Hypothesis, JobResult, SearchParams
from service.errors import InternalError
from service.registry.host import HostState, ModelHost
from service.registry.model_info import describe
from service.registry.repository import BundleCandidate
from tests.fakes.echo_bundle import write_echo_bundle


class EchoDispatcher:
    """Says every source again, at once."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.error: Exception | None = None

    async def start(self) -> None:
        self.calls.append("start")
        if self.error:
            raise self.error

    def submit(
        self, source_ids: Sequence[int], params: SearchParams, deadline: float | None
    ) -> "asyncio.Future[JobResult]":
        best = Hypothesis(token_ids=tuple(source_ids[:-1]), score=-0.1, finish_reason=FinishReason.END_OF_SENTENCE)
        future: asyncio.Future[JobResult] = asyncio.get_running_loop().create_future()
        future.set_result(JobResult(job_id=0, hypotheses=(best,), queue_s=0.0, encode_s=0.0, decode_s=0.0, num_steps=1))
        self.calls.append("submit")
        return future

    async def close(self) -> None:
        self.calls.append("close")


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
    assert dispatcher.calls == ["start", "submit", "submit"]
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
    assert dispatcher.calls[-1] == "close"
