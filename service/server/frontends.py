"""The frontends that are processes of their own, as the scheduler process sees them.

They share the ports.  When one dies, its connections are lost, and what its calls held is given back.  A spare process
takes its place, which has everything loaded: that takes two seconds of a CPU, and longer under load.  Settings, metrics
and the log call these processes edges.
"""

import asyncio
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

from service.addresses import Address, reserve_port
from service.api.http.server_status import ServerStatus
from service.call import Call, Caller, Identity, Usage
from service.config import ServerConfig
from service.engine.wire import Settled
from service.errors import InternalError, Unavailable
from service.models.call_scheduler import CallScheduler, Work
from service.models.version import ModelVersion
from service.processes.rpc import MethodFailed, Peer, PeerLost
from service.processes.supervisor import Program, Spare, StartError, Supervisor, SupervisorConfig
from service.scheduler.admission import Kind, Reservation
from service.server.frontend import STARTING, Frontend
from service.server.frontend_worker import FrontendSpec, OfferedModel, RemoteScheduler, SchedulerService
from service.server.process import ServingState, num_frontends
from service.telemetry.logs import current_call, get_logger, log_level
from service.telemetry.metrics import Metrics, Snapshot
from service.telemetry.usage import UsageMeter

_KILLED_SECOND = 450  # points: a frontend costs its connections, an engine a moment, the scheduler process everything
_SOON_S = 1.0  # a frontend that is busier than that is shown as it was
_FINISH_WITHIN_S = 3.0

_Result = TypeVar("_Result")


def _command_line(descriptor: int) -> list[str]:
    """Return how to start the process of a frontend that talks over this inherited socket; it imports for a second."""
    first = f"from service.child_process import become_child; become_child({_KILLED_SECOND})"
    then = f"from service.server.frontend_worker import main; main({descriptor})"
    return [sys.executable, "-P", "-c", f"{first}; {then}"]


class Frontends:
    """All frontend processes of a server, with the methods of the one `Frontend` in the scheduler process."""

    def __init__(
        self,
        config: ServerConfig,
        scheduler: CallScheduler,
        metrics: Metrics,
        usage_meter: UsageMeter,
        status: ServerStatus,
    ) -> None:
        """Start nothing yet.

        Args:
            scheduler: lets calls of all frontends in.
            metrics: of the scheduler process, which has the page.
            usage_meter: of the scheduler process, which writes the usage.
            status: what the processes ask about the server as a whole.
        """
        self.config = config
        self.metrics = metrics
        self.usage_meter = usage_meter
        self.status = status
        self.scheduler = scheduler
        self.spare = Spare("edge", _command_line)  # takes the place of the next process that is lost
        self.models: dict[int, ModelVersion] = {}  # that calls may use, by number
        self.processes = [FrontendProcess(self, number) for number in range(num_frontends(config))]
        self._holders: list[socket.socket] = []  # of the ports that the processes share

    def pids(self) -> list[int]:
        """Process ids of the frontends, and of the spare one."""
        processes = [*(process.supervisor.process for process in self.processes), self.spare.process]
        return [process.pid for process in processes if process is not None]

    async def listen(self) -> dict[str, int]:
        """Return the ports, by their settings, once all frontends listen there.

        Raises:
            ListenError: it cannot be listened on.
            InternalError: the process of a frontend does not start; the message says why.
        """
        listen = self.config.listen
        ports = {"grpc_port": self._reserve(Address(listen.grpc_host, listen.grpc_port), "listen.grpc_port")}
        listen = replace(listen, grpc_port=ports["grpc_port"])
        if listen.http:
            ports["http_port"] = self._reserve(Address(listen.http_host, listen.http_port), "listen.http_port")
            listen = replace(listen, http_port=ports["http_port"])
        self.config = replace(self.config, listen=listen)
        try:
            async with asyncio.TaskGroup() as starts:
                for process in self.processes:
                    starts.create_task(process.start())
        except ExceptionGroup as errors:
            reason = errors.exceptions[0]
            if not isinstance(reason, StartError):
                raise
            raise InternalError(f"a frontend did not start: {reason}") from reason
        return ports

    async def offer(self, models: Sequence[ModelVersion]) -> None:
        """Have calls find these models, and no others, and return when they do."""
        self.models |= {model.number: model for model in models}
        await asyncio.gather(*(process.offer(models) for process in self.processes))

    async def drained(self, model: ModelVersion) -> None:
        """Return when no call uses a model that is offered no more."""
        await asyncio.gather(*(process.drained(model.number) for process in self.processes))
        self.models.pop(model.number, None)

    async def set_state(self, state: ServingState) -> None:
        """Have all frontends say this of the server."""
        for frontend in self.processes:
            await frontend.set_state(state)

    async def calls(self, most: int) -> tuple[list[Call], int]:
        """Return the oldest calls of each frontend, and how many there are."""
        answers = await asyncio.gather(*(frontend.calls(most) for frontend in self.processes))
        return [call for calls, _ in answers for call in calls], sum(number for _, number in answers)

    async def all_left(self) -> None:
        """Once every new call is refused: return when every call has been answered."""
        await asyncio.gather(*(frontend.all_left() for frontend in self.processes))

    async def finish(self) -> None:
        """Have all frontends send what is still to be sent, and end the other processes."""
        await asyncio.gather(self.spare.end(), *(frontend.finish() for frontend in self.processes))

    async def stop(self) -> None:
        """End everything at once, after a start that has failed."""
        await asyncio.gather(self.spare.end(), *(process.supervisor.stop() for process in self.processes))

    def _reserve(self, address: Address, purpose: str) -> int:
        holders, port = reserve_port(address, purpose)
        self._holders += holders
        return port


class FrontendProcess(SchedulerService):
    """A frontend process, and each one that replaces it; answers its calls (`SchedulerService`)."""

    def __init__(self, frontends: Frontends, number: int) -> None:
        """Start nothing yet; this is one of several frontends."""
        self._frontends = frontends
        self._name = f"edge {number}"
        lifecycle = frontends.config.lifecycle
        self.supervisor = Supervisor(
            Program(name="edge", command_line=_command_line, spec=self._spec, spare=frontends.spare),
            SupervisorConfig(start_timeout_s=lifecycle.start_timeout_s, heartbeat_timeout_s=lifecycle.engine_silence_s),
            on_record=self._take,
            on_lost=self._lose,
            on_change=self._begin,
        )
        self.lag_s = 0.0  # of its event loop, the worst in the last seconds
        self._peer = Peer()  # there is no process yet
        self._models: tuple[ModelVersion, ...] = ()  # that its calls are to find
        self._state = STARTING
        self._calls: set[Call] = set()  # that engines work for
        self._streams: dict[int, Reservation] = {}

    @property
    def is_up(self) -> bool:
        """Whether a process listens."""
        return self.supervisor.process is not None

    async def start(self) -> None:
        """Return when the process listens; raises StartError."""
        await self.supervisor.start()
        self._begin()

    async def offer(self, models: Sequence[ModelVersion]) -> None:
        """Return when its calls find these models, and those of each process that replaces it will."""
        self._models = tuple(models)
        await self._ask(asyncio.shield(self._send_offer()))

    async def drained(self, model: int) -> None:
        """As `Frontends.drained`; the calls of a process that is lost are over."""
        await self._ask(self._peer.call(RemoteScheduler.drained, model))

    async def set_state(self, state: ServingState) -> None:
        """Have this process, and each that replaces it, say this of the server soon."""
        self._state = state
        self._order(self._peer.call(Frontend.set_state, state))

    def set_log_level(self, level: str) -> None:
        """Have it log events of this level and above; one that replaces it has the level of this process."""
        self._peer.tell(RemoteScheduler.set_log_level, level)

    async def calls(self, most: int) -> tuple[list[Call], int]:
        """As `Frontend.calls`; none where it does not answer soon."""
        calls, num_calls = await self._ask_soon(self._peer.call(Frontend.calls, most)) or ([], 0)
        phases = {call.request_id: call.phase for call in self._calls}
        for call in calls:
            call.phase = phases.get(call.request_id, call.phase)
        return calls, num_calls

    async def count(self) -> None:
        """Return when what it has counted is here; it stays as it was where it does not answer soon."""
        await self._ask_soon(self._peer.call(RemoteScheduler.count))

    async def all_left(self) -> None:
        """As `Frontend.all_left`; the calls of a process that is lost are over."""
        await self._ask(self._peer.call(Frontend.all_left))

    async def finish(self) -> None:
        """Have it send what is still to be sent, and end it."""
        try:
            async with asyncio.timeout(_FINISH_WITHIN_S):
                await self._ask(self._peer.call(Frontend.finish))
                await self._ask(self._peer.call(RemoteScheduler.count))
        except TimeoutError:
            get_logger().warning("edge_not_finished")
        await self.supervisor.stop()

    async def _ask(self, reply: "asyncio.Future[_Result]") -> _Result | None:
        """Return the reply, or None where there is none, as the process is lost."""
        with suppress(PeerLost, MethodFailed):
            return await reply
        return None

    async def _ask_soon(self, reply: "asyncio.Future[_Result]") -> _Result | None:
        """Return the reply, or None where there is none soon."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_SOON_S):
                return await self._ask(reply)
        return None

    # What a process is told when it starts, and what it held when it is lost.

    def _spec(self) -> FrontendSpec:
        return FrontendSpec(self._frontends.config, self._offered(), self._state)

    def _offered(self) -> tuple[OfferedModel, ...]:
        return tuple(
            OfferedModel(
                model.number, model.info, model.bundle.directory, model.bundle.manifest_sha256, model.is_loaded
            )
            for model in self._models
        )

    def _begin(self) -> None:
        """Tell a process that has just started what has changed since its spec was made."""
        process = self.supervisor.process
        if process is None:  # another start has to wait
            return
        self._peer = Peer(process.send)
        self._peer.serve({SchedulerService: self, ServerStatus: self._frontends.status})
        self._send_offer()
        self._order(self._peer.call(Frontend.set_state, self._state))
        self.set_log_level(log_level())
        self._frontends.spare.make()

    def _send_offer(self) -> "asyncio.Future[None]":
        return self._order(self._peer.call(RemoteScheduler.offer, self._offered()))

    def _order(self, done: "asyncio.Future[None]") -> "asyncio.Future[None]":
        """Replace a process that fails to do what it was told to: it would go on as before."""
        done.add_done_callback(self._check)
        return done

    def _check(self, done: "asyncio.Future[None]") -> None:
        if isinstance(done.exception(), MethodFailed) and self.supervisor.process is not None:
            self.supervisor.process.mark_unhealthy("failed to do what it was told to")

    def _take(self, frame: object) -> None:
        self._peer.take(frame)

    def _lose(self, reason: str) -> None:
        """Give back everything that a lost process held."""
        self._peer.close()
        for reservation in self._streams.values():
            reservation.release()
        self._streams.clear()
        self.lag_s = 0.0
        self._frontends.metrics.lost(self._name)

    # What the process calls.

    async def run(self, model: int, work: Work, call: Call, kind: Kind) -> list[Settled]:
        loaded = self._frontends.models.get(model)
        if loaded is None:
            raise Unavailable("the model was replaced; try again")
        current_call.set(call)
        self._calls.add(call)
        try:
            with loaded.in_use:
                return await self._frontends.scheduler.run_for_frontend(loaded, work, call, kind)
        finally:
            self._calls.discard(call)

    async def open_stream(self, number: int, caller: Caller) -> None:
        self._streams[number] = self._frontends.scheduler.admission.admit_stream(caller)

    def close_stream(self, number: int) -> None:
        if number in self._streams:
            self._streams.pop(number).release()

    def counted(self, metrics: Snapshot, usage: dict[Identity, Usage], lag_s: float) -> None:
        self.lag_s = lag_s
        self._frontends.metrics.heard(self._name, metrics)
        self._frontends.usage_meter.absorb(usage)
