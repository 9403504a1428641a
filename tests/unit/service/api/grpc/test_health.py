"""Health: what it says and when it changes; and calls without a key, whose message may never come."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest
from grpc_health.v1 import health_pb2

from service.api.grpc.standard import FirstMessages, Health, Status
from service.errors import InvalidInput


def asking(service: str) -> health_pb2.HealthCheckRequest:
    return health_pb2.HealthCheckRequest(service=service)


async def status(health: Health, service: str = "") -> int:
    return (await anext(health.check(asking(service), None))).status


async def test_all_services_change_together():
    health = Health(("a.Service",))

    await health.set_serving(True)

    assert [await status(health), await status(health, "a.Service")] == [Status.SERVING] * 2


async def test_draining_is_final():
    health = Health(())
    await health.set_serving(True)

    await health.drain()
    await health.set_serving(True)

    assert await status(health) == Status.NOT_SERVING


async def test_watch_tells_each_change_once():
    health = Health(())
    watch = health.watch(asking(""), None)
    seen = [(await anext(watch)).status]

    for is_serving in (True, False):
        change = asyncio.ensure_future(anext(watch))
        await asyncio.sleep(0)
        await health.set_serving(is_serving)
        await health.set_serving(is_serving)
        seen.append((await asyncio.wait_for(change, 60)).status)

    assert seen == [Status.NOT_SERVING, Status.SERVING, Status.NOT_SERVING]


async def test_watch_of_an_unknown_service_waits_without_end():
    health = Health(())
    watch = health.watch(asking("nobody"), None)

    assert (await anext(watch)).status == Status.SERVICE_UNKNOWN
    following = asyncio.ensure_future(anext(watch))
    other = health.watch(asking(""), None)
    await anext(other)
    change = asyncio.ensure_future(anext(other))
    await asyncio.sleep(0)  # both wait now, the unknown one first
    await health.set_serving(True)
    await asyncio.wait_for(change, 60)  # which wakes up after the unknown one
    assert not following.done()
    following.cancel()


async def sending(*requests: object) -> AsyncIterator[object]:
    for request in requests:
        yield request


async def never_sending() -> AsyncIterator[object]:
    await asyncio.Event().wait()
    yield None


@pytest.mark.parametrize("requests", [sending(), never_sending()], ids=["none", "too late"])
async def test_call_without_a_message_is_invalid(requests):
    with pytest.raises(InvalidInput, match="without a message"):
        await FirstMessages(within_s=0.01).first_of(requests)


async def test_longest_waiting_call_gives_way():
    messages = FirstMessages(within_s=60.0, max_waiting=2)
    waiting = [asyncio.create_task(messages.first_of(never_sending())) for _ in range(3)]

    done, _ = await asyncio.wait(waiting, timeout=120.0, return_when=asyncio.FIRST_COMPLETED)

    assert done == {waiting[0]}
    assert isinstance(waiting[0].exception(), InvalidInput)
    for task in waiting:
        task.cancel()


async def test_call_that_finds_the_oldest_just_out_of_time_is_answered():
    """Both happen in one turn of the event loop, when it was busy for a moment."""
    messages = FirstMessages(within_s=0.05, max_waiting=1)
    oldest = asyncio.create_task(messages.first_of(never_sending()))
    newcomer: asyncio.Future[asyncio.Task[object]] = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_later(
        0.04, lambda: newcomer.set_result(asyncio.create_task(messages.first_of(sending("this"))))
    )
    await asyncio.sleep(0)
    time.sleep(0.08)  # noqa: ASYNC251 - the loop is busy, and both timers are due together

    assert await (await newcomer) == "this"
    with pytest.raises(InvalidInput):
        await oldest
