"""Strangers who never send the message of a health call cannot keep others out."""

import asyncio

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2

from service.grpc import health
from service.grpc.health import MAX_WAITING, Health, Status
from service.grpc.interceptors import CallInterceptor
from service.telemetry.metrics import Metrics
from tests.fakes.calls import calling, eventually

PLACES = MAX_WAITING + 8  # those that gRPC itself counts
CHECK = f"{health.SERVICE_NAME}/Check"


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
