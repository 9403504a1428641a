"""Calls without a key: strangers who never send the message cannot keep others out."""

import asyncio
import time
from collections.abc import AsyncIterator

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2

from service.errors import InvalidInput
from service.grpc import health
from service.grpc.first_message import MAX_WAITING, FirstMessages
from service.grpc.health import Health, Status
from service.grpc.interceptors import CallInterceptor
from service.grpc.wire import Malformed
from service.telemetry.metrics import Metrics
from tests.fakes.calls import calling, eventually

PLACES = MAX_WAITING + 8  # those that gRPC itself counts
CHECK = f"{health.SERVICE_NAME}/Check"


async def sending(*requests: object) -> AsyncIterator[object]:
    for request in requests:
        yield request


async def never_sending() -> AsyncIterator[object]:
    await asyncio.Event().wait()
    yield None


async def test_message_is_the_first():
    assert await FirstMessages().first_of(sending("this")) == "this"


@pytest.mark.parametrize(
    ("requests", "message"),
    [
        (sending(), "without a message"),
        (never_sending(), "without a message"),
        (sending(Malformed("service is not valid UTF-8", field="service")), "not valid UTF-8"),
    ],
    ids=["none", "too late", "malformed"],
)
async def test_call_without_a_good_message_is_invalid(requests, message):
    with pytest.raises(InvalidInput, match=message):
        await FirstMessages(within_s=0.01).first_of(requests)


async def test_longest_waiting_call_gives_way():
    messages = FirstMessages(within_s=60.0, max_waiting=2)
    waiting = [asyncio.create_task(messages.first_of(never_sending())) for _ in range(3)]

    done, _ = await asyncio.wait(waiting, timeout=10.0, return_when=asyncio.FIRST_COMPLETED)

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


@pytest.fixture
async def address():
    """Of a server with no more places than that."""
    checks = Health(())
    await checks.set_serving(True)
    books = CallInterceptor(
        Metrics(), methods=frozenset({CHECK}), max_request_seconds=60.0, own_limits=health.OWN_LIMITS
    )
    server = grpc.aio.server(interceptors=[books], maximum_concurrent_rpcs=PLACES)
    health.add_to_server(checks, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield f"127.0.0.1:{port}"
    await server.stop(None)


async def test_strangers_who_never_send_the_message_leave_places_to_others(address):
    async with calling(address) as strangers, calling(address) as calls:
        held = [strangers.stream(f"/{CHECK}") for _ in range(PLACES + 32)]
        codes = [asyncio.create_task(call.code()) for call in held]
        await eventually(lambda: sum(code.done() for code in codes) >= len(held) - MAX_WAITING)

        answer = await calls.health.Check(health_pb2.HealthCheckRequest())

        assert answer.status == Status.SERVING
        assert {code.result() for code in codes if code.done()} == {grpc.StatusCode.INVALID_ARGUMENT}
        for call in held:
            call.cancel()
        await asyncio.gather(*codes)
