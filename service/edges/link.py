"""The core as an edge process sees it: models whose work is done elsewhere, streams that need its leave.

Knows frames and records; neither gRPC, nor what the core does with a run.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import TypeAlias

from model.bundle import Bundle
from model.tokenizer import SupportsTokens
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
    Room,
    Run,
    StreamAnswer,
    Switched,
    Unused,
)
from service.engine.job import JobResult
from service.errors import DragomanError
from service.queue.admission import Permit
from service.records import NO_OPTIONS, Call, Caller, Priority
from service.registry.bundle_check import load_tokenizer
from service.registry.catalogue import Catalogue, Lease, OnRoom, Work, WorkDone
from service.registry.daemon_threads import in_daemon_thread
from service.registry.model_info import TextCodec, search_params

Reply: TypeAlias = WorkDone | DragomanError | None


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
        self._waiting: dict[int, tuple[asyncio.Future[Reply], OnRoom]] = {}
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

    async def _ask(self, record: object, number: int, cancel: object, on_room: OnRoom = None) -> Reply:
        """Return the reply to a record, or raise the error that it is; cancelled, tell the core by `cancel`."""
        reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
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

    def _settle(self, number: int, outcome: Reply) -> None:
        reply, _ = self._waiting.get(number, (None, None))
        if reply is not None and not reply.done():
            reply.set_result(outcome)

    async def load(self, offer: Offer) -> "list[RemoteModel]":
        """Have calls find these models, once their tokenizers are loaded; return those that they find no more."""
        wanted = {offered.number for offered in offer.models}
        async with self._switching:
            for offered in offer.models:
                if offered.number not in self._models:
                    self._models[offered.number] = await self._load(offered)
            self.catalogue.replace(self._models[offered.number] for offered in offer.models)
            return [self._models.pop(number) for number in self._models.keys() - wanted]

    async def switch(self, offer: Offer) -> None:
        """As `load`; tell the core when it is done, and when the models that calls find no more are unused."""
        unwanted = await self.load(offer)
        self._send(Switched(offer.version))
        for model in unwanted:
            await model.lease.wait_idle()
            self._send(Unused(model.number))

    async def _load(self, offered: OfferedModel) -> "RemoteModel":
        tokenizer = await in_daemon_thread(partial(_load_tokenizer, offered.bundle_dir, offered.manifest_sha256))
        codec = TextCodec(
            tokenizer,
            max_characters=self._limits.max_characters,
            max_source_tokens=offered.info.max_source_tokens,
        )
        return RemoteModel(self, offered, codec)


class RemoteModel:
    """A model whose work the core does; the `ServedModel` of an edge process."""

    def __init__(self, link: CoreLink, offered: OfferedModel, codec: TextCodec) -> None:
        self.info = offered.info
        self.codec = codec
        self.default_params = search_params(offered.info, NO_OPTIONS)
        self.lease = Lease()
        self._link = link
        self.number = offered.number

    def refuse_early(self, call: Call, permit: Permit) -> None:
        """Refuse nothing: only the core knows how much work waits."""

    async def run(self, work: Work, call: Call, permit: Permit, on_room: OnRoom = None) -> WorkDone:
        """Have the core translate; raises as `ServedModel.run`."""
        return await self._link.run(self.number, work, call, permit, on_room)


def _load_tokenizer(bundle_dir: Path, manifest_sha256: str) -> SupportsTokens:
    """Return the tokenizer of the very bundle that the engines run, or raise ValueError."""
    return load_tokenizer(Bundle.load(bundle_dir, verify=False, manifest_sha256=manifest_sha256))
