"""Translation in this process, without a server: the work on texts is that of a server, around an engine of its own.

Gives the same `Translation` records as the client and knows no gRPC.
"""

import asyncio
import weakref
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import count, islice
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, NamedTuple, Self

from model.bundle import Bundle
from service.config import LimitsConfig
from service.engine.wire import FailureKind, Job, JobResult, Outcome, Runtime, Settled
from service.errors import InternalError
from service.models.catalogue import index_of
from service.models.codec import TextCodec
from service.models.info import describe, search_params
from service.models.repository import load_tokenizer
from service.records import ModelInfo, TranslateOptions, Translation, TranslationRequest
from service.threads import available_threads, loop_in_thread
from service.translate.glossaries import Glossary
from service.translate.raw_translation import Settings, settings_of
from service.translate.search_batcher import SearchBatcher
from service.translate.text import translate_text

if TYPE_CHECKING:
    from service.engine.loop import EngineLoop
    from service.engine.runner import Runner

# Texts that are read ahead and sorted by length, so that sentences that are encoded together need little padding.  A
# thousand sentences keep the largest batch busy many times over.
DEFAULT_WINDOW = 1_024
# Of a sentence where memory is short: the engine runs half as much at once after each try, so by then it ran alone.
_MAX_TRIES = 12


class _Asked(NamedTuple):
    """A job, and where its outcome goes."""

    job: Job
    outcome: "asyncio.Future[Outcome]"


class LocalTranslator:
    """Translates with one model in this process."""

    def __init__(
        self, codec: TextCodec, engine: "EngineLoop", info: ModelInfo, *, window: int = DEFAULT_WINDOW
    ) -> None:
        self.info = info
        self._codec = codec
        self._engine = engine
        self._window = window  # texts that are read ahead; with 1, each is answered before the next one is read
        self._loop = loop_in_thread("engine")  # in which the work on texts and the steps of the engine take turns
        weakref.finalize(self, self._loop.call_soon_threadsafe, self._loop.stop)
        self._job_ids = count()
        self._asked: list[_Asked] = []  # not in the engine yet
        self._running: dict[int, asyncio.Future[Outcome]] = {}  # by job
        self._stepping: asyncio.Task[None] | None = None

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
        from service.engine.choice import choose_runtime
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
        settings = settings_of(
            request, self.info, self._codec, params, Glossary(request.terms), SearchBatcher(self._run)
        )
        return self._in_order(enumerate(texts), settings)

    def _in_order(self, texts: Iterator[tuple[int, str]], settings: Settings) -> Iterator[Translation]:
        finished: SimpleQueue[tuple[int, asyncio.Task[Translation]]] = SimpleQueue()
        tasks: dict[int, asyncio.Task[Translation]] = {}  # that run, by the place of the text
        done: dict[int, asyncio.Task[Translation]] = {}  # until their turn
        next_place = 0
        try:
            while True:
                if len(tasks) <= self._window // 2 and (batch := list(islice(texts, self._window))):
                    tasks |= asyncio.run_coroutine_threadsafe(
                        self._start(batch, settings, finished), self._loop
                    ).result()
                if not tasks:
                    return
                place, task = finished.get()
                done[place] = tasks.pop(place)
                while next_place in done:
                    yield done.pop(next_place).result()
                    next_place += 1
        finally:  # a caller that stops early, or an error, leaves nothing in the engine
            for task in tasks.values():
                self._loop.call_soon_threadsafe(task.cancel)

    async def _start(
        self,
        batch: Sequence[tuple[int, str]],
        settings: Settings,
        finished: "SimpleQueue[tuple[int, asyncio.Task[Translation]]]",
    ) -> dict[int, "asyncio.Task[Translation]"]:
        """Begin the work on some texts, each of which says in the queue when it is done."""
        tasks = {}
        for place, text in batch:
            own = settings._replace(batcher=SearchBatcher(self._run))  # no text waits for what another one asks for
            tasks[place] = asyncio.create_task(translate_text(text, place, own))
            tasks[place].add_done_callback(partial(_tell, finished, place))
        return tasks

    async def _run(self, jobs: Sequence[Job]) -> list[Settled]:
        return list(await asyncio.gather(*map(self._settle, jobs)))

    async def _settle(self, job: Job) -> Settled:
        """Return what the engine makes of a job; one that was too many for the memory is tried again."""
        for _ in range(_MAX_TRIES):
            outcome = await self._outcome(job._replace(id=next(self._job_ids)))
            if isinstance(outcome, JobResult) or outcome.kind is not FailureKind.OUT_OF_MEMORY:
                break
        return outcome if isinstance(outcome, JobResult) else InternalError(outcome.message)

    async def _outcome(self, job: Job) -> Outcome:
        asked = _Asked(job, asyncio.get_running_loop().create_future())
        self._asked.append(asked)
        if self._stepping is None or self._stepping.done():
            self._stepping = asyncio.create_task(self._step())
        try:
            return await asked.outcome
        finally:
            if self._running.pop(job.id, None) is not None:  # whoever waited has gone
                self._engine.cancel(job.id)

    async def _step(self) -> None:
        """Have the engine work as long as there is work; what is new goes in between the steps.

        The longest sentences go first: the last ones to run are then short, and the batch stays full to the end.
        """
        while self._asked or self._running:
            asked, self._asked = sorted(self._asked, key=lambda one: -len(one.job.source_ids)), []
            try:
                for one in asked:
                    if not one.outcome.done():
                        self._running[one.job.id] = one.outcome
                        self._engine.submit(one.job)
                outcomes = self._engine.step()
            except Exception as error:  # noqa: BLE001  whoever waits raises it
                waiting, self._running = self._running, {}
                for outcome in waiting.values():
                    outcome.set_exception(error)
                return
            for finished in outcomes:
                if (waiting_for := self._running.pop(finished.job_id, None)) is not None:
                    waiting_for.set_result(finished)
            await asyncio.sleep(0)


def _tell(
    finished: "SimpleQueue[tuple[int, asyncio.Task[Translation]]]", place: int, task: "asyncio.Task[Translation]"
) -> None:
    finished.put((place, task))
