"""Health: what it says and when it changes."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from grpc_health.v1 import health_pb2

from service.api.grpc.standard import Health, Status
from service.errors import InvalidInput


def asking(service: str) -> health_pb2.HealthCheckRequest:
    return health_pb2.HealthCheckRequest(service=service)


async def status(health: Health, service: str = "") -> int:
    return (await health.check(asking(service), None)).status


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
    watch = health.watch(sending(asking("")), None)
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
    watch = health.watch(sending(asking("nobody")), None)

    assert (await anext(watch)).status == Status.SERVICE_UNKNOWN
    following = asyncio.ensure_future(anext(watch))
    other = health.watch(sending(asking("")), None)
    await anext(other)
    change = asyncio.ensure_future(anext(other))
    await asyncio.sleep(0)  # both wait now, the unknown one first
    await health.set_serving(True)
    await asyncio.wait_for(change, 60)  # which wakes up after the unknown one
    assert not following.done()
    following.cancel()


async def test_watch_without_a_message_is_invalid():
    with pytest.raises(InvalidInput, match="without a message"):
        await anext(Health(()).watch(sending(), None))


async def sending(*requests: health_pb2.HealthCheckRequest) -> AsyncIterator[health_pb2.HealthCheckRequest]:
    for request in requests:
        yield request
