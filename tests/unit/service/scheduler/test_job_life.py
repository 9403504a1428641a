"""The life of jobs between admission, dispatch and engines, in any order of events that hypothesis finds.

Whatever arrives, leaves, is late or dies: every request ends, with the answer it would have had alone or with an error
of the tree; no job is started twice or answered twice; rows keep to their budget; every reservation comes back.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from unittest import mock

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from model.config import EOS_ID
from service.call import Call
from service.config import LimitsConfig
from service.engine.loop import EngineLoop
from service.engine.wire import EngineSpec, Job, JobResult, SchedulerConfig, SearchParams
from service.errors import DeadlineExceeded, Overloaded, Unavailable
from service.models.call_scheduler import CallScheduler
from service.models.codec import TextCodec
from service.records import Segmentation, TranslateOptions, TranslationRequest, TranslationResult
from service.scheduler.pool import PoolConfig
from service.telemetry.metrics import Metrics
from service.telemetry.usage import UsageMeter
from service.translate.translator import Translator
from tests.fakes.character_spans import CharacterSpans
from tests.fakes.engine_pools import make_pool
from tests.fakes.fake_runner import FakeRunner
from tests.fakes.manual_pool import ManualModel, registry_of

MAX_ROWS = 8
NUM_ENGINES = 2
MAX_STEPS = 8  # of a translation
LIMITS = LimitsConfig(max_texts=3, max_concurrent_requests=6, max_queued_tokens=40)
SPEC = EngineSpec(bundle_dir=Path("no-bundle"), scheduler=SchedulerConfig(max_rows=MAX_ROWS))
SOON_S = 1.0

TEXTS = st.lists(
    st.lists(st.integers(EOS_ID + 1, 29), max_size=5).map(lambda ids: " ".join(map(str, ids))), min_size=1, max_size=3
)


class Numbers(CharacterSpans):
    """A tokenizer whose texts are the ids themselves."""

    def encode(self, text: str) -> list[int]:
        ids = [int(word) for word in text.split()]
        return [*ids, EOS_ID] if ids else []

    def decode(self, ids: Sequence[int]) -> str:
        return " ".join(map(str, ids))


@cache
def alone(text: str, beam_size: int) -> str:
    """What an engine of its own makes of a text."""
    ids = Numbers().encode(text)
    if not ids:
        return ""
    engine = EngineLoop(FakeRunner())
    engine.submit(Job(id=0, source_ids=tuple(ids), params=params(beam_size)))
    while not engine.is_idle:
        for outcome in engine.step():
            assert isinstance(outcome, JobResult)
            return Numbers().decode(outcome.hypotheses[0].token_ids)
    raise AssertionError


def params(beam_size: int) -> SearchParams:
    return SearchParams(beam_size=beam_size, max_target_tokens=MAX_STEPS)


@dataclass(frozen=True)
class Request:
    """A request under way and what it must become."""

    texts: list[str]
    beam_size: int
    task: "asyncio.Task[TranslationResult]"
    can_be_late: bool


class JobLife(RuleBasedStateMachine):
    """Requests come and go, engines work, die and come back."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1_000.0
        self.patched_clock = mock.patch("time.monotonic", self.read_clock)  # the event loop's as well
        self.patched_clock.start()
        self.loop = asyncio.new_event_loop()
        self.errors: list[dict[str, object]] = []  # of callbacks, which nobody else would see
        self.loop.set_exception_handler(lambda _, context: self.errors.append(context))
        self.requests: list[Request] = []
        self.executor = ThreadPoolExecutor(1)

    def read_clock(self) -> float:
        return self.now

    @initialize()
    def start(self) -> None:
        config = PoolConfig(num_engines=NUM_ENGINES, lookahead_jobs=2)
        self.pool, self.engines = make_pool(SPEC, config)
        codec = TextCodec(Numbers(), max_characters=100, max_source_tokens=20)
        registry = registry_of(ManualModel(codec=codec, pool=self.pool))
        scheduler = CallScheduler(registry.catalogue, LIMITS)
        self.admission = scheduler.admission
        self.translator = Translator(scheduler, UsageMeter(Metrics()), LIMITS, self.executor)
        self.loop.run_until_complete(self.pool.start())

    @rule(texts=TEXTS, beam_size=st.integers(1, 4), is_hurried=st.booleans())
    def arrive(self, texts: list[str], beam_size: int, is_hurried: bool) -> None:
        async def handle() -> TranslationResult:
            now = time.monotonic()
            call = Call(method="m", started=now, deadline=now + (SOON_S if is_hurried else 3_600.0))
            options = TranslateOptions(beam_size=beam_size, max_target_tokens=MAX_STEPS, segmentation=Segmentation.NONE)
            request = TranslationRequest(texts=texts, options=options)
            call.priority = call.caller.allowed(request.priority)
            with self.translator.admit(len(texts), call) as reservation:
                return await self.translator.translate(request, call, reservation)

        self.requests.append(Request(texts, beam_size, self.loop.create_task(handle()), is_hurried))
        self.happen()

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        self.happen(data.draw(st.sampled_from(self.requests)).task.cancel)

    @rule(number=st.integers(0, NUM_ENGINES - 1), count=st.integers(1, MAX_STEPS))
    def work(self, number: int, count: int) -> None:
        for _ in range(count):
            self.happen(self.engines[number].step)

    @rule(number=st.integers(0, NUM_ENGINES - 1), is_delayed=st.booleans())
    def die(self, number: int, is_delayed: bool) -> None:
        self.happen(partial(self.engines[number].die, is_delayed=is_delayed))

    @rule(number=st.integers(0, NUM_ENGINES - 1))
    def come_back(self, number: int) -> None:
        self.happen(self.engines[number].come_back)

    @rule()
    def let_time_pass(self) -> None:
        self.now += 2 * SOON_S
        self.happen()

    @rule(is_open=st.booleans())
    def turn_the_door(self, is_open: bool) -> None:
        if is_open:
            self.admission.open()
        else:
            self.admission.close("the server is draining")

    def happen(self, event: Callable[[], object] = lambda: None) -> None:
        """The event, and everything that follows from it without time passing."""

        async def turns() -> None:
            event()
            for _ in range(12):
                await asyncio.sleep(0)

        self.loop.run_until_complete(turns())

    @invariant()
    def every_open_request_holds_a_reservation_and_no_other(self) -> None:
        if not hasattr(self, "admission"):
            return
        self.happen()
        under_way = [request for request in self.requests if not request.task.done()]
        assert self.admission.requests == len(under_way)
        tokens = sum(len(Numbers().encode(text)) for request in under_way for text in request.texts)
        assert self.admission.tokens == tokens
        assert self.pool.queued_tokens <= tokens

    @invariant()
    def rows_keep_to_their_budget_and_jobs_start_once(self) -> None:
        engines = getattr(self, "engines", [])
        started = [job_id for engine in engines for job_id in engine.started_ids]
        assert len(started) == len(set(started))
        assert max((engine.most_rows for engine in engines), default=0) <= MAX_ROWS

    @invariant()
    def ended_requests_ended_well(self) -> None:
        ended = [request for request in self.requests if request.task.done()]
        self.requests = [request for request in self.requests if not request.task.done()]
        for request in ended:
            self.check(request)

    def check(self, request: Request) -> None:
        if request.task.cancelled():
            return
        error = request.task.exception()
        if error is not None:
            assert isinstance(error, Overloaded | Unavailable | DeadlineExceeded), error
            assert request.can_be_late or not isinstance(error, DeadlineExceeded)
            return
        translations = request.task.result().translations
        texts = [translation.hypotheses[0].text for translation in translations]
        assert texts == [alone(text, request.beam_size) for text in request.texts]

    def teardown(self) -> None:
        """With engines that work, everything that is left ends, and nothing is held any more."""
        try:
            if hasattr(self, "admission"):
                self.finish()
                self.loop.run_until_complete(self.pool.close())
        finally:
            self.patched_clock.stop()
            self.executor.shutdown()
            self.loop.close()

    def finish(self) -> None:
        for engine in self.engines:
            self.happen(engine.come_back)
        for _ in range(500):
            if all(request.task.done() for request in self.requests):
                break
            self.work_everywhere()
        assert all(request.task.done() for request in self.requests), "a request was lost"
        self.ended_requests_ended_well()
        self.work_everywhere()  # what was cancelled is still to be told
        assert (self.admission.requests, self.admission.tokens, self.admission.characters) == (0, 0, 0)
        assert (self.pool.queued_jobs, self.pool.running_jobs) == (0, 0)
        assert not self.errors

    def work_everywhere(self) -> None:
        for engine in self.engines:
            self.happen(engine.step)


JobLife.TestCase.settings = settings(
    max_examples=40, stateful_step_count=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
TestJobLife = JobLife.TestCase
