"""Translation in this process, without a server: the engine's loop driven directly.

Gives the same `Translation` records as the client.  Knows no gRPC.  For one thread; calls may take turns in it.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, islice
from pathlib import Path
from typing import Protocol, Self

from model.bundle import Bundle
from service.config import LimitsConfig
from service.engine.job import FailureKind, Job, JobFailure, Outcome, SearchParams
from service.errors import InternalError, InvalidInput
from service.records import ModelInfo, TranslateOptions, Translation
from service.registry.bundle_check import load_tokenizer
from service.registry.codec import BLANK_TRANSLATION, TextCodec
from service.registry.model_info import describe, index_of
from service.threads import available_threads
from service.translation.search_options import search_params

# Texts read ahead and sorted by length, so that sentences encoded together need little padding.  A thousand sentences
# keep the largest batch busy many times over.
DEFAULT_WINDOW = 1_024
# Of a sentence, where memory is short: the engine runs half as much at once after each, so by then it was alone.
_MAX_TRIES = 12


class Loop(Protocol):
    """What is needed of `service.engine.loop.EngineLoop`."""

    def submit(self, job: Job) -> None:
        """Queue one sentence."""
        ...

    def cancel(self, job_id: int) -> None:
        """Drop one sentence at the next step."""
        ...

    def step(self) -> Sequence[Outcome]:
        """Advance every running sentence by one token; the jobs that ended."""
        ...


@dataclass(frozen=True, slots=True)
class _Started:
    """A text in the engine."""

    position: int
    job: Job
    tries: int = 1


@dataclass(slots=True)
class _Progress:
    """One call's texts on their way: read, in the engine, done but not yet their turn."""

    texts: Iterator[tuple[int, str]]  # position, text
    jobs: dict[int, _Started] = field(default_factory=dict)  # by id
    done: dict[int, Translation] = field(default_factory=dict)  # by position
    next_position: int = 0  # of the text whose translation is given out next

    def in_order(self) -> Iterator[Translation]:
        """The translations whose turn has come."""
        while self.next_position in self.done:
            yield self.done.pop(self.next_position)
            self.next_position += 1


class LocalTranslator:
    """One model in this process."""

    def __init__(self, codec: TextCodec, loop: Loop, info: ModelInfo, *, window: int = DEFAULT_WINDOW) -> None:
        """Wrap a loop that is ready.

        Args:
            info: its default_options are complete, and their max_target_tokens is the model's limit.
            window: texts read ahead; 1 answers each text before the next is read.
        """
        self.info = info
        self._codec = codec
        self._loop = loop
        self._window = window
        self._job_ids = count()
        self._callers: dict[int, _Progress] = {}  # by job: each call's steps are those of all that are under way

    @classmethod
    def open(
        cls,
        directory: Path,
        *,
        precision: str | None = None,
        threads: int | None = None,
        window: int = DEFAULT_WINDOW,
    ) -> Self:
        """Load a bundle and check it; takes about a second.

        Args:
            precision: "int8" or "fp32"; None for the best the bundle has.
            threads: of the model's arithmetic; None for all CPUs this process may use.

        Raises:
            ValueError: the bundle cannot be used; the message says which file and why.
        """
        from service.engine.cpu.runner import CpuRunner
        from service.engine.loop import EngineLoop

        bundle = Bundle.load(directory)
        info = describe(bundle, precision)
        codec = TextCodec(
            load_tokenizer(bundle),
            max_characters=LimitsConfig().max_characters,
            max_source_tokens=info.max_source_tokens,
        )
        runner = CpuRunner(bundle, precision=precision, num_threads=threads or available_threads())
        return cls(codec, EngineLoop(runner), info, window=window)

    def require(self, *, model: str | None = None, source_language: str = "", target_language: str = "") -> None:
        """Make sure that this is the model a caller means; empty languages and no name fit every model.

        Raises:
            NotFound: it is another one.
        """
        index_of([self.info], model=model, source_language=source_language, target_language=target_language)

    def translate_all(self, texts: Iterable[str], options: TranslateOptions | None = None) -> Iterator[Translation]:
        """One translation per text, in order, each as soon as all before it are there.

        Raises:
            InvalidInput: an option is out of range.
        """
        params = search_params(self.info, options or TranslateOptions())
        return self._run(_Progress(enumerate(texts)), params)

    def _run(self, progress: _Progress, params: SearchParams) -> Iterator[Translation]:
        try:
            while self._refill(progress, params):
                for outcome in self._loop.step() if progress.jobs else ():
                    self._settle(outcome)
                yield from progress.in_order()
        finally:
            self._abandon(progress)

    def _refill(self, progress: _Progress, params: SearchParams) -> bool:
        """Start more texts when less than half a window is under way; False when nothing is left to do."""
        if len(progress.jobs) > self._window // 2:
            return True
        batch = list(islice(progress.texts, self._window))
        self._start(progress, batch, params)
        return bool(batch or progress.jobs or progress.done)

    def _start(self, progress: _Progress, batch: Sequence[tuple[int, str]], params: SearchParams) -> None:
        """Submit the texts, longest first: the last to run are then short, and the batch stays full to the end."""
        sources: list[tuple[int, list[int]]] = []
        for position, text in batch:
            try:
                sources.append((position, self._codec.encode(text, position)))
            except InvalidInput as error:
                progress.done[position] = Translation(error=error)
        for position, ids in sorted(sources, key=lambda source: -len(source[1])):
            if ids:
                job = Job(id=next(self._job_ids), source_ids=tuple(ids), params=params)
                self._submit(progress, _Started(position, job))
            else:
                progress.done[position] = BLANK_TRANSLATION

    def _submit(self, progress: _Progress, started: _Started) -> None:
        progress.jobs[started.job.id] = started
        self._callers[started.job.id] = progress
        self._loop.submit(started.job)

    def _settle(self, outcome: Outcome) -> None:
        progress = self._callers.pop(outcome.job_id, None)
        if progress is None:
            return  # its caller went away
        started = progress.jobs.pop(outcome.job_id)
        position, source_tokens = started.position, len(started.job.source_ids)
        if isinstance(outcome, JobFailure):
            if outcome.kind is FailureKind.OUT_OF_MEMORY and started.tries < _MAX_TRIES:
                again = replace(started.job, id=next(self._job_ids))
                self._submit(progress, _Started(position, again, started.tries + 1))
                return
            progress.done[position] = Translation(error=InternalError(outcome.message), source_tokens=source_tokens)
            return
        hypotheses = self._codec.decode(outcome.hypotheses)
        progress.done[position] = Translation(hypotheses=hypotheses, source_tokens=source_tokens)

    def _abandon(self, progress: _Progress) -> None:
        """Take back what a caller that stopped early, or an error, left in the engine."""
        for job_id in progress.jobs:
            del self._callers[job_id]
            self._loop.cancel(job_id)
