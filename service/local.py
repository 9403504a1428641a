"""Translation in this process, without a server: the engine's loop is driven directly.

Gives the same `Translation` records as the client and knows no gRPC.  For one thread; calls may take turns in it.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, islice
from pathlib import Path
from typing import TYPE_CHECKING, Self

from model.bundle import Bundle
from service.config import LimitsConfig
from service.engine.job import FailureKind, Job, JobResult, Outcome
from service.engine.spec import Runtime
from service.errors import InternalError
from service.records import ModelInfo, TranslateOptions, Translation, TranslationRequest
from service.registry.bundle_check import load_tokenizer
from service.registry.model_info import TextCodec, describe, for_languages, index_of, search_params
from service.text.glossary import Glossary
from service.threads import available_threads
from service.translation.drafts import Settings, settings_of
from service.translation.tasks import Reply, Rounds, Task
from service.translation.text_work import translate_text

if TYPE_CHECKING:
    from service.engine.loop import EngineLoop
    from service.engine.runner import Runner

# Texts that are read ahead and sorted by length, so that sentences that are encoded together need little padding.  A
# thousand sentences keep the largest batch busy many times over.
DEFAULT_WINDOW = 1_024
# Of a sentence where memory is short: the engine runs half as much at once after each try, so by then it ran alone.
_MAX_TRIES = 12


@dataclass(slots=True)
class _Text:
    """A text on its way, with the replies of its round so far."""

    work: Rounds[Translation]
    tasks: list[Task] = field(default_factory=list)
    replies: dict[int, Reply] = field(default_factory=dict)  # by index of the task


@dataclass(slots=True)
class _Running:
    """A job in the engine, and which task of which text it does."""

    job: Job
    position: int  # the text's place among all texts of the call
    index: int
    num_tries: int = 1


@dataclass(slots=True)
class _Call:
    """The texts of one call on their way."""

    texts: Iterator[tuple[int, str]]  # position, text
    settings: Settings
    jobs: dict[int, _Running] = field(default_factory=dict)  # by id
    working: dict[int, _Text] = field(default_factory=dict)  # by position, until they are done
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
        runtime: Runtime = "auto",
    ) -> Self:
        """Load a bundle and check it, which takes about a second; raises ValueError if the bundle cannot be used.

        Args:
            precision: "int8" or "fp32"; None for the best that the bundle has.
            threads: of the model's arithmetic; None for one in the native engine, and in ONNX Runtime for all CPUs that
                this process may use.
            runtime: what computes, as `engine.runtime` of a server.
        """
        from service.engine.cpu.native.choice import choose_runtime
        from service.engine.cpu.native.runner import NativeRunner
        from service.engine.cpu.runner import CpuRunner
        from service.engine.loop import EngineLoop

        bundle = Bundle.load(directory)
        choice = choose_runtime(runtime, bundle, precision, threads or 1)
        info = replace(describe(bundle, precision), runtime=choice.runtime, runtime_detail=choice.detail)
        max_characters = LimitsConfig().max_characters
        codec = TextCodec(
            load_tokenizer(bundle), max_characters=max_characters, max_source_tokens=info.max_source_tokens
        )
        runner: Runner
        if choice.runtime == "native":
            runner = NativeRunner(bundle, precision=precision)
        else:
            runner = CpuRunner(bundle, precision=precision, num_threads=threads or available_threads())
        return cls(codec, EngineLoop(runner), info, window=window)

    def require(self, *, model: str | None = None, source_language: str = "", target_language: str = "") -> None:
        """Raise NotFound if a caller means another model; empty languages and no name fit every model."""
        index_of([self.info], model=model, source_language=source_language, target_language=target_language)

    def translate_all(
        self,
        texts: Iterable[str],
        options: TranslateOptions | None = None,
        *,
        request: TranslationRequest | None = None,
    ) -> Iterator[Translation]:
        """Yield one translation per text, in order, each as soon as all translations before it are there.

        Args:
            texts: to translate; read as they are needed.
            options: how to search; None takes the model's defaults.
            request: what else a request can ask for: format, alignments, terms; its texts do not count.
        """
        params = search_params(self.info, options or TranslateOptions(), self._codec)
        request = replace(request or TranslationRequest(), options=options or TranslateOptions())
        info = for_languages(self.info, request.source_language, request.target_language)
        codec = self._codec.between(info.source_language, info.target_language) if info.languages else self._codec
        return self._run(_Call(enumerate(texts), settings_of(request, info, codec, params, Glossary(request.terms))))

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
        asking: list[tuple[int, int]] = []
        for position, text in batch:
            call.working[position] = _Text(translate_text(text, position, call.settings))
            if self._advance(call, position):
                asking.append((-sum(len(task.source_ids) for task in call.working[position].tasks), position))
        for _, position in sorted(asking):
            self._submit_round(call, position)

    def _advance(self, call: _Call, position: int) -> bool:
        """Send a text the replies of its round; return whether it asks for another one."""
        text = call.working[position]
        try:
            if text.tasks:
                text.tasks = text.work.send([text.replies.pop(index) for index in range(len(text.tasks))])
            else:
                text.tasks = next(text.work)
        except StopIteration as stop:
            del call.working[position]
            call.done[position] = stop.value
            return False
        return True

    def _submit_round(self, call: _Call, position: int) -> None:
        for index, task in enumerate(call.working[position].tasks):
            job = Job(
                id=next(self._job_ids),
                source_ids=task.source_ids,
                params=task.params,
                prefix_ids=task.prefix_ids,
                scored_ids=task.scored_ids,
            )
            self._submit(call, _Running(job, position, index))

    def _submit(self, call: _Call, running: _Running) -> None:
        call.jobs[running.job.id] = running
        self._calls[running.job.id] = call
        self._loop.submit(running.job)

    def _settle(self, outcome: Outcome) -> None:
        call = self._calls.pop(outcome.job_id, None)
        if call is None:
            return  # its caller went away
        running = call.jobs.pop(outcome.job_id)
        result: JobResult | InternalError
        if isinstance(outcome, JobResult):
            result = outcome
        elif outcome.kind is FailureKind.OUT_OF_MEMORY and running.num_tries < _MAX_TRIES:
            job = running.job._replace(id=next(self._job_ids))
            self._submit(call, replace(running, job=job, num_tries=running.num_tries + 1))
            return
        else:
            result = InternalError(outcome.message)
        text, params = call.working[running.position], running.job.params
        text.replies[running.index] = Reply(result, params.beam_size, params.num_rows // params.beam_size)
        if len(text.replies) == len(text.tasks) and self._advance(call, running.position):
            self._submit_round(call, running.position)
