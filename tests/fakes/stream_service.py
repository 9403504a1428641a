"""A pipeline with one model that the test replaces and loses; and TranslateStream on a gRPC server in this process."""

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import grpc
import grpc.aio
import pytest

from protos import translation_pb2 as pb
from service.call import Call
from service.calls.book import CallBook
from service.config import LimitsConfig
from service.edges.core import Core
from service.engine.job import FinishReason, SearchParams
from service.errors import DragomanError, NotFound, Overloaded
from service.grpc import stream_servicer
from service.grpc.call_handlers import CallHandlers
from service.grpc.stream_servicer import METHOD, StreamServicer
from service.queue.admission import Permit
from service.records import ModelInfo, TranslatedText, Translation, TranslationRequest, TranslationResult
from service.registry.catalogue import Catalogue, ServedModel
from service.telemetry.metrics import Metrics
from service.translation.account import Account
from service.translation.pipeline import Pipeline
from service.translation.routing import Router
from tests.fakes.calls import Calls
from tests.fakes.model_info import model_info

INFO = model_info("loud")
LIMITS = LimitsConfig(max_streams=2, max_texts=70, max_characters=200_000, max_stream_seconds=60.0)
SHORT_LIMITS = replace(LIMITS, max_stream_seconds=0.5)
OUT_OF_MEMORY = "out_of_memory"


class OneModel:
    """A catalog whose only model can be replaced and taken away."""

    def __init__(self) -> None:
        self.info: ModelInfo | None = INFO

    @property
    def models(self) -> tuple[ServedModel, ...]:
        return (self.find(),) if self.info else ()

    def find(self, **_: object) -> ServedModel:
        if self.info is None:
            raise NotFound("there is no model; loaded: ")
        return cast("ServedModel", SimpleNamespace(info=self.info, default_params=SearchParams()))


class LoudPipeline(Pipeline):
    """Upper case as translation; some texts wait, and some meet, once admitted, what the test has scripted for them."""

    def __init__(self, metrics: Metrics, limits: LimitsConfig = LIMITS) -> None:
        self.catalog = OneModel()
        self.core = Core(cast("Catalogue", self.catalog), limits)
        self.lines, admission = self.core.lines, self.core.admission
        super().__init__(self.core.catalogue, admission, Account(metrics), limits, ThreadPoolExecutor(1))
        self.errors: dict[str, list[DragomanError]] = {}  # by text, in the order of its tries
        self.gates: dict[str, asyncio.Event] = {}
        self.begun: asyncio.Queue[str] = asyncio.Queue()

    async def translate_admitted(
        self,
        request: TranslationRequest,
        call: Call,
        permit: Permit,
        *,
        on_room: Callable[[], None] | None = None,
        begun: object = None,
    ) -> TranslationResult:
        model, params = self.resolve(request, call)
        (text,) = request.texts
        call.phase, call.source_tokens = "decode", len(text)
        is_refused = any(
            isinstance(error, Overloaded) and error.reason != OUT_OF_MEMORY for error in self.errors.get(text, ())
        )
        if on_room is not None and not is_refused:
            on_room()
        self.begun.put_nowait(text)
        if errors := self.errors.get(text):
            raise errors.pop(0)
        if gate := self.gates.get(text):
            await gate.wait()
        call.target_tokens += 1
        hypothesis = TranslatedText(
            text=text.upper(), score=0.0, finish_reason=FinishReason.END_OF_SENTENCE, target_tokens=1
        )
        return TranslationResult(
            translations=[Translation(hypotheses=(hypothesis,), source_tokens=1)],
            model=model.info.name,
            model_version=model.info.version,
            beam_size=params.beam_size,
        )


class Harness:
    def __init__(self, limits: LimitsConfig = LIMITS) -> None:
        self.metrics = Metrics()
        self.pipeline = LoudPipeline(self.metrics, limits)
        self.admission = self.pipeline.admission
        self.ended: list[Call] = []
        self.servicer = StreamServicer(Router(self.pipeline, ThreadPoolExecutor(1)), self.pipeline.core, self.metrics)
        handlers = CallHandlers(
            stream_servicer.handlers(self.servicer),
            CallBook(self.metrics, observers=[self.ended.append]),
            max_request_seconds=60.0,
            max_watches=limits.max_watches,
            own_limits={METHOD: limits.max_stream_seconds},
        )
        self.server = grpc.aio.server(handlers=[handlers])
        self.port = self.server.add_insecure_port("127.0.0.1:0")

    def failed(self) -> dict[str, int]:
        """Texts of streams that failed, by status, where there are any."""
        families = self.metrics.registry.collect()
        counter = next(family for family in families if family.name == "dragoman_stream_failed_texts")
        return {item.labels["code"]: int(item.value) for item in counter.samples if item.value}


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
