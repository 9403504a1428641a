"""A model whose pool the test answers by hand, and whose tokens are characters; no engine."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from model.tokenizer import SupportsTokens
from service.call import Call
from service.config import LimitsConfig, ServerConfig
from service.engine.wire import FinishReason, Hypothesis, Job, JobResult, SearchParams, Settled
from service.errors import InternalError
from service.models.catalogue import UseCount
from service.models.codec import TextCodec
from service.models.info import search_params
from service.models.registry import Registry
from service.models.repository import BundleCandidate
from service.models.version import ModelVersion
from service.records import NO_OPTIONS, ModelInfo
from service.telemetry.metrics import Metrics
from tests.fakes.character_spans import CharacterSpans
from tests.fakes.model_info import model_info

MAX_CHARACTERS, MAX_SOURCE_TOKENS = 20, 8


class CharacterTokenizer(CharacterSpans):
    """One token per character (its code point + 100) and 3 for end-of-sentence; "~" cannot be tokenised."""

    def encode(self, text: str) -> list[int]:
        if "~" in text:
            raise RuntimeError("a message that quotes the text")
        text = text.strip()
        return [*(ord(character) + 100 for character in text), 3] if text else []

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(chr(token - 100) for token in ids)


def codec(tokenizer: SupportsTokens) -> TextCodec:
    """With limits that a test reaches soon."""
    return TextCodec(tokenizer, max_characters=MAX_CHARACTERS, max_source_tokens=MAX_SOURCE_TOKENS)


class ManualPool:
    """Remembers what was submitted; the test resolves the futures."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []
        self.calls: list[Call | None] = []  # that they belong to
        self.futures: list[asyncio.Future[JobResult]] = []
        self.forecasts: list[tuple[int, ...]] = []
        self.answer_to_forecast = (0.0, 0.0)
        self.answer_to_typical_forecast = (0.0, 0.0)
        self.queued_work_s = 0.0

    def forecast(self, sources: Sequence[int], params: object, call: Call) -> tuple[float, float]:
        self.forecasts.append(tuple(sources))
        return self.answer_to_forecast

    def typical_forecast(self, params: object, call: Call) -> tuple[float, float]:
        return self.answer_to_typical_forecast

    async def run(self, jobs: Sequence[Job], call: Call) -> list[Settled]:
        loop, results = asyncio.get_running_loop(), dict[int, asyncio.Future[JobResult]]()
        for place in sorted(range(len(jobs)), key=lambda place: -jobs[place].num_tokens):
            results[place] = loop.create_future()
            self.jobs.append(jobs[place])
            self.calls.append(call)
            self.futures.append(results[place])

        async def settled(result: asyncio.Future[JobResult]) -> Settled:
            try:
                call.job_finished(await result)
            except InternalError as error:
                return error
            return result.result()

        try:
            return await asyncio.gather(*(settled(results[place]) for place in range(len(jobs))))
        finally:
            for future in results.values():
                future.cancel()

    def answer(
        self, index: int, *texts: str, queue_s: float = 0.0, encode_s: float = 0.0, decode_s: float = 0.0
    ) -> None:
        hypotheses = tuple(
            Hypothesis(
                token_ids=tuple(ord(character) + 100 for character in text),
                score=-0.5,
                finish_reason=FinishReason.END_OF_SENTENCE,
            )
            for text in texts
        )
        beam_size = self.jobs[index].params.beam_size
        result = JobResult(0, hypotheses, queue_s, encode_s, decode_s, num_steps=1, beam_size=beam_size)
        self.futures[index].set_result(result)

    async def submitted(self, count: int) -> None:
        async with asyncio.timeout(5):
            while len(self.futures) < count:  # noqa: ASYNC110  a list raises no events
                await asyncio.sleep(0)


@dataclass(eq=False)
class ManualModel:
    info: ModelInfo = field(default_factory=lambda: model_info("m"))
    codec: TextCodec = field(default_factory=lambda: codec(CharacterTokenizer()))
    pool: Any = field(default_factory=ManualPool)
    in_use: UseCount = field(default_factory=UseCount)
    is_loaded: bool = True
    sha256_12: str = "abc"
    number: int = 0

    @property
    def default_params(self) -> SearchParams:
        return search_params(self.info, NO_OPTIONS)

    @property
    def candidate(self) -> BundleCandidate:
        return BundleCandidate(directory=Path(self.info.name), name=self.info.name)


def registry_of(*models: ManualModel) -> Registry:
    registry = Registry(ServerConfig(limits=LimitsConfig(max_request_seconds=5.0)), Metrics())
    for model in models:
        registry.publish(cast("ModelVersion", model))
    return registry
