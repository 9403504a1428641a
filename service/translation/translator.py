"""Texts to jobs and back: one job per text, and each text succeeds or fails for itself.

Knows neither gRPC nor where the engines are; what a text is in tokens is the codec's.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, TypeVar

from service.engine.job import JobResult, SearchParams
from service.errors import DeadlineExceeded, InternalError, InvalidInput
from service.queue.admission import Permit
from service.queue.callers import Caller, Priority
from service.queue.job_queue import Forecast
from service.records import Timings, Translation
from service.registry.codec import BLANK_TRANSLATION, TextCodec
from service.telemetry.calls import current_progress

# Below this a text costs less to tokenise (43 ms per million characters) than to hand to a thread.
INLINE_CHARACTERS = 4_096
INLINE_TOKENS = 2_048

Result = TypeVar("Result")


class JobSubmitter(Protocol):
    """What a translator needs of `service.engines.dispatcher.Dispatcher`."""

    @property
    def queued_work_s(self) -> float:
        """Seconds of work that waits."""
        ...

    def forecast(self, sources: Sequence[int], params: SearchParams, *, caller: Caller, priority: Priority) -> Forecast:
        """When sentences of so many tokens would be done."""
        ...

    def submit(
        self,
        source_ids: Sequence[int],
        params: SearchParams,
        deadline: float | None,
        *,
        caller: Caller,
        priority: Priority,
    ) -> "asyncio.Future[JobResult]":
        """Queue one sentence; cancelling the future cancels the job."""
        ...


@dataclass(slots=True)
class PhaseClock:
    """Seconds spent in each phase: the longest of the request's texts."""

    tokenize_s: float = 0.0
    queue_s: float = 0.0
    encode_s: float = 0.0
    decode_s: float = 0.0
    detokenize_s: float = 0.0
    started: float = field(default_factory=time.monotonic)

    def add_job(self, result: JobResult) -> None:
        """Account for one answered job."""
        self.queue_s = max(self.queue_s, result.queue_s)
        self.encode_s = max(self.encode_s, result.encode_s)
        self.decode_s = max(self.decode_s, result.decode_s)

    def timings(self) -> Timings:
        """The phases so far in milliseconds."""
        return Timings(
            tokenize_ms=self.tokenize_s * 1e3,
            queue_ms=self.queue_s * 1e3,
            encode_ms=self.encode_s * 1e3,
            decode_ms=self.decode_s * 1e3,
            detokenize_ms=self.detokenize_s * 1e3,
            total_ms=(time.monotonic() - self.started) * 1e3,
        )


@dataclass(slots=True)
class KeptSources:
    """Texts in tokens, for one caller that tries them again and again until there is room."""

    codec: TextCodec | None = None  # whose tokens they are: another try may meet another model
    sources: list[list[int] | InvalidInput] = field(default_factory=list)


class Translator:
    """Translates lists of texts with one model."""

    def __init__(self, codec: TextCodec, dispatcher: JobSubmitter, executor: Executor) -> None:
        self._codec = codec
        self._dispatcher = dispatcher
        self._executor = executor

    @property
    def queued_work_s(self) -> float:
        """Seconds of work that waits for this model, as estimated; 0 before that can be told."""
        return self._dispatcher.queued_work_s

    async def translate(
        self,
        texts: Sequence[str],
        params: SearchParams,
        *,
        permit: Permit,
        deadline: float | None,
        on_admitted: Callable[[], None] = lambda: None,
        priority: Priority = Priority.INTERACTIVE,
        kept: KeptSources | None = None,
    ) -> tuple[list[Translation], Timings]:
        """One translation per text, in order, and where the time went.

        A text that is too long, or for which the model gave no numbers, carries its own error.

        Args:
            on_admitted: called once the texts are inside, before they go to an engine.
            kept: what an earlier try with these texts has left, and where this one leaves its own.

        Raises:
            Overloaded: the texts or their source tokens do not fit in the queue, would wait too long or be too late.
            DeadlineExceeded, Unavailable: the whole call has no answer; jobs that still run are cancelled.
        """
        clock, progress = PhaseClock(), current_progress()
        progress.read_timings = clock.timings
        num_characters = sum(map(len, texts))
        permit.take_characters(num_characters)
        is_small = num_characters <= INLINE_CHARACTERS
        if not is_small:  # before it costs anything
            self._check_time((), params, permit, deadline, priority)
        progress.phase = "tokenize"
        sources = await self._encode(texts, clock, kept or KeptSources(), is_small=is_small)
        lengths = [len(ids) for ids in sources if isinstance(ids, list) and ids]
        progress.source_tokens = sum(lengths)
        permit.take_tokens(progress.source_tokens)
        self._check_time(lengths, params, permit, deadline, priority)
        on_admitted()
        submit = partial(
            self._dispatcher.submit, params=params, deadline=deadline, caller=permit.caller, priority=priority
        )
        progress.phase = "queue"
        results = await self._run(sources, submit, clock)
        progress.phase = "detokenize"
        translations = await self._decode(sources, results, clock, beam_size=params.beam_size)
        return translations, clock.timings()

    def _check_time(
        self,
        lengths: Sequence[int],
        params: SearchParams,
        permit: Permit,
        deadline: float | None,
        priority: Priority,
    ) -> None:
        forecast = self._dispatcher.forecast(lengths, params, caller=permit.caller, priority=priority)
        permit.check(forecast, now=time.monotonic(), deadline=deadline)

    async def _encode(
        self, texts: Sequence[str], clock: PhaseClock, kept: KeptSources, *, is_small: bool
    ) -> list[list[int] | InvalidInput]:
        if kept.codec is self._codec:
            return kept.sources
        started = time.monotonic()
        sources = await self._call(is_small, lambda: [self._encode_one(text, i) for i, text in enumerate(texts)])
        clock.tokenize_s = time.monotonic() - started
        kept.codec, kept.sources = self._codec, sources
        return sources

    def _encode_one(self, text: str, index: int) -> list[int] | InvalidInput:
        """Source ids, empty for a blank text, or why there are none."""
        try:
            return self._codec.encode(text, index)
        except InvalidInput as error:
            return error

    async def _run(
        self,
        sources: Sequence[list[int] | InvalidInput],
        submit: "Callable[[list[int]], asyncio.Future[JobResult]]",
        clock: PhaseClock,
    ) -> dict[int, JobResult | InternalError]:
        """Results of the texts that need the model, by index; the first error that concerns all texts is raised."""
        wanted = {index: ids for index, ids in enumerate(sources) if isinstance(ids, list) and ids}
        # The longest first: they take the most steps, and the call is answered when its last text is.
        jobs = {index: submit(wanted[index]) for index in sorted(wanted, key=lambda index: -len(wanted[index]))}
        current_progress().finished_texts = len(sources) - len(jobs)
        try:
            results = await asyncio.gather(*(_settle(job, clock) for job in jobs.values()))
        except DeadlineExceeded:  # of one of them, also when it had no time left to begin: the call ends as late
            current_progress().late_from = time.monotonic()
            raise
        finally:
            for job in jobs.values():
                job.cancel()  # does nothing to those that are done
        return dict(zip(jobs, results, strict=True))

    async def _decode(
        self,
        sources: Sequence[list[int] | InvalidInput],
        results: dict[int, JobResult | InternalError],
        clock: PhaseClock,
        *,
        beam_size: int,
    ) -> list[Translation]:
        started = time.monotonic()
        is_small = sum(_num_tokens(result) for result in results.values()) <= INLINE_TOKENS
        translations = await self._call(
            is_small, lambda: [self._decode_one(ids, results.get(i), beam_size) for i, ids in enumerate(sources)]
        )
        clock.detokenize_s = time.monotonic() - started
        return translations

    def _decode_one(
        self, source: list[int] | InvalidInput, result: JobResult | InternalError | None, beam_size: int
    ) -> Translation:
        if isinstance(source, InvalidInput):
            return Translation(error=source)
        if isinstance(result, InternalError):
            return Translation(error=result, source_tokens=len(source))
        if result is None:
            return BLANK_TRANSLATION
        hypotheses = self._codec.decode(result.hypotheses)
        return Translation(hypotheses=hypotheses, source_tokens=len(source), row_steps=beam_size * result.num_steps)

    async def _call(self, is_small: bool, function: Callable[[], Result]) -> Result:
        """The function's result, computed here if it is small and in a thread if it would hold up other calls."""
        if is_small:
            return function()
        return await asyncio.get_running_loop().run_in_executor(self._executor, function)


async def _settle(job: "asyncio.Future[JobResult]", clock: PhaseClock) -> JobResult | InternalError:
    progress = current_progress()
    try:
        result = await job
    except InternalError as error:  # concerns this text only
        progress.finished_texts += 1
        return error
    progress.finished_texts += 1
    progress.target_tokens += _num_tokens(result)
    clock.add_job(result)
    return result


def _num_tokens(result: JobResult | InternalError) -> int:
    return 0 if isinstance(result, InternalError) else sum(len(item.token_ids) for item in result.hypotheses)
