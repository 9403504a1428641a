"""The scheduler process as a frontend in another process sees it: models that work there, leave for streams."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import NamedTuple, Protocol

from model.bundle import Bundle
from service.call import Call, Caller, Identity
from service.config import LimitsConfig
from service.engine.wire import JobResult
from service.errors import Unavailable
from service.models.catalogue import Catalogue, SchedulerClient, Settled, UseCount, Work
from service.models.check import load_tokenizer
from service.models.info import TextCodec
from service.models.options import search_params
from service.processes.rpc import Peer
from service.records import NO_OPTIONS, ModelInfo
from service.scheduler.admission import Reservation
from service.telemetry.logs import get_logger
from service.telemetry.metrics import Snapshot
from service.threads import in_daemon_thread
from service.translate.usage import Usage


class SchedulerService(Protocol):
    """What a frontend asks of the scheduler process, beside `ServerStatus`; both read the clock time.monotonic()."""

    async def run(
        self, model: int, work: Work, call: Call, characters: int, is_part: bool, room: int | None
    ) -> list[Settled]:
        """Have the engines of a model work for a call; raises as `ServedModel.run`.

        Args:
            model: number of its host.
            characters: of all texts of the call.
            is_part: whether the call is a text of a stream, or goes on.
            room: comes back with `RemoteScheduler.has_room` once there is room for the work; None: nobody asks.
        """
        ...

    async def open_stream(self, number: int, caller: Caller) -> None:
        """Let this caller have one more stream; raises as `Admission.admit_stream`."""
        ...

    def close_stream(self, number: int) -> None:
        """A stream has ended."""
        ...

    def unused(self, model: int) -> None:
        """No call uses this model any more, which the last offer has not."""
        ...

    def counted(self, metrics: Snapshot, usage: dict[Identity, Usage], lag_s: float) -> None:
        """Take what the frontend has counted, in all and since the last time; this is also its sign of life.

        Args:
            lag_s: worst of its event loop in the last seconds.
        """
        ...


class OfferedModel(NamedTuple):
    """A model that calls can ask for."""

    number: int  # of its host
    info: ModelInfo
    bundle_dir: Path
    manifest_sha256: str
    is_loaded: bool  # in the scheduler process


class RemoteScheduler(SchedulerClient):
    """Lets calls in by the limits of the whole server: what it refuses, the scheduler process would refuse as well."""

    def __init__(self, peer: Peer, limits: LimitsConfig) -> None:
        """Offer no model yet; `peer` is the scheduler process."""
        super().__init__(Catalogue(), limits)
        self._peer = peer
        self._limits = limits
        self._numbers = count()  # of streams and of rooms
        self._rooms: dict[int, Callable[[], None]] = {}
        self._models: dict[int, RemoteModel] = {}  # those that calls find, by number
        self._switching = asyncio.Lock()

    async def offer(self, models: Sequence[OfferedModel]) -> None:
        """Have later calls find these models, the first of which is the default, and no others.

        They have tokenizers where the scheduler has engines.
        """
        async with self._switching:
            for offered in models:
                if offered.number not in self._models:
                    self._models[offered.number] = RemoteModel(self._peer, self, offered, self._limits)
                await self._models[offered.number].follow(is_loaded=offered.is_loaded)
            found = {offered.number: self._models[offered.number] for offered in models}
            self.catalogue.replace(found.values())
            gone = [model for number, model in self._models.items() if number not in found]
            self._models = found
        for model in gone:
            model.retire()

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

    def expect_room(self, on_room: Callable[[], None]) -> int:
        """Return a number with which the scheduler process says that there is room, until `forget_room`."""
        room = next(self._numbers)
        self._rooms[room] = on_room
        return room

    def forget_room(self, room: int) -> None:
        """Whoever expects this room has an answer."""
        del self._rooms[room]

    def has_room(self, room: int) -> None:
        """Tell whoever expects this room that its work goes to an engine next."""
        if room in self._rooms:
            self._rooms[room]()

    def departed(self) -> None:
        """Something has left admission; a text whose refusal came just before has to be in its line first."""
        asyncio.get_running_loop().call_soon(self.lines.departed)


class RemoteModel:
    """A model that works in the scheduler process; the `ServedModel` of a frontend in another process."""

    def __init__(self, peer: Peer, scheduler: RemoteScheduler, offered: OfferedModel, limits: LimitsConfig) -> None:
        """Load nothing yet."""
        self.info = offered.info
        self.default_params = search_params(offered.info, NO_OPTIONS)
        self.in_use = UseCount(self._tell_if_unused)
        self._peer = peer
        self._scheduler = scheduler
        self._offered = offered
        self._limits = limits
        self._codec: TextCodec | None = None
        self._opening = asyncio.Lock()
        self._is_retired = False

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

    def refuse_early(self, call: Call, reservation: Reservation) -> None:
        """Refuse nothing: only the scheduler process knows how much work waits."""

    async def run(self, work: Work, call: Call, reservation: Reservation) -> list[Settled]:
        """Have the scheduler process do the work; raises as `ServedModel.run`."""
        call.phase = "queue"
        characters = 0 if work.is_continuation else reservation.characters
        is_part = reservation.kind == "part" or work.is_continuation
        room = None if reservation.on_room is None else self._scheduler.expect_room(reservation.on_room)
        try:
            run = SchedulerService.run
            results = await self._peer.call(run, self._offered.number, work, call, characters, is_part, room)
        finally:
            if room is not None:
                self._scheduler.forget_room(room)
        for result in results:
            if isinstance(result, JobResult):
                call.job_finished(result)
        return results

    def retire(self) -> None:
        """No later call finds the model: tell the scheduler process once no call uses it any more."""
        self._is_retired = True
        if not self.in_use.calls:
            self._tell_if_unused()

    def _tell_if_unused(self) -> None:
        if self._is_retired:
            self._peer.tell(SchedulerService.unused, self._offered.number)
