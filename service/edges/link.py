"""The core as an edge process sees it: models whose work is done elsewhere, streams that need its leave.

Knows frames and records; neither gRPC, nor what the core does with a run.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any

from model.bundle import Bundle
from service.call import Call, Caller
from service.config import LimitsConfig
from service.edges.core import Core
from service.edges.messages import (
    Answer,
    Cancel,
    CloseStream,
    Departed,
    Offer,
    OfferedModel,
    OpenStream,
    Question,
    Room,
    Run,
    StreamAnswer,
    Switched,
    Unused,
)
from service.engine.job import JobResult
from service.errors import DragomanError, Unavailable
from service.queue.admission import Permit
from service.records import NO_OPTIONS, Priority
from service.registry.bundle_check import load_tokenizer
from service.registry.catalogue import Catalogue, Lease, OnRoom, Work, WorkDone
from service.registry.model_info import TextCodec, search_params
from service.telemetry.logs import get_logger
from service.threads import in_daemon_thread


class CoreLink(Core):
    """One edge's line to the core: sends its runs and streams, and gives each reply to whoever waits for it."""

    def __init__(self, send: Callable[[object], None], limits: LimitsConfig) -> None:
        """Nothing is offered yet; `send` sends a record to the core.

        This edge has the limits of the whole server: what it refuses by itself, the core would refuse as well.
        """
        super().__init__(Catalogue(), limits)
        self._send = send
        self._limits = limits
        self._numbers = count()
        self._waiting: dict[int, tuple[asyncio.Future[object], OnRoom]] = {}
        self._models: dict[int, RemoteModel] = {}  # those that calls find, by number
        self._switching = asyncio.Lock()

    def take(self, record: object) -> None:
        """Take what the core says."""
        match record:
            case Answer(number, outcome):
                self._settle(number, outcome)
            case StreamAnswer(number, refusal):
                self._settle(number, refusal)
            case Room(number):
                _, on_room = self._waiting.get(number, (None, None))
                if on_room is not None:
                    on_room()
            case Departed():  # a text whose refusal came just before has to be in its line first
                asyncio.get_running_loop().call_soon(self.lines.departed)

    async def run(self, model: int, work: Work, call: Call, permit: Permit, on_room: OnRoom) -> WorkDone:
        """Have the core translate; raises as `ServedModel.run`."""
        number = next(self._numbers)
        run = Run(
            number=number,
            model=model,
            work=work,
            caller=call.caller,
            priority=call.priority or Priority.INTERACTIVE,
            deadline=call.deadline,
            limit_s=call.limit_s,
            started=call.started,
            method=call.method,
            request_id=call.request_id,
            characters=0 if work.is_continuation else permit.characters,
            num_texts=call.texts,
            is_part=permit.kind == "part" or work.is_continuation,
            wants_room=on_room is not None,
        )
        call.phase = "queue"
        done = await self._ask(run, number, Cancel(number), on_room)
        assert isinstance(done, WorkDone)
        for result in done.results:
            if isinstance(result, JobResult):
                call.job_finished(result)
        return done

    async def open_stream(self, caller: Caller) -> Permit:
        """Return a permit for a stream; raises as `Admission.admit_stream`, for the whole server."""
        permit = self.admission.admit_stream(caller)
        number = next(self._numbers)
        try:
            await self._ask(OpenStream(number, caller), number, CloseStream(number))
        except BaseException:
            permit.release()
            raise
        permit.on_release(partial(self._send, CloseStream(number)))
        return permit

    async def ask(self, method: str, *arguments: object) -> Any:
        """Return what a method of the core's `WholeServer` returns; raises InternalError if it fails."""
        number = next(self._numbers)
        return await self._ask(Question(number, method, arguments), number, Cancel(number))

    async def _ask(self, record: object, number: int, cancel: object, on_room: OnRoom = None) -> object:
        """Return the reply to a record, or raise the error that it is; cancelled, tell the core by `cancel`."""
        reply: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._waiting[number] = reply, on_room
        self._send(record)
        try:
            outcome = await reply
        except asyncio.CancelledError:
            self._send(cancel)
            raise
        finally:
            del self._waiting[number]
        if isinstance(outcome, DragomanError):
            raise outcome
        return outcome

    def _settle(self, number: int, outcome: object) -> None:
        reply, _ = self._waiting.get(number, (None, None))
        if reply is not None and not reply.done():
            reply.set_result(outcome)

    async def load(self, offer: Offer) -> "list[RemoteModel]":
        """Have calls find these models, with tokenizers where the core has engines; return those they find no more."""
        wanted = {offered.number for offered in offer.models}
        async with self._switching:
            for offered in offer.models:
                if offered.number not in self._models:
                    self._models[offered.number] = RemoteModel(self, offered, self._limits)
                await self._models[offered.number].follow(is_loaded=offered.is_loaded)
            self.catalogue.replace(self._models[offered.number] for offered in offer.models)
            return [self._models.pop(number) for number in self._models.keys() - wanted]

    async def switch(self, offer: Offer) -> None:
        """As `load`; tell the core when it is done, and when the models that calls find no more are unused."""
        unwanted = await self.load(offer)
        self._send(Switched(offer.version))
        for model in unwanted:
            await model.lease.wait_idle()
            self._send(Unused(model.number))


class RemoteModel:
    """A model whose work the core does; the `ServedModel` of an edge process."""

    def __init__(self, link: CoreLink, offered: OfferedModel, limits: LimitsConfig) -> None:
        """Load nothing yet."""
        self.info = offered.info
        self.default_params = search_params(offered.info, NO_OPTIONS)
        self.lease = Lease()
        self.number = offered.number
        self._link = link
        self._offered = offered
        self._limits = limits
        self._codec: TextCodec | None = None
        self._opening = asyncio.Lock()

    @property
    def is_loaded(self) -> bool:
        """Whether its tokenizer is; the core loads the engines for the run."""
        return self._codec is not None

    @property
    def codec(self) -> TextCodec:
        """The tokenizer with the limits on texts; only of a model that is loaded."""
        assert self._codec is not None
        return self._codec

    async def follow(self, *, is_loaded: bool) -> None:
        """Have a tokenizer where the core has engines; drop it where it has none, unless calls use it."""
        if is_loaded:
            await self._open()
        elif not self.lease.calls:
            self._codec = None

    async def load(self, call: Call, permit: Permit) -> None:
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

    def refuse_early(self, call: Call, permit: Permit) -> None:
        """Refuse nothing: only the core knows how much work waits."""

    async def run(self, work: Work, call: Call, permit: Permit, on_room: OnRoom = None) -> WorkDone:
        """Have the core translate; raises as `ServedModel.run`."""
        return await self._link.run(self.number, work, call, permit, on_room)
