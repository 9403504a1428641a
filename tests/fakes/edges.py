"""Connections to a server of several edges, by the process that each one has met."""

import http.client
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, closing, contextmanager

from tests.fakes.calls import Calls, calling
from tests.fakes.server_process import ServerProcess

TWO_EDGES = {"DRAGOMAN_LISTEN__EDGES": "2"}


@asynccontextmanager
async def calling_each_edge(server: ServerProcess, num_connections: int = 1) -> AsyncIterator[dict[int, list[Calls]]]:
    """Calls over so many connections to each edge, by its process id."""
    async with AsyncExitStack() as stack:
        found: dict[int, list[Calls]] = {pid: [] for pid in server.edge_pids()}
        known = server.grpc_connections()
        while min(len(connections) for connections in found.values()) < num_connections:
            calls = await stack.enter_async_context(calling(server.address))  # the kernel chooses the edge
            await calls.channel.channel_ready()
            pid = next(pid for pid in found if server.callers_of(pid) - known)
            known |= server.callers_of(pid)
            found[pid].append(calls)
        yield {pid: connections[:num_connections] for pid, connections in found.items()}


@contextmanager
def http_to_each_edge(server: ServerProcess) -> Iterator[list[http.client.HTTPConnection]]:
    """An HTTP connection to each edge."""
    with ExitStack() as stack:
        edges = server.edge_pids()
        found: dict[int, http.client.HTTPConnection] = {}
        while len(found) < len(edges):
            connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=120.0)
            stack.enter_context(closing(connection))
            _ask_for_health(connection)  # which waits until the edge has accepted it
            port = connection.sock.getsockname()[1]
            found.setdefault(next(pid for pid in edges if port in server.http_callers_of(pid)), connection)
            for kept in found.values():  # a connection without requests is closed
                _ask_for_health(kept)
        yield list(found.values())


def _ask_for_health(connection: http.client.HTTPConnection) -> None:
    connection.request("GET", "/healthz")
    connection.getresponse().read()
