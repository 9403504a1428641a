"""The edge processes of a server: they share its ports, and the core speaks to all of them as to one.

An edge that dies costs its own connections: what its calls held is given back, and another takes its place, which has
waited for that with everything loaded: to load it takes two seconds of a CPU, and longer beside the load that is there.
"""

import asyncio
import socket
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from service.addresses import Address, reserve_port
from service.call import Call
from service.config import ServerConfig
from service.edges.edge import Edge
from service.edges.messages import Counted, ServingState, SetLevel
from service.errors import InternalError
from service.processes.child import Spare, StartError
from service.queue.admission import Admission
from service.registry.host import ModelHost
from service.telemetry.metrics import Metrics
from service.translation.account import Account


class EdgePool:
    """All edges of one server."""

    def __init__(
        self,
        config: ServerConfig,
        *,
        num_edges: int,
        command_line: Callable[[int], list[str]],
        whole: object,
        metrics: Metrics,
        account: Account,
    ) -> None:
        """Start nothing yet.

        Args:
            command_line: how to start an edge that talks over this inherited descriptor.
            whole: `WholeServer`, whose methods edges ask for.
            metrics: of the core, which has the page.
            account: of the core, which writes the usage.
        """

        def count(name: str, counted: Counted) -> None:
            metrics.heard(name, counted.metrics)
            account.absorb(counted.usage)

        self.admission = Admission(config.limits, on_leave=self._tell_departed)
        self._spare = Spare("edge", command_line)
        self.edges = [
            Edge(
                config,
                self._spare,
                self.admission,
                whole,
                on_counted=partial(count, name),
                on_lost=partial(metrics.lost, name),
            )
            for name in (f"edge {number}" for number in range(num_edges))
        ]
        self._version = 0  # of what is offered
        self._listen = config.listen
        self._holders: list[socket.socket] = []  # of the ports that the edges share

    @property
    def recent_lag_s(self) -> float:
        """The worst lag of an edge's event loop in the last seconds."""
        return max(edge.lag_s for edge in self.edges)

    @property
    def is_up(self) -> bool:
        """Whether an edge answers calls."""
        return any(edge.is_up for edge in self.edges)

    @property
    def missing(self) -> int:
        """Number of edges that were lost and not replaced yet."""
        return sum(edge.supervisor.is_missing for edge in self.edges)

    def pids(self) -> list[int]:
        """Process ids of the edges and the spare one."""
        processes = [*(edge.supervisor.process for edge in self.edges), self._spare.process]
        return [process.pid for process in processes if process is not None]

    async def listen(self) -> dict[str, int]:
        """Return the ports, by their settings, once all edges listen there.

        Raises:
            ListenError: it cannot be listened on.
            InternalError: an edge does not start; the message says why.
        """
        listen = self._listen
        ports: dict[str, Any] = {"grpc_port": self._reserve(Address(listen.grpc_host, listen.grpc_port), "gRPC")}
        if listen.http:
            ports["http_port"] = self._reserve(Address(listen.http_host, listen.http_port), "HTTP")
        try:
            async with asyncio.TaskGroup() as starts:
                for edge in self.edges:
                    starts.create_task(edge.start(replace(listen, **ports)))
        except BaseException as error:
            await self.stop()
            reason = error.exceptions[0] if isinstance(error, BaseExceptionGroup) else error
            if isinstance(reason, StartError):
                raise InternalError(f"an edge did not start: {reason}") from reason
            raise
        return ports

    async def offer(self, models: Sequence[ModelHost]) -> None:
        """Have calls find these models, and return when they do."""
        self._version += 1
        for edge in self.edges:
            edge.offer(self._version, models)
        await asyncio.gather(*(edge.has_switched() for edge in self.edges))

    async def set_state(self, state: ServingState) -> None:
        """Have all edges say this of the server."""
        for edge in self.edges:
            edge.set_state(state)

    def set_log_level(self, level: str) -> None:
        """Have all edges log events of this level and above."""
        for edge in self.edges:
            edge.send(SetLevel(level))

    async def all_left(self) -> None:
        """Once every new call is refused: return when every call has been answered."""
        await asyncio.gather(*(edge.all_left() for edge in self.edges))

    async def calls(self, most: int) -> tuple[list[Call], int]:
        """Return the oldest calls of each edge, and how many there are; what was counted is then up to date."""
        answers = await asyncio.gather(*(edge.ask(most) for edge in self.edges))
        phases = {call.request_id: call.phase for edge in self.edges for call in edge.calls.values()}
        calls = [call for answer in answers for call in answer.calls]
        for call in calls:
            call.phase = phases.get(call.request_id, call.phase)
        return calls, sum(answer.num_calls for answer in answers)

    async def refresh(self) -> None:
        """Return when everything that the edges have counted is on the page."""
        await self.calls(0)

    async def finish(self) -> None:
        """Have all edges send what is still to be sent, and end them."""
        await asyncio.gather(self._spare.end(), *(edge.finish() for edge in self.edges))

    async def stop(self) -> None:
        """End all edges at once."""
        await asyncio.gather(self._spare.end(), *(edge.supervisor.stop() for edge in self.edges))

    def _reserve(self, address: Address, purpose: str) -> int:
        holders, port = reserve_port(address, purpose)
        self._holders += holders
        return port

    def _tell_departed(self) -> None:
        for edge in self.edges:
            edge.departed()
