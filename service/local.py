"""Translation in this process, without a server: the engine's loop is driven directly.

Gives the same `Translation` records as the client and knows no gRPC.  For one thread; calls may take turns in it.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count, islice
from pathlib import Path
from typing import TYPE_CHECKING, Self

from model.bundle import Bundle
from service.config import LimitsConfig
from service.engine.job import FailureKind, Job, JobFailure, Outcome, SearchParams
from service.errors import InternalError, InvalidInput
from service.records import ModelInfo, TranslateOptions, Translation
from service.registry.bundle_check import load_tokenizer
from service.registry.model_info import BLANK_TRANSLATION, TextCodec, describe, index_of, search_params
from service.threads import available_threads

if TYPE_CHECKING:
    from service.engine.loop import EngineLoop

# Texts that are read ahead and sorted by length, so that sentences that are encoded together need little padding.  A
# thousand sentences keep the largest batch busy many times over.
DEFAULT_WINDOW = 1_024
# Of a sentence where memory is short: the engine runs half as much at once after each try, so by then it ran alone.
_MAX_TRIES = 12


@dataclass(slots=True)
class _Call:
    """The texts of one call on their way; a position is a text's place among all texts of the call."""

    texts: Iterator[tuple[int, str]]  # position, text
    params: SearchParams
    jobs: dict[int, tuple[int, Job, int]] = field(default_factory=dict)  # by id: position, job, number of tries
    done: dict[int, Translation] = field(default_factory=dict)  # by position, until its turn


class LocalTranslator:
    """Translates with one model in this process."""

    def __init__(self, codec: TextCodec, loop: "EngineLoop", info: ModelInfo, *, window: int = DEFAULT_WINDOW) -> None:
        self.info = info
        self._codec = codec
        self._loop = loop
        self._window = window  # texts that are read ahead; with 1, each is answered before the next one is read
        self._job_ids = count()
        self._calls: dict[int, _Call] = {}  # by job: a step of one call advances the jobs of all

    @classmethod
    def open(
        cls,
        directory: Path,
        *,
        precision: str | None = None,
        threads: int | None = None,
        window: int = DEFAULT_WINDOW,
    ) -> Self:
        """Load a bundle and check it, which takes about a second; raises ValueError if the bundle cannot be used.

        Args:
            precision: "int8" or "fp32"; None for the best that the bundle has.
            threads: of the model's arithmetic; None for all CPUs that this process may use.
        """
        from service.engine.cpu.runner import CpuRunner
        from service.engine.loop import EngineLoop

        bundle = Bundle.load(directory)
        info = describe(bundle, precision)
        max_characters = LimitsConfig().max_characters
        codec = TextCodec(
            load_tokenizer(bundle), max_characters=max_characters, max_source_tokens=info.max_source_tokens
        )
        runner = CpuRunner(bundle, precision=precision, num_threads=threads or available_threads())
        return cls(codec, EngineLoop(runner), info, window=window)

    def require(self, *, model: str | None = None, source_language: str = "", target_language: str = "") -> None:
        """Raise NotFound if a caller means another model; empty languages and no name fit every model."""
        index_of([self.info], model=model, source_language=source_language, target_language=target_language)

    def translate_all(self, texts: Iterable[str], options: TranslateOptions | None = None) -> Iterator[Translation]:
        """Yield one translation per text, in order, each as soon as all translations before it are there."""
        return self._run(_Call(enumerate(texts), search_params(self.info, options or TranslateOptions())))

    def _run(self, call: _Call) -> Iterator[Translation]:
        next_position = 0
        try:
            while True:
                if len(call.jobs) <= self._window // 2:
                    batch = list(islice(call.texts, self._window))
                    self._start(call, batch)
                    if not (batch or call.jobs or call.done):
                        return
                if call.jobs:
                    for outcome in self._loop.step():
                        self._settle(outcome)
                while next_position in call.done:
                    yield call.done.pop(next_position)
                    next_position += 1
        finally:  # a caller that stops early, or an error, leaves nothing in the engine
            for job_id in call.jobs:
                del self._calls[job_id]
                self._loop.cancel(job_id)

    def _start(self, call: _Call, batch: Sequence[tuple[int, str]]) -> None:
        """Submit the texts, longest first: the last ones to run are then short, and the batch stays full to the end."""
        sources: list[tuple[int, list[int]]] = []
        for position, text in batch:
            try:
                sources.append((position, self._codec.encode(text, position)))
            except InvalidInput as error:
                call.done[position] = Translation(error=error)
        for position, ids in sorted(sources, key=lambda source: -len(source[1])):
            if ids:
                self._submit(call, position, Job(id=next(self._job_ids), source_ids=tuple(ids), params=call.params))
            else:
                call.done[position] = BLANK_TRANSLATION

    def _submit(self, call: _Call, position: int, job: Job, num_tries: int = 1) -> None:
        call.jobs[job.id] = position, job, num_tries
        self._calls[job.id] = call
        self._loop.submit(job)

    def _settle(self, outcome: Outcome) -> None:
        call = self._calls.pop(outcome.job_id, None)
        if call is None:
            return  # its caller went away
        position, job, num_tries = call.jobs.pop(outcome.job_id)
        source_tokens = len(job.source_ids)
        if not isinstance(outcome, JobFailure):
            hypotheses = self._codec.decode(outcome.hypotheses)
            call.done[position] = Translation(hypotheses=hypotheses, source_tokens=source_tokens)
        elif outcome.kind is FailureKind.OUT_OF_MEMORY and num_tries < _MAX_TRIES:
            self._submit(call, position, job._replace(id=next(self._job_ids)), num_tries + 1)
        else:
            call.done[position] = Translation(error=InternalError(outcome.message), source_tokens=source_tokens)
