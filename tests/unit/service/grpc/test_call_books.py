"""Whatever becomes of a call, the books balance and nothing of it is left."""

import asyncio
import gc
import random
import weakref
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
import pytest

from service.errors import InvalidInput, Overloaded, Unavailable
from tests.fakes.calls import failure
from tests.fakes.intercepted_server import ONE, SECRET, Behaviour, Harness, echo_soon, forever, harness, raising
from tests.fakes.logs import log

__all__ = ["harness", "log"]

OUTCOMES: tuple[Behaviour, ...] = (
    echo_soon,
    forever,
    raising(InvalidInput("bad", field="texts")),
    raising(Overloaded("full", reason="queue_full", retry_after_s=1.0)),
    raising(Unavailable("gone")),
    raising(RuntimeError(SECRET)),
)


@pytest.fixture
async def patient() -> AsyncIterator[Harness]:
    """One that lets calls take half a second, so that a caller can leave before."""
    async with Harness(max_request_seconds=0.5).running() as running:
        yield running


async def test_received_is_always_answered_plus_in_flight(patient, log):
    """Whatever becomes of a call: answered, refused, failed, cancelled by its caller, or out of time."""
    chance = random.Random(7)
    differences: list[float] = []  # an assertion in a handler would only be one more error of a call

    def check() -> None:
        totals = dict.fromkeys(("requests_received_total", "requests_total", "requests_in_flight"), 0.0)
        for family in patient.metrics.registry.collect():
            for sample in family.samples:
                name = sample.name.removeprefix("dragoman_")
                if name in totals:
                    totals[name] += sample.value
        received, answered, in_flight = totals.values()
        differences.append(received - answered - in_flight)

    async def behaviour(request: bytes, context: Any) -> bytes:
        check()
        try:
            if request in left:
                left[request].set()
                return await forever(request, context)
            return await chance.choice(OUTCOMES)(request, context)
        finally:
            check()

    async def one_call(_: int) -> None:
        method = "/test.Service/Nowhere" if chance.random() < 0.1 else f"/{ONE}"
        call = patient.channel.unary_unary(method)(b"bad" if chance.random() < 0.1 else b"hi")
        await asyncio.gather(call, return_exceptions=True)
        check()

    async def left_call(name: bytes) -> None:
        call = patient.one(name)
        await left[name].wait()
        call.cancel()
        check()

    left = {b"left %d" % number: asyncio.Event() for number in range(20)}
    patient.behaviour = behaviour
    await asyncio.gather(*map(one_call, range(200)), *map(left_call, left))

    answered = await patient.books()
    check()
    assert len(differences) > 400
    assert set(differences) == {0.0}
    assert {"OK", "INVALID_ARGUMENT", "UNAVAILABLE", "INTERNAL", "DEADLINE_EXCEEDED", "CANCELLED"} <= answered.keys()


async def test_a_thousand_unknown_names_have_no_series_of_their_own(harness):
    def num_series() -> int:
        return sum(len(family.samples) for family in harness.metrics.registry.collect())

    async def call(number: int) -> None:
        await failure(harness.channel.unary_unary(f"/any.Service/Method{number}")(b""))

    await call(0)
    before = num_series()
    await asyncio.gather(*(call(number) for number in range(1_000)))

    assert num_series() - before < 100  # a machine that is slow may add those of another status
    assert harness.metrics.registry.get_sample_value("dragoman_requests_received_total", {"method": "_other"}) == 1_001


async def test_refused_call_leaves_nothing_for_the_garbage_collector(harness):
    refused: list[weakref.ref[Refused]] = []

    def refusal() -> Refused:  # no variable of the handler's holds it: that would be a cycle, too
        error = Refused("full", reason="queue_full", retry_after_s=1.0)
        refused.append(weakref.ref(error))
        return error

    async def refuse(request: bytes, context: Any) -> bytes:
        raise refusal()

    harness.behaviour = refuse
    gc.disable()
    try:
        assert await harness.one().code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        await harness.books()
        for _ in range(3):  # turns of the event loop, in which the server lets go of it
            await asyncio.sleep(0)

        assert refused[0]() is None
    finally:
        gc.enable()


class Refused(Overloaded):
    """One that can be watched."""
