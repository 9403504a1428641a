"""The process of a frontend; it calls the scheduler process, is called by it, and ends with it.

SchedulerService    methods of the scheduler process that the frontend calls, beside those of `ServerStatus`
RemoteScheduler     what calls use as their scheduler here; the scheduler process calls its other methods
RemoteModel         a model whose engines are in the scheduler process: only a tokenizer
"""

import asyncio
import os
import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count
from pathlib import Path
from typing import NamedTuple, Protocol

import uvloop

from model.bundle import Bundle
from service.addresses import ListenError
from service.api.http.server_status import ServerStatus
from service.call import Call, Caller, Identity, Usage
from service.child_process import Ready, StartFailed
from service.config import LimitsConfig, ServerConfig
from service.documents.formats import load_readers
from service.engine.wire import JobResult, Settled
from service.errors import Unavailable
from service.models.call_scheduler import CallScheduler, Work
from service.models.catalogue import Catalogue, ServedModel, UseCount
from service.models.codec import TextCodec
from service.models.info import search_params
from service.models.repository import load_tokenizer
from service.processes.rpc import FrameChannel, Peer
from service.records import NO_OPTIONS, ModelInfo
from service.scheduler.admission import Kind, Reservation
from service.server.frontend import Frontend
from service.server.model_hosting import TOKENIZER_THREADS, counted_methods
from service.server.process import ServingState, install_stack_dump, observe_event_loop, spare_what_is_loaded
from service.telemetry.logs import configure_logging, get_logger, log_libraries, set_log_level
from service.telemetry.metrics import Metrics, Snapshot
from service.telemetry.usage import UsageMeter
from service.text.languages import load_ahead
from service.threads import in_daemon_thread


class SchedulerService(Protocol):
    """What a frontend calls in the scheduler process, beside `ServerStatus`; both read the same time.monotonic()."""

    async def run(self, model: int, work: Work, call: Call, kind: Kind) -> list[Settled]:
        """Have the engines of a model work for a call; raises as `CallScheduler.run`.

        Args:
            model: its number.
            kind: of the reservation that the call has in the frontend.
        """
        ...

    async def open_stream(self, number: int, caller: Caller) -> None:
        """Let this caller have one more stream; raises as `Admission.admit_stream`."""
        ...

    def close_stream(self, number: int) -> None:
        """Note that a stream has ended."""
        ...

    def counted(self, metrics: Snapshot, usage: dict[Identity, Usage], lag_s: float) -> None:
        """Take what the frontend has counted, in all and since the last time; this is also its sign of life.

        Args:
            lag_s: worst of its event loop in the last seconds.
        """
        ...


class OfferedModel(NamedTuple):
    """A model that calls can ask for."""

    number: int
    info: ModelInfo
    bundle_dir: Path
    manifest_sha256: str
    is_loaded: bool  # in the scheduler process


class FrontendSpec(NamedTuple):
    """The first record that the process receives."""

    config: ServerConfig  # with the ports that the scheduler process has reserved
    models: tuple[OfferedModel, ...]
    state: ServingState


def main(descriptor: int) -> None:
    """Live as a frontend until the scheduler process, at the other end of this socket, ends it or is gone."""
    load_readers()  # what every frontend needs, before it is told which one it is: a spare one then serves at once
    load_ahead()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_live(descriptor))


async def _live(descriptor: int) -> None:
    _, channel = await asyncio.get_running_loop().create_connection(FrameChannel, sock=socket.socket(fileno=descriptor))
    spec = await channel.read()
    if not isinstance(spec, FrontendSpec):  # the scheduler process went away at once
        return
    config, metrics = spec.config, Metrics(methods=counted_methods())
    configure_logging(config.telemetry, on_drop=metrics.families.log_dropped.inc)
    log_libraries()
    usage_meter, peer = UsageMeter(metrics), Peer(channel.send)
    status = peer.remote(ServerStatus)  # type: ignore[type-abstract]
    scheduler = RemoteScheduler(peer, config.limits, metrics, usage_meter)
    executor = ThreadPoolExecutor(TOKENIZER_THREADS, thread_name_prefix="tokenizer")
    try:
        frontend = Frontend(config, scheduler, metrics, usage_meter, executor, status, is_shared=True)
        peer.serve({Frontend: frontend, RemoteScheduler: scheduler})
        await scheduler.offer(spec.models)
        await frontend.set_state(spec.state)
        await frontend.listen()
    except (ValueError, ListenError) as error:
        channel.send(StartFailed(str(error)))
        await channel.hand_on(lambda _: None)  # until the scheduler process has read it
        return
    spare_what_is_loaded()
    channel.send(Ready())
    install_stack_dump()
    counting = asyncio.create_task(scheduler.count_often())
    await channel.hand_on(peer.take)
    counting.cancel()
    os._exit(0)  # the scheduler process is gone: nobody waits for anything any more


class RemoteScheduler(CallScheduler):
    """The `CallScheduler` of a frontend: refuses by the limits of the whole server, and passes the rest on."""

    def __init__(self, peer: Peer, limits: LimitsConfig, metrics: Metrics, usage_meter: UsageMeter) -> None:
        """Offer no model yet; `peer` is the scheduler process, and it asks for metrics and usage."""
        super().__init__(Catalogue(), limits)
        self._peer = peer
        self._metrics = metrics
        self._usage_meter = usage_meter
        self._numbers = count()  # of streams
        self._models: dict[int, RemoteModel] = {}  # those that calls find, or may still use, by number
        self._switching = asyncio.Lock()

    async def offer(self, models: Sequence[OfferedModel]) -> None:
        """Have later calls find these models, the first of which is the default, and no others.

        They have tokenizers where the scheduler has engines.
        """
        async with self._switching:
            for offered in models:
                if offered.number not in self._models:
                    self._models[offered.number] = RemoteModel(offered, self.admission.limits)
                await self._models[offered.number].follow(is_loaded=offered.is_loaded)
            self.catalogue.replace(self._models[offered.number] for offered in models)

    async def drained(self, number: int) -> None:
        """Return when no call uses this model, which the last offer had no more."""
        async with self._switching:
            model = self._models.pop(number, None)
        if model is not None:
            await model.in_use.wait_idle()

    async def count(self) -> None:
        """Send the scheduler process what this one has counted."""
        lag_s = self._metrics.recent_lag_s
        self._peer.tell(SchedulerService.counted, self._metrics.snapshot(), self._usage_meter.take(), lag_s)

    async def count_often(self) -> None:
        """Send it again and again, which is also the sign of life."""
        async for _ in observe_event_loop(self._metrics):
            await self.count()

    def set_log_level(self, level: str) -> None:
        """Log events of this level and above."""
        set_log_level(level)

    async def open_stream(self, caller: Caller) -> Reservation:
        """Return a reservation for a stream; raises as `Admission.admit_stream`, for the whole server."""
        reservation = self.admission.admit_stream(caller)
        number = next(self._numbers)
        reservation.on_release(partial(self._peer.tell, SchedulerService.close_stream, number))
        try:
            await self._peer.call(SchedulerService.open_stream, number, caller)
        except BaseException:
            reservation.release()
            raise
        return reservation

    async def load(self, model: ServedModel, call: Call, reservation: Reservation) -> None:
        """As `ServedModel.load`: a tokenizer needs no room."""
        await model.load(call, reservation)

    def refuse_early(self, model: ServedModel, call: Call, reservation: Reservation) -> None:
        """Refuse nothing, because only the scheduler process knows how much work waits."""

    async def run(self, model: ServedModel, work: Work, call: Call, reservation: Reservation) -> list[Settled]:
        """Have the scheduler process do the work, where texts of streams wait; raises as `CallScheduler.run`."""
        call.phase = "queue"
        kind: Kind = "part" if work.is_continuation else reservation.kind
        results = await self._peer.call(SchedulerService.run, model.number, work, call, kind)
        for result in results:
            if isinstance(result, JobResult):
                call.job_finished(result)
        return results


class RemoteModel:
    """A model whose engines are in the scheduler process; the `ServedModel` of a frontend in another process."""

    def __init__(self, offered: OfferedModel, limits: LimitsConfig) -> None:
        """Load nothing yet."""
        self.number = offered.number
        self.info = offered.info
        self.pool = None
        self.default_params = search_params(offered.info, NO_OPTIONS)
        self.in_use = UseCount()
        self._offered = offered
        self._limits = limits
        self._codec: TextCodec | None = None
        self._opening = asyncio.Lock()

    @property
    def is_loaded(self) -> bool:
        """Whether its tokenizer is; the scheduler process loads the engines for the work."""
        return self._codec is not None

    @property
    def codec(self) -> TextCodec:
        """The tokenizer with the limits on texts; only of a model that is loaded."""
        assert self._codec is not None
        return self._codec

    async def follow(self, *, is_loaded: bool) -> None:
        """Have a tokenizer where the scheduler has engines; drop it where there are none, unless calls use it."""
        if is_loaded:
            await self._open()
        elif not self.in_use.calls:
            self._codec = None

    async def load(self, call: Call, reservation: Reservation) -> None:
        """Return when its tokenizer is loaded."""
        call.phase = "load"
        try:
            await self._open()
        except (ValueError, OSError) as error:
            get_logger().error("model_not_loaded", model=self.info.name, reason=str(error))
            raise Unavailable(f"the model {self.info.name} cannot be loaded; the server's log says why") from error

    async def _open(self) -> None:
        """Load the tokenizer of the very bundle that the engines run, once for all who wait; or raise ValueError."""
        async with self._opening:
            if self._codec is None:
                offered = self._offered
                open_bundle = partial(Bundle.load, verify=False, manifest_sha256=offered.manifest_sha256)
                tokenizer = await in_daemon_thread(lambda: load_tokenizer(open_bundle(offered.bundle_dir)))
                self._codec = TextCodec(
                    tokenizer,
                    max_characters=self._limits.max_characters,
                    max_source_tokens=offered.info.max_source_tokens,
                )
