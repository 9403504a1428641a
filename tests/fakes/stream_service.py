"""TranslateStream on a gRPC server in this process, with one model that the test replaces and loses."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import grpc
import grpc.aio
import pytest

from protos import translation_pb2 as pb
from service.config import LimitsConfig
from service.engine.job import FinishReason
from service.errors import DragomanError, NotFound, Overloaded
from service.grpc import stream_servicer
from service.grpc.interceptors import CallInterceptor
from service.grpc.stream_servicer import METHOD, StreamServicer
from service.queue.admission import Admission
from service.queue.usage import UsageLog
from service.queue.waiting_lines import WaitingLines
from service.records import ModelInfo, Timings, TranslatedText, Translation
from service.registry.host import Lease, ModelHost
from service.registry.registry import Registry
from service.telemetry.calls import EndedCall, current_progress
from service.telemetry.metrics import Metrics
from service.translation.translator import Translator
from tests.fakes.calls import Calls
from tests.fakes.model_info import model_info

INFO = model_info("loud")
LIMITS = LimitsConfig(max_streams=2, max_texts=70, max_characters=200_000, max_stream_seconds=60.0)
SHORT_LIMITS = replace(LIMITS, max_stream_seconds=0.5)
OUT_OF_MEMORY = "out_of_memory"
TIMINGS = Timings(tokenize_ms=0, queue_ms=0, encode_ms=0, decode_ms=0, detokenize_ms=0, total_ms=0)


class Loud:
    """Upper case as translation; some texts wait, and some meet, once admitted, what the test has scripted for them."""

    queued_work_s = 0.0

    def __init__(self) -> None:
        self.errors: dict[str, list[DragomanError]] = {}  # by text, in the order of its tries
        self.gates: dict[str, asyncio.Event] = {}
        self.begun: asyncio.Queue[str] = asyncio.Queue()

    async def translate(
        self, texts: Sequence[str], params: object, *, on_admitted: Callable[[], None], **_: object
    ) -> tuple[list[Translation], Timings]:
        (text,) = texts
        progress = current_progress()
        progress.phase, progress.read_timings, progress.source_tokens = "decode", lambda: TIMINGS, len(text)
        if not any(
            isinstance(error, Overloaded) and error.reason != OUT_OF_MEMORY for error in self.errors.get(text, ())
        ):
            on_admitted()
        self.begun.put_nowait(text)
        if errors := self.errors.get(text):
            raise errors.pop(0)
        if gate := self.gates.get(text):
            await gate.wait()
        progress.target_tokens += 1
        hypothesis = TranslatedText(
            text=text.upper(), score=0.0, finish_reason=FinishReason.END_OF_SENTENCE, target_tokens=1
        )
        return [Translation(hypotheses=(hypothesis,), source_tokens=1)], TIMINGS


class OneModel:
    """A catalog whose only model can be replaced and taken away."""

    def __init__(self) -> None:
        self.loud = Loud()
        self.info: ModelInfo | None = INFO

    def find(self, **_: object) -> ModelHost:
        if self.info is None:
            raise NotFound("there is no model; loaded: ")
        return cast("ModelHost", SimpleNamespace(info=self.info, lease=Lease(), dispatcher=self.loud))


class Harness:
    """The service with one method."""

    def __init__(self, limits: LimitsConfig = LIMITS) -> None:
        self.catalog, self.metrics, self.lines = OneModel(), Metrics(), WaitingLines()
        self.ended: list[EndedCall] = []
        self.admission = Admission(limits, on_leave=self.lines.departed)
        self.servicer = StreamServicer(
            cast("Registry", self.catalog),
            self.admission,
            self.lines,
            self.metrics,
            limits,
            UsageLog(self.metrics),
            lambda _: cast("Translator", self.catalog.loud),
        )
        interceptor = CallInterceptor(
            self.metrics,
            methods=frozenset({METHOD}),
            max_request_seconds=60.0,
            own_limits={METHOD: limits.max_stream_seconds},
            observers=[self.ended.append],
        )
        self.server = grpc.aio.server(interceptors=[interceptor])
        stream_servicer.add_to_server(self.servicer, self.server)
        self.port = self.server.add_insecure_port("127.0.0.1:0")

    def rejected(self, reason: str) -> int:
        """What the metric says."""
        return int(self.metrics.registry.get_sample_value("dragoman_rejected_total", {"reason": reason}) or 0)

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
    """One that serves."""
    harness = Harness(limits)
    await harness.server.start()
    yield harness
    await harness.server.stop(None)


@pytest.fixture
async def calls(harness: Harness) -> AsyncIterator[Calls]:
    """Calls to it."""
    async with grpc.aio.insecure_channel(f"127.0.0.1:{harness.port}") as channel:
        yield Calls(channel)


async def send(call: Any, *texts: str) -> None:
    """Each text under the id that is its number among these."""
    await call.write(
        pb.TranslateStreamRequest(texts=[pb.StreamText(id=number, text=text) for number, text in enumerate(texts)])
    )
