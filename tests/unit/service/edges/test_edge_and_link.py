"""Both ends of the line between core and edge, joined here without processes."""

import asyncio
import time
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from service.call import ANYBODY, Call
from service.config import LimitsConfig, ServerConfig
from service.edges.edge import Edge
from service.edges.link import CoreLink, RemoteModel
from service.edges.messages import ServingState, SetLevel
from service.engine.job import FRAME_HEADER_BYTES, SearchParams, from_payload, to_frame
from service.errors import InternalError, Overloaded, Unavailable
from service.processes.child import Spare
from service.queue.admission import Admission, Permit
from service.registry.catalogue import Lease, OnRoom, ServedModel, Work, WorkDone
from service.registry.host import ModelHost
from service.telemetry.logs import set_log_level
from tests.fakes.echo_bundle import write_echo_bundle
from tests.fakes.logs import log
from tests.fakes.model_info import model_info

__all__ = ["log"]

LIMITS = LimitsConfig(max_concurrent_requests=4, max_streams=1)
WORK = Work(((5, 6, 2),), SearchParams())


class GatedHost:
    """A model in the core whose work waits until the test opens the gate, or is refused."""

    def __init__(self, bundle: Path, number: int) -> None:
        self.number = number
        self.info = model_info(f"model {number}")
        self.bundle = SimpleNamespace(directory=bundle, manifest_sha256="")
        self.lease, self.offers, self.is_loaded = Lease(), Lease(), True
        self.gate = asyncio.Event()
        self.running = 0
        self.refusal: Overloaded | None = None

    async def run(self, work: Work, call: Call, permit: Permit, on_room: OnRoom = None) -> WorkDone:
        if self.refusal is not None:
            raise self.refusal
        if on_room is not None:
            on_room()
        self.running += 1
        try:
            await self.gate.wait()
        finally:
            self.running -= 1
        return WorkDone([], work.params.beam_size)


class Facts:
    """What the core knows of the whole server."""

    async def is_ready(self) -> bool:
        return True

    async def characters_of(self, client: str) -> int:
        return len(client)

    async def page(self) -> bytes:
        raise ValueError("no page")


class CountedSpare(Spare):
    """Counts how often one is to be made."""

    def __init__(self) -> None:
        super().__init__("edge", lambda _: [])
        self.num_made = 0

    def make(self) -> None:
        self.num_made += 1


class Joined:
    """A core with one edge; a record arrives at once, and as another object."""

    def __init__(self, bundle: Path) -> None:
        config = ServerConfig(limits=LIMITS)
        self.sent: list[object] = []  # by the core
        self.host, self.next_host = GatedHost(bundle, 0), GatedHost(bundle, 1)
        self.admission = Admission(LIMITS, on_leave=self._leave)
        self.num_lost = 0
        self.spare = CountedSpare()
        self.edge = Edge(
            config, self.spare, self.admission, Facts(), on_counted=lambda _: None, on_lost=self._count_loss
        )
        self.link = CoreLink(lambda record: self.edge._take(copy_of(record)), LIMITS)
        self.begin()

    def begin(self) -> None:
        """A process has taken its place."""
        self.edge.supervisor.process = cast("Any", SimpleNamespace(send=self._to_edge))
        self.edge._greet()

    def lose(self) -> None:
        self.edge.supervisor.process = None
        self.edge._lose("killed")

    async def offer(self, version: int, *hosts: GatedHost) -> None:
        self.edge.offer(version, cast("list[ModelHost]", hosts))
        await self.edge.has_switched()

    def start(self, permit: Permit, on_room: OnRoom = None) -> "asyncio.Task[WorkDone]":
        """A call's work for the model that the edge finds."""
        return asyncio.create_task(self.model.run(WORK, some_call(), permit, on_room))

    @property
    def model(self) -> ServedModel:
        return self.link.catalogue.find(model=None, source_language="", target_language="")

    def permit(self) -> Permit:
        """At the edge."""
        return self.link.admission.admit(1, now=time.monotonic())

    def _leave(self) -> None:
        self.edge.departed()

    def _count_loss(self) -> None:
        self.num_lost += 1

    def _to_edge(self, record: object) -> None:
        self.sent.append(record)
        self._take_at_edge(copy_of(record))

    def _take_at_edge(self, record: Any) -> None:
        if type(record).__name__ == "Offer":
            self.switching = asyncio.create_task(self.link.switch(record))
        else:
            self.link.take(record)


def copy_of(record: object) -> object:
    return from_payload(to_frame(record)[FRAME_HEADER_BYTES:])


def some_call() -> Call:
    now = time.monotonic()
    return Call(method="m", request_id="r", started=now, deadline=now + 60.0, texts=1)


async def until(is_so: Callable[[], bool]) -> None:
    """Let the other tasks make as few steps as it takes."""
    for _ in range(1_000):
        if is_so():
            return
        await asyncio.sleep(0)
    raise AssertionError("it does not happen")


async def until_running(host: GatedHost, count: int) -> None:
    await until(lambda: host.running == count)


@pytest.fixture
async def joined(tmp_path: Path, log: StringIO) -> Joined:
    joined = Joined(write_echo_bundle(tmp_path / "echo"))
    await joined.offer(1, joined.host)
    return joined


async def test_cancelled_call_leaves_nothing_in_the_core(joined):
    call = joined.start(joined.permit())
    await until_running(joined.host, 1)

    call.cancel()

    await until_running(joined.host, 0)
    assert (joined.admission.requests, joined.edge.calls, joined.link._waiting) == (0, {}, {})


async def test_lost_edge_gives_back_everything_that_its_calls_and_streams_held(joined):
    calls = [joined.start(joined.permit()) for _ in range(3)]
    await joined.link.open_stream(ANYBODY)
    await until_running(joined.host, 3)
    runs = list(joined.edge._runs.values())

    joined.lose()

    await asyncio.wait(runs, timeout=10)
    assert (joined.admission.requests, joined.admission.streams, joined.num_lost) == (0, 0, 1)
    assert (joined.edge.calls, joined.edge._runs, joined.host.offers.calls) == ({}, {}, 0)
    for call in calls:
        call.cancel()


async def test_limit_of_streams_is_of_all_edges(joined):
    elsewhere = joined.admission.admit_stream(ANYBODY)
    with pytest.raises(Overloaded, match="1 streams are open, at most 1 may be"):
        await joined.link.open_stream(ANYBODY)
    assert joined.link.admission.streams == 0

    elsewhere.release()
    permit = await joined.link.open_stream(ANYBODY)
    assert joined.admission.streams == 1
    permit.release()
    assert joined.admission.streams == 0


async def test_call_that_found_the_old_model_is_finished_by_it_and_then_the_core_may_end_it(joined):
    old = joined.model
    with old.lease:
        call = joined.start(joined.permit())
        await until_running(joined.host, 1)
        await joined.offer(2, joined.next_host)
        assert joined.model.info.name == "model 1"
        assert joined.host.offers.calls == 1
        joined.host.gate.set()
        await call

    await joined.host.offers.wait_idle()
    with pytest.raises(Unavailable, match="the model was replaced"):
        await old.run(WORK, some_call(), joined.permit())


async def test_place_that_comes_free_right_behind_a_refusal_is_offered_to_the_refused_text(joined):
    """The refusal and the news of the place arrive together: the text is not in its line yet."""
    joined.host.refusal = Overloaded("full", reason="token_budget", retry_after_s=1.0)
    leaving = joined.admission.admit(1, now=time.monotonic())
    was_offered = asyncio.Event()

    async def text() -> None:
        with pytest.raises(Overloaded):
            await joined.model.run(WORK, some_call(), joined.link.admission.admit_part(ANYBODY))
        with joined.link.lines.queue("line") as place:
            await place.turn()
            was_offered.set()

    waiting = asyncio.create_task(text())
    await until(lambda: joined.edge._wants_departures)  # its answer has arrived, and the text has not run since
    leaving.release()

    await until(was_offered.is_set)
    await waiting


async def test_room_in_the_core_is_said_to_the_call_that_asked_for_it(joined):
    has_room = asyncio.Event()
    joined.host.gate.set()

    await joined.start(joined.permit(), has_room.set)

    assert has_room.is_set()


async def test_process_that_takes_over_is_told_of_models_door_and_log_level(joined):
    door = ServingState(is_serving=True)
    joined.edge.set_state(door)
    set_log_level("error")

    joined.lose()
    joined.link = CoreLink(joined.link._send, LIMITS)
    joined.sent.clear()
    joined.begin()
    await joined.edge.has_switched()

    assert isinstance(joined.model, RemoteModel)
    assert joined.host.offers.calls == 1
    assert joined.sent[1:] == [door, SetLevel("error")]
    assert joined.spare.num_made == 2  # another one, now that the one that there was serves


async def test_edge_learns_of_the_whole_server_and_of_what_could_not_be_told(joined):
    assert await joined.link.ask("is_ready") is True
    assert await joined.link.ask("characters_of", "shop") == 4
    with pytest.raises(InternalError, match="page"):
        await joined.link.ask("page")
