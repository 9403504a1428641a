"""One edge process as the core sees it: its runs, its streams, the models that it uses, and what it has counted."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any

from service.call import Call, Caller
from service.config import ListenConfig, ServerConfig
from service.edges.messages import (
    Answer,
    Ask,
    Calls,
    Cancel,
    CloseStream,
    Counted,
    Departed,
    EdgeSpec,
    Finish,
    Finished,
    Idle,
    Offer,
    OfferedModel,
    OpenStream,
    Question,
    Room,
    Run,
    ServingState,
    SetLevel,
    StreamAnswer,
    Switched,
    Unused,
)
from service.errors import DragomanError, InternalError, Overloaded, Unavailable
from service.processes.child import Program, Spare
from service.processes.supervisor import Supervisor, SupervisorConfig
from service.queue.admission import Admission, Permit
from service.registry.catalogue import WorkDone
from service.registry.host import ModelHost
from service.telemetry.logs import describe_error, get_logger, log_level

STARTING = ServingState(is_serving=False, refusal=Unavailable("the server is starting", reason="starting"))
ASK_WITHIN_S = 1.0  # an edge that is busier than that is shown as it was
FINISH_WITHIN_S = 3.0


class Edge:
    """One edge process, and each that replaces it."""

    def __init__(
        self,
        config: ServerConfig,
        spare: Spare,
        admission: Admission,
        whole: object,
        *,
        on_counted: Callable[[Counted], None],
        on_lost: Callable[[], None],
    ) -> None:
        """Start nothing yet.

        Args:
            spare: of all edges: what takes the place of the next one that is lost.
            admission: of the whole server.
            whole: `WholeServer`, whose methods the process asks for.
            on_counted: told what the edge has counted.
            on_lost: called when the process is gone.
        """
        self.supervisor = Supervisor(
            Program(name="edge", command_line=spare.command_line, spec=self._spec, spare=spare),
            SupervisorConfig(
                start_timeout_s=config.lifecycle.start_timeout_s,
                heartbeat_timeout_s=config.lifecycle.engine_silence_s,
            ),
            on_record=self._take,
            on_lost=self._lose,
            on_change=self._greet,
        )
        self.lag_s = 0.0  # of its event loop, the worst in the last seconds
        self.calls: dict[int, Call] = {}  # that the core works for, by the number of the run
        self._config = config
        self._spare = spare
        self._admission = admission
        self._whole = whole
        self._on_counted = on_counted
        self._on_lost = on_lost
        self._version, self._models = 0, tuple[ModelHost, ...]()  # what is offered
        self._state = STARTING
        self._used: dict[int, ModelHost] = {}  # models that its calls may use, each of which counts it in its offers
        self._switched_to = 0  # version of the offer that its calls find
        self._runs: dict[int, asyncio.Task[None]] = {}
        self._streams: dict[int, Permit] = {}
        self._wants_departures = False  # whether a text of a stream was refused since the last one
        self._questions: dict[int, asyncio.Future[Calls]] = {}
        self._numbers = count()
        self._news = asyncio.Event()
        self._is_idle = False
        self._is_finished = False

    @property
    def is_up(self) -> bool:
        """Whether a process listens."""
        return self.supervisor.process is not None

    async def start(self, listen: ListenConfig) -> None:
        """Return when the process listens there; raises StartError."""
        self._config = replace(self._config, listen=listen)
        await self.supervisor.start()
        self._greet()

    def offer(self, version: int, models: Sequence[ModelHost]) -> None:
        """Have the calls of this edge, and of each that replaces it, find these models."""
        self._version, self._models = version, tuple(models)
        if self.is_up:
            self._send_offer()

    async def has_switched(self) -> None:
        """Return when its calls find what was offered last; at once if there is no process."""
        await self._until(lambda: self._switched_to >= self._version)

    def set_state(self, state: ServingState) -> None:
        """Have this edge, and each that replaces it, say this of the server."""
        self._state, self._is_idle = state, False
        self.send(state)

    async def all_left(self) -> None:
        """Once every new call is refused: return when its calls have been answered."""
        await self._until(lambda: self._is_idle)

    async def ask(self, most: int) -> Calls:
        """Return its oldest calls; what it has counted is then up to date."""
        number = next(self._numbers)
        answer: asyncio.Future[Calls] = asyncio.get_running_loop().create_future()
        self._questions[number] = answer
        self.send(Ask(number, most))
        try:
            async with asyncio.timeout(ASK_WITHIN_S if self.is_up else 0.0):
                return await answer
        except TimeoutError:
            return Calls(number, (), 0)
        finally:
            del self._questions[number]

    async def finish(self) -> None:
        """Have it send what is still to be sent, and end it."""
        self.send(Finish())
        try:
            async with asyncio.timeout(FINISH_WITHIN_S):
                await self._until(lambda: self._is_finished)
        except TimeoutError:
            get_logger().warning("edge_not_finished")
        await self.supervisor.stop()

    def send(self, record: object) -> None:
        """Send a record if there is a process."""
        if self.supervisor.process is not None:
            self.supervisor.process.send(record)

    def departed(self) -> None:
        """Tell the edge, if a text of a stream waits there, that something has left the core."""
        if self._wants_departures:
            self._wants_departures = False
            self.send(Departed())

    def _take(self, record: Any) -> None:
        match record:
            case Run() | Question():
                task = asyncio.create_task(self._run(record))
                self._runs[record.number] = task
                task.add_done_callback(lambda _: self._runs.pop(record.number, None))
            case Cancel(number):
                if number in self._runs:
                    self._runs[number].cancel()
            case Counted():
                self.lag_s = record.lag_s
                self._on_counted(record)
            case OpenStream(number, caller):
                self._open_stream(number, caller)
            case CloseStream(number):
                if number in self._streams:
                    self._streams.pop(number).release()
            case Unused(model):
                if model in self._used:
                    self._used.pop(model).offers.__exit__(None, None, None)
            case _:
                self._take_reply(record)

    def _take_reply(self, record: object) -> None:
        match record:
            case Calls(number):
                if number in self._questions and not self._questions[number].done():
                    self._questions[number].set_result(record)
            case Switched(version):
                self._switched_to = version
                self._wake()
            case Idle():
                self._is_idle = True
                self._wake()
            case Finished():
                self._is_finished = True
                self._wake()

    def _spec(self) -> EdgeSpec:
        """What the process is told when it starts."""
        return EdgeSpec(self._config, self._make_offer(), self._state)

    def _make_offer(self) -> Offer:
        offered = (
            OfferedModel(host.number, host.info, host.bundle.directory, host.bundle.manifest_sha256, host.is_loaded)
            for host in self._models
        )
        return Offer(self._version, tuple(offered))

    def _send_offer(self) -> None:
        for host in self._models:
            if host.number not in self._used:
                host.offers.__enter__()
                self._used[host.number] = host
        self.send(self._make_offer())

    def _greet(self) -> None:
        """Tell a process that has just started what has changed since."""
        if self.is_up:
            self._switched_to = 0
            self._send_offer()
            self.set_state(self._state)
            self.send(SetLevel(log_level()))
            self._spare.make()
        self._wake()

    def _lose(self, reason: str) -> None:
        """Give back everything that a lost process held."""
        for task in self._runs.values():
            task.cancel()
        for permit in self._streams.values():
            permit.release()
        for host in self._used.values():
            host.offers.__exit__(None, None, None)
        self._streams.clear()
        self._used.clear()
        self.lag_s = 0.0
        self._on_lost()
        self._wake()

    async def _run(self, asked: Run | Question) -> None:
        outcome: object
        try:
            if isinstance(asked, Run):
                outcome = await self._translate(asked)
            else:
                outcome = await getattr(self._whole, asked.method)(*asked.arguments)
        except DragomanError as error:
            error.__traceback__ = None  # its frames lead back to it
            outcome = error
        except Exception as error:  # noqa: BLE001 - whatever it is, the edge waits for an answer
            request_id = asked.request_id if isinstance(asked, Run) else asked.method
            get_logger().error("run_failed", request_id=request_id, **describe_error(error))
            outcome = InternalError(f"internal error; the server's log has it under request id {request_id}")
        self.send(Answer(asked.number, outcome))

    async def _translate(self, run: Run) -> WorkDone:
        host = self._used.get(run.model)
        if host is None:
            raise Unavailable("the model was replaced; try again")
        call = Call(
            method=run.method,
            request_id=run.request_id,
            caller=run.caller,
            started=run.started,
            deadline=run.deadline,
            limit_s=run.limit_s,
            priority=run.priority,
            texts=run.num_texts,
        )
        if run.is_part:
            permit = self._admission.admit_part(run.caller)
        else:
            permit = self._admission.admit(
                run.num_texts, now=time.monotonic(), deadline=run.deadline, caller=run.caller
            )
        on_room = partial(self.send, Room(run.number)) if run.wants_room else None
        self.calls[run.number] = call
        try:
            with permit, host.lease:
                permit.take_characters(run.characters)
                if not host.is_loaded:
                    await host.load(call, permit)
                return await host.run(run.work, call, permit, on_room)
        except Overloaded:
            self._wants_departures = self._wants_departures or run.is_part
            raise
        finally:
            del self.calls[run.number]

    def _open_stream(self, number: int, caller: Caller) -> None:
        try:
            self._streams[number] = self._admission.admit_stream(caller)
        except DragomanError as error:
            self.send(StreamAnswer(number, error))
        else:
            self.send(StreamAnswer(number, None))

    async def _until(self, is_so: Callable[[], bool]) -> None:
        """Return once it is so, or there is no process."""
        while self.is_up and not is_so():
            self._news.clear()
            await self._news.wait()

    def _wake(self) -> None:
        self._news.set()
