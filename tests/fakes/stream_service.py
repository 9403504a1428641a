"""A model that the test replaces and loses, and TranslateStream in front of it on a gRPC server in this process."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import replace
from typing import Any, cast

import grpc
import grpc.aio
import pytest

from protos import translation_pb2 as pb
from service.api.grpc.dragoman import SERVICE, TRANSLATE_STREAM, TranslationServicer
from service.api.grpc.handlers import CallHandlers, handlers_of
from service.api.lifecycle import CallLifecycle
from service.call import Call
from service.config import LimitsConfig
from service.engine.wire import FinishReason, Hypothesis, JobResult, SearchParams, Settled
from service.errors import DragomanError, NotFound, Overloaded
from service.models.call_scheduler import CallScheduler, Work
from service.models.catalogue import Catalogue, ServedModel, UseCount
from service.models.codec import TextCodec
from service.records import ModelInfo
from service.scheduler.admission import Reservation
from service.telemetry.metrics import Metrics
from service.telemetry.usage import UsageMeter
from service.translate.router import Router
from service.translate.translator import Translator
from tests.fakes.calls import Calls
from tests.fakes.manual_pool import CharacterTokenizer
from tests.fakes.model_info import model_info

INFO = model_info("loud")
LIMITS = LimitsConfig(max_streams=2, max_texts=70, max_characters=200_000, max_stream_seconds=60.0)
SHORT_LIMITS = replace(LIMITS, max_stream_seconds=0.5)
OUT_OF_MEMORY = "out_of_memory"


class WholeTexts(CharacterTokenizer):
    """Each text is one token, so that a long one costs nothing."""

    def __init__(self) -> None:
        self._texts: list[str] = []

    def encode(self, text: str) -> list[int]:
        self._texts.append(text)
        return [len(self._texts) + 99, 3] if text.strip() else []

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(self._texts[token - 100] for token in ids)


class OneModel:
    """A catalogue whose only model can be replaced and taken away.

    It says everything in upper case; some texts wait, and some meet the errors that the test has scripted.
    """

    default_params = SearchParams()
    is_loaded = True

    def __init__(self) -> None:
        self.info: ModelInfo | None = INFO
        self.in_use = UseCount()
        self._tokenizer = WholeTexts()
        self.codec = TextCodec(self._tokenizer, max_characters=LIMITS.max_characters, max_source_tokens=200_000)
        self.errors: dict[str, list[DragomanError]] = {}  # by text, in the order of its tries
        self.gates: dict[str, asyncio.Event] = {}
        self.begun: asyncio.Queue[str] = asyncio.Queue()

    @property
    def models(self) -> tuple[ServedModel, ...]:
        return (self.find(),) if self.info else ()

    def find(self, **_: object) -> ServedModel:
        if self.info is None:
            raise NotFound("there is no model; loaded: ")
        return cast("ServedModel", copy(self))  # what is replaced later leaves this version as it is

    async def run(self, work: Work, call: Call, reservation: Reservation) -> list[Settled]:
        text = self._tokenizer.decode(work.jobs[0].source_ids[:-1])
        call.phase = "decode"
        is_refused = any(
            isinstance(error, Overloaded) and error.reason != OUT_OF_MEMORY for error in self.errors.get(text, ())
        )
        if not is_refused:
            reservation.got_room()
        self.begun.put_nowait(text)
        if errors := self.errors.get(text):
            raise errors.pop(0)
        if gate := self.gates.get(text):
            await gate.wait()
        ids = tuple(self._tokenizer.encode(text.upper())[:-1])
        hypothesis = Hypothesis(ids, 0.0, FinishReason.END_OF_SENTENCE)
        result = JobResult(0, (hypothesis,), 0.0, 0.0, 0.0, num_steps=1)
        call.job_finished(result)
        return [result]


class ScriptedScheduler(CallScheduler):
    """One whose models have no engines, and run for themselves."""

    def refuse_early(self, model: ServedModel, call: Call, reservation: Reservation) -> None:
        pass

    async def run_admitted(self, model: ServedModel, work: Work, call: Call, reservation: Reservation) -> list[Settled]:
        return await cast("OneModel", model).run(work, call, reservation)


def router_to(model: OneModel, metrics: Metrics, limits: LimitsConfig = LIMITS) -> tuple[CallScheduler, Router]:
    """Return the client that counts what is let in, and the way to the model."""
    scheduler, executor = ScriptedScheduler(cast("Catalogue", model), limits), ThreadPoolExecutor(1)
    translator = Translator(scheduler, UsageMeter(metrics), limits, executor)
    return scheduler, Router(translator)


class Harness:
    def __init__(self, limits: LimitsConfig = LIMITS) -> None:
        self.metrics = Metrics()
        self.model = OneModel()
        self.scheduler, self.router = router_to(self.model, self.metrics, limits)
        self.admission = self.scheduler.admission
        self.ended: list[Call] = []
        self.servicer = TranslationServicer(self.router, self.scheduler, self.metrics)
        handlers = CallHandlers(
            handlers_of(SERVICE, self.servicer),
            CallLifecycle(self.metrics, observers=[self.ended.append]),
            max_request_seconds=60.0,
            max_watches=limits.max_watches,
            own_limits={TRANSLATE_STREAM: limits.max_stream_seconds},
        )
        self.server = grpc.aio.server(handlers=[handlers])
        self.port = self.server.add_insecure_port("127.0.0.1:0")

    def failed(self) -> dict[str, int]:
        """Texts of streams that failed, by status, where there are any."""
        sums = self.metrics.families.stream_failed_texts.sums()
        return {code: int(number) for (_, code), (number,) in sums.items() if number}


@pytest.fixture
def limits() -> LimitsConfig:
    """Of the harness; a test with others parametrises them."""
    return LIMITS


@pytest.fixture
async def harness(limits: LimitsConfig) -> AsyncIterator[Harness]:
    harness = Harness(limits)
    await harness.server.start()
    yield harness
    await harness.server.stop(None)


@pytest.fixture
async def calls(harness: Harness) -> AsyncIterator[Calls]:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{harness.port}") as channel:
        yield Calls(channel)


async def send(call: Any, *texts: str) -> None:
    """Each text under the id that is its number among these."""
    await call.write(
        pb.TranslateStreamRequest(texts=[pb.StreamText(id=number, text=text) for number, text in enumerate(texts)])
    )
