"""Both ends of the line between the scheduler process and a frontend, joined here without processes."""

import asyncio
import time
from collections.abc import Callable, Sequence
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from service.api.http.server_status import ServerStatus
from service.call import ANYBODY, Call
from service.child_process import FRAME_HEADER_BYTES, from_payload, to_frame
from service.config import LimitsConfig, ListenConfig, ServerConfig
from service.engine.wire import Job, SearchParams, Settled
from service.errors import DeadlineExceeded, Overloaded, Unavailable
from service.models.call_scheduler import CallScheduler, Work
from service.models.catalogue import Catalogue, ServedModel, UseCount
from service.models.version import ModelVersion
from service.processes.rpc import Peer
from service.server.frontend import Frontend
from service.server.frontend_worker import RemoteScheduler
from service.server.frontends import Frontends
from service.server.process import ServingState
from service.telemetry.logs import set_log_level
from service.telemetry.metrics import Metrics
from service.telemetry.usage import UsageMeter
from tests.fakes.echo_bundle import write_echo_bundle
from tests.fakes.logs import log
from tests.fakes.model_info import model_info

__all__ = ["log"]

LIMITS = LimitsConfig(max_concurrent_requests=4, max_streams=1)
WORK = Work((Job((5, 6, 2), SearchParams()),))


class GatedModel:
    """A model of the scheduler process whose work waits until the test opens the gate, or is refused."""

    def __init__(self, bundle: Path, number: int) -> None:
        self.number = number
        self.info = model_info(f"model {number}")
        self.bundle = SimpleNamespace(directory=bundle, manifest_sha256="")
        self.in_use, self.is_loaded = UseCount(), True
        self.default_params = SearchParams()
        self.pool = self
        self.gate = asyncio.Event()
        self.running = 0
        self.refusal: Overloaded | None = None

    def forecast(self, lengths: Sequence[int], params: SearchParams, call: Call) -> tuple[float, float]:
        if self.refusal is not None:
            raise self.refusal
        return 0.0, 0.0

    async def run(self, jobs: Sequence[Job], call: Call) -> list[Settled]:
        self.running += 1
        try:
            await self.gate.wait()
        finally:
            self.running -= 1
        return []


class FrontendThere(Frontend):
    """A frontend in another process: notes what it is told of the server."""

    def __init__(self, to_scheduler: Callable[[object], None]) -> None:
        self.told: list[object] = []
        self.in_progress: list[Call] = []
        self.peer = Peer(to_scheduler)
        self.scheduler = RemoteScheduler(self.peer, LIMITS, Metrics(), UsageMeter(Metrics()))
        self.scheduler.set_log_level = self.told.append  # type: ignore[assignment, method-assign]
        self.peer.serve({Frontend: self, RemoteScheduler: self.scheduler})

    async def set_state(self, state: ServingState) -> None:
        self.told.append(state)

    async def calls(self, most: int) -> tuple[list[Call], int]:
        return self.in_progress[:most], len(self.in_progress)


class Joined:
    """A scheduler with one frontend; a frame arrives at once, and as another object."""

    def __init__(self, bundle: Path) -> None:
        self.host, self.next_host = GatedModel(bundle, 0), GatedModel(bundle, 1)
        config, metrics = ServerConfig(limits=LIMITS, listen=ListenConfig(edges=1)), Metrics()
        scheduler = CallScheduler(Catalogue(), LIMITS)
        status: ServerStatus = Peer().remote(ServerStatus)  # type: ignore[type-abstract]
        self.frontends = Frontends(config, scheduler, metrics, UsageMeter(metrics), status)
        self.spares_made = 0
        self.frontends.spare.make = self._make_spare  # type: ignore[method-assign]
        self.admission = scheduler.admission
        (self.process,) = self.frontends.processes
        self.begin()

    def begin(self) -> None:
        """A process has taken its place."""
        self.frontend = FrontendThere(lambda frame: self.process._take(copy_of(frame)))
        self.process.supervisor.process = cast("Any", SimpleNamespace(send=self._to_frontend))
        self.process._begin()

    def lose(self) -> None:
        self.process.supervisor.process = None
        self.process._lose("killed")

    async def offer(self, *hosts: GatedModel) -> None:
        await self.frontends.offer(cast("list[ModelVersion]", hosts))

    def start(self, call: Call) -> "asyncio.Task[list[Settled]]":
        """A call's work for the model that the frontend finds."""
        reservation = self.frontend.scheduler.admission.admit(1, now=time.monotonic())
        return asyncio.create_task(self.frontend.scheduler.run(self.model, WORK, call, reservation))

    @property
    def model(self) -> ServedModel:
        return self.frontend.scheduler.catalogue.find(model=None, source_language="", target_language="")

    def _make_spare(self) -> None:
        self.spares_made += 1

    def _to_frontend(self, frame: object) -> None:
        self.frontend.peer.take(copy_of(frame))


def copy_of(record: object) -> object:
    return from_payload(to_frame(record)[FRAME_HEADER_BYTES:])


def some_call() -> Call:
    now = time.monotonic()
    return Call(method="m", request_id="r", started=now, deadline=now + 60.0, texts=1, on_gone=lambda: None)


async def until(is_so: Callable[[], bool]) -> None:
    """Let the other tasks make as few steps as it takes."""
    for _ in range(1_000):
        if is_so():
            return
        await asyncio.sleep(0)
    raise AssertionError("it does not happen")


async def until_running(host: GatedModel, count: int) -> None:
    await until(lambda: host.running == count)


@pytest.fixture
async def joined(tmp_path: Path, log: StringIO) -> Joined:
    joined = Joined(write_echo_bundle(tmp_path / "echo"))
    await joined.offer(joined.host)
    return joined


async def test_lost_frontend_gives_back_everything_that_its_calls_and_streams_held(joined):
    calls = [joined.start(some_call()) for _ in range(3)]
    await joined.frontend.scheduler.open_stream(ANYBODY)
    await until_running(joined.host, 3)

    joined.lose()

    await until_running(joined.host, 0)
    assert (joined.admission.requests, joined.admission.streams) == (0, 0)
    assert joined.process._calls == set()
    await joined.frontends.drained(joined.host)
    for call in calls:
        call.cancel()


async def test_call_that_found_the_old_model_is_finished_by_it_and_then_the_scheduler_may_end_it(joined):
    old = joined.model
    with old.in_use:
        call = joined.start(some_call())
        await until_running(joined.host, 1)
        await joined.offer(joined.next_host)
        assert joined.model.info.name == "model 1"
        drained = asyncio.create_task(joined.frontends.drained(joined.host))
        joined.host.gate.set()
        await call
        await asyncio.sleep(0.01)
        assert not drained.done()

    await drained
    with pytest.raises(Unavailable, match="the model was replaced"):
        await joined.frontend.scheduler.run(old, WORK, some_call(), joined.admission.admit_part(ANYBODY))


async def test_text_of_a_stream_that_is_refused_waits_in_the_scheduler_process_until_something_leaves(joined):
    joined.host.refusal = Overloaded("full", reason="token_budget", retry_after_s=60.0)
    leaving = joined.admission.admit(1, now=time.monotonic())
    scheduler, call = joined.frontend.scheduler, some_call()
    stream = await scheduler.open_stream(ANYBODY)
    text = asyncio.create_task(scheduler.run(joined.model, WORK, call, stream))
    line = (ANYBODY.identity, joined.model.info.name, call.priority)
    await until(lambda: joined.frontends.scheduler.lines.has_line(line))
    joined.host.refusal = None
    joined.host.gate.set()

    leaving.release()

    assert await text == []


async def test_text_of_a_stream_that_would_be_too_late_says_why_it_was_refused(joined):
    joined.host.refusal = Overloaded("late", reason="deadline_unattainable", retry_after_s=60.0)
    stream = await joined.frontend.scheduler.open_stream(ANYBODY)

    with pytest.raises(DeadlineExceeded, match="late") as caught:
        await joined.frontend.scheduler.run(joined.model, WORK, some_call(), stream)

    assert caught.value.reason == "deadline_unattainable"


async def test_process_that_takes_over_is_told_of_models_state_and_log_level(joined):
    state = ServingState(is_serving=True)
    await joined.frontends.set_state(state)
    set_log_level("error")

    joined.lose()
    joined.begin()
    await joined.offer(joined.host)

    assert joined.model.info == joined.host.info
    assert joined.frontend.told == ["error", state]
    assert joined.spares_made == 2  # another one, now that the one that there was serves


async def test_calls_cross_with_what_they_have_used_and_the_phase_of_their_work(joined):
    call = some_call()
    call.source_tokens = 7
    joined.frontend.in_progress = [call]
    work = joined.start(call)
    await until_running(joined.host, 1)
    (there,) = joined.process._calls
    there.phase = "decode"

    (told,), number = await joined.process.calls(5)

    assert (told.request_id, told.source_tokens, told.phase, number) == ("r", 7, "decode", 1)
    work.cancel()


async def test_process_that_cannot_do_what_it_is_told_is_replaced(joined):
    faults: list[str] = []
    joined.process.supervisor.process.mark_unhealthy = faults.append
    joined.next_host.bundle.directory = Path("/none")

    await joined.offer(joined.next_host)

    assert faults == ["failed to do what it was told to"]
