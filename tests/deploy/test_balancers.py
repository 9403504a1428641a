"""Two replicas behind HAProxy, behind Envoy, and balanced by the client: with the files of deploy/, under load."""

import asyncio

import grpc
import pytest

pytest.importorskip("yaml", reason="no PyYAML: make deploy-check installs it")

from service.client.admin import AdminClient
from tests.deploy.balancers import (
    ENVOY_COMES_WITH,
    ENVOY_OPTIONS,
    calling_through,
    envoy,
    free_port,
    haproxy,
    round_robin,
)
from tests.deploy.tools import DEPLOY, judged
from tests.fakes.calls import TRANSLATE, calling, code_of, eventually

pytestmark = pytest.mark.skipif(not DEPLOY.exists(), reason="not in a checkout")

SLOW = {"ECHO_STEP_S": "0.003"}
IDENTITY = "x-dragoman-client"
TRUSTING = {"DRAGOMAN_SECURITY__TRUSTED_PROXIES": "127.0.0.1", "DRAGOMAN_SECURITY__IDENTITY_HEADER": IDENTITY}


def test_envoy_configuration():
    options = ("--mode", "validate", *ENVOY_OPTIONS, "-c", DEPLOY / "envoy" / "envoy.yaml")
    judged("envoy", *options, comes_with=ENVOY_COMES_WITH)


@pytest.mark.deploy  # seconds of load for each
@pytest.mark.parametrize("balancer", [haproxy, envoy, round_robin], ids=lambda one: one.__name__)
async def test_load_spreads_and_no_caller_sees_that_a_replica_is_lost_or_drains(balancer, start_server, tmp_path):
    """One is killed and comes back; then the other is told to stop."""
    port = {"DRAGOMAN_LISTEN__GRPC_PORT": str(free_port()), "DRAGOMAN_LISTEN__HTTP_PORT": str(free_port())}
    first, second = start_server(**SLOW, **port), start_server("--set", "lifecycle.drain_delay_s=2", **SLOW)
    with balancer([first, second], tmp_path) as address:
        async with calling_through(address) as callers:
            await callers.more(600)
            counts = [replica.metric("dragoman_requests_total", code="OK") for replica in (first, second)]

            first.process.kill()
            first.process.wait()
            await callers.more(300)

            again = await asyncio.to_thread(start_server, **SLOW, **port)
            await eventually(lambda: again.metric("dragoman_requests_total", code="OK") > 20)
            second.terminate()
            status = await asyncio.to_thread(second.wait)
            await callers.more(300)

    assert callers.errors == []
    assert status == 0
    assert abs(counts[0] - counts[1]) <= 0.1 * sum(counts)


@pytest.mark.deploy
@pytest.mark.parametrize("balancer", [haproxy, envoy], ids=lambda one: one.__name__)
async def test_balancer_names_the_caller_whatever_the_caller_says(balancer, start_server, tmp_path):
    replica = start_server("--admin-port", "0", ECHO_STEP_S="0.05", **TRUSTING)
    admin = AdminClient(replica.admin_address)
    with balancer([replica, replica], tmp_path) as address:
        async with calling(address) as calls:
            call = calls.translate("x" * 200, metadata=((IDENTITY, "somebody"),))
            await eventually(lambda: len(admin.status(max_requests=1).requests) == 1)
            (request,) = (await asyncio.to_thread(admin.status, max_requests=1)).requests
            call.cancel()
    admin.close()

    assert (request.client, request.client_source) == ("127.0.0.1", "proxy")


@pytest.mark.deploy
@pytest.mark.parametrize("balancer", [haproxy, envoy], ids=lambda one: one.__name__)
async def test_balancer_repeats_no_call_that_a_replica_has_begun(balancer, start_server, tmp_path):
    """A text that ends a replica would visit the next one, too."""
    replicas = [start_server(ECHO_STEP_S="0.05") for _ in range(2)]
    with balancer(replicas, tmp_path) as address:
        async with calling(address) as calls:
            call = calls.translate("x" * 200)
            await eventually(lambda: sum(one.metric("dragoman_running_jobs") for one in replicas) == 1)
            (busy,) = [one for one in replicas if one.metric("dragoman_running_jobs") == 1]
            (other,) = [one for one in replicas if one is not busy]
            busy.process.kill()

            assert await code_of(call) is grpc.StatusCode.UNAVAILABLE
    assert other.metric("dragoman_requests_received_total", method=TRANSLATE[1:]) == 0
