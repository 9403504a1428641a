"""The engine: jobs in, outcomes out, one decoder step at a time.

Each step is schedule -> encode what starts -> decode one token -> collect what ended.  Sentences of one beam size and
similar source length decode together: each run of the graph is as wide as its longest sentence, and a long one must
not slow short ones.  Single-threaded; knows neither processes nor texts.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from service.engine.beam import BeamSearch, Candidates
from service.engine.cpu.kv_cache import EncodedSentences, KeyValueCache
from service.engine.cpu.runner import Runner
from service.engine.job import FailureKind, Job, JobFailure, JobResult, Outcome, StepStats
from service.engine.scheduler import Drop, Plan, Scheduler, SchedulerConfig, source_width
from service.engine.vocabulary import LiveVocabulary

_MAX_IDLE_GROUPS = 2  # whose empty caches are kept for the next sentence

GroupKey = tuple[int, int, bool]  # beam size, width of the source, whether it keeps to its shortlist


@dataclass(frozen=True, slots=True)
class _Encoding:
    """A job's share in a run of the encoder."""

    encoded: EncodedSentences
    index: int
    encode_s: float


@dataclass(slots=True)
class _Live:
    """A running job and where its time went."""

    job: Job
    queue_s: float
    encode_s: float
    decode_started_at: float


@dataclass(slots=True)
class _Group:
    """The live sentences that decode together; entry i of all four is the same sentence."""

    search: BeamSearch
    cache: KeyValueCache
    vocabulary: LiveVocabulary | None = None  # all tokens
    sentences: list[_Live] = field(default_factory=list)

    @property
    def num_rows(self) -> int:
        return len(self.sentences) * self.search.beam_size

    def index(self, job_id: int) -> int:
        return next(index for index, live in enumerate(self.sentences) if live.job.id == job_id)

    def remove(self, index: int, *, is_finite: bool = True) -> None:
        """Free a sentence's rows; the last sentence moves into the hole."""
        self.search.remove(index)
        self.cache.remove(index, is_finite=is_finite)
        if self.vocabulary is not None:
            self.vocabulary.remove(index)
        self.sentences[index] = self.sentences[-1]
        self.sentences.pop()


@dataclass(slots=True)
class _Tally:
    """StepStats in the making."""

    steps: int = 0
    loop_steps: int = 0
    step_rows: list[int] = field(default_factory=list)
    step_decode_s: list[float] = field(default_factory=list)
    step_beam_s: list[float] = field(default_factory=list)
    encode_s: list[float] = field(default_factory=list)
    busy_s: float = 0.0
    encoded_sentences: int = 0
    source_tokens: int = 0
    padded_source_tokens: int = 0
    wasted_steps: int = 0
    non_finite_jobs: int = 0


class EngineLoop:
    """Continuous batching over one runner."""

    def __init__(
        self, runner: Runner, config: SchedulerConfig | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._runner = runner
        self._scheduler = Scheduler(config or SchedulerConfig())
        self._clock = clock
        self._groups: dict[GroupKey, _Group] = {}  # least recently used first
        self._arrived_at: dict[int, float] = {}
        self._encoded: dict[int, _Encoding | Exception] = {}  # of jobs that have no rows yet
        self._tally = _Tally()
        self._was_short = False  # of memory, in this step

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to do until the next `submit`."""
        return not (self._scheduler.num_running or self._scheduler.num_waiting)

    def submit(self, job: Job) -> None:
        """Queue a job; it starts in the next step that has room."""
        self._arrived_at[job.id] = self._clock() if job.submitted_at is None else job.submitted_at
        self._scheduler.add(job)

    def cancel(self, job_id: int) -> None:
        """End a job at the next step, wherever it is by then; the id of one that has ended is no error."""
        self._scheduler.cancel(job_id)

    def step(self) -> list[Outcome]:
        """Drop, start, extend every live hypothesis by one token; the jobs that ended by that."""
        began = self._clock()
        plan = self._scheduler.schedule(began)
        outcomes = self._drop(plan.drops) if plan.drops else []
        outcomes += self._start(plan) if plan.starts else ()
        live = [(key, group) for key, group in self._groups.items() if group.sentences]
        for key, group in live:
            outcomes += self._decode_or_give_up(key, group)
        self._tally.loop_steps += bool(live)
        self._drop_grown_groups()
        self._give_way()
        self._tally.busy_s += self._clock() - began
        return outcomes

    def take_stats(self) -> StepStats:
        """What happened since the last call."""
        tally, self._tally = self._tally, _Tally()
        return StepStats(
            steps=tally.steps,
            loop_steps=tally.loop_steps,
            rows=sum(tally.step_rows),
            step_rows=tuple(tally.step_rows),
            step_decode_s=tuple(tally.step_decode_s),
            step_beam_s=tuple(tally.step_beam_s),
            encode_s=tuple(tally.encode_s),
            busy_s=tally.busy_s,
            encoded_sentences=tally.encoded_sentences,
            source_tokens=tally.source_tokens,
            padded_source_tokens=tally.padded_source_tokens,
            wasted_steps=tally.wasted_steps,
            non_finite_jobs=tally.non_finite_jobs,
            live_rows=self._scheduler.rows,
            waiting_jobs=self._scheduler.num_waiting,
            max_rows=self._scheduler.config.max_rows,
            max_source_tokens=self._scheduler.config.max_source_tokens,
        )

    def _drop(self, drops: Sequence[Drop]) -> list[Outcome]:
        """End these jobs, and where there is no memory for that, all that decode with them."""
        outcomes: list[Outcome] = []
        for drop in drops:  # all of them before any rows: a group that is given up must know whose end is told
            del self._arrived_at[drop.job.id]
            self._encoded.pop(drop.job.id, None)
            reason = "was cancelled" if drop.kind is FailureKind.CANCELLED else "passed its deadline"
            outcomes.append(JobFailure(job_id=drop.job.id, kind=drop.kind, message=f"the sentence {reason}"))
        for drop in drops:
            if drop.was_running:
                outcomes += self._free_rows(drop.job)
        return outcomes

    def _free_rows(self, job: Job) -> Iterable[Outcome]:
        """Of a job that was dropped while it ran."""
        key = group_key(job)
        group = self._groups.get(key)
        if group is None:  # given up for another job of this step
            return []
        try:
            index = group.index(job.id)
            self._tally.wasted_steps += group.search.num_steps(index)
            group.remove(index)
        except MemoryError:
            return self._give_up(key, [])
        return []

    def _start(self, plan: Plan) -> Iterable[Outcome]:
        """Give jobs rows, encoded in company of those that come next; those that cannot be encoded fail."""
        if any(job.id not in self._encoded for job in plan.starts):
            self._encode_missing(plan)
        outcomes: list[Outcome] = []
        together: dict[tuple[GroupKey, int], list[tuple[Job, _Encoding]]] = {}  # by group and run of the encoder
        for job in plan.starts:
            encoding = self._encoded.pop(job.id)
            if isinstance(encoding, Exception):
                outcomes.append(self._fail_encoding(job, encoding))
            else:
                together.setdefault((group_key(job), id(encoding.encoded)), []).append((job, encoding))
        for (key, _), started in together.items():
            try:
                self._admit(self._group(key), started)
            except MemoryError:
                outcomes += self._give_up(key, [job for job, _ in started])
        return outcomes

    def _encode_missing(self, plan: Plan) -> None:
        missing = [job for job in (*plan.starts, *plan.ahead) if job.id not in self._encoded]
        for jobs in encoder_batches(missing, self._scheduler.config.encoder_run_tokens):
            self._encode(jobs)
        for job in plan.ahead:  # those that found no memory are tried again when they start: it may be back by then
            if isinstance(self._encoded[job.id], MemoryError):
                del self._encoded[job.id]

    def _encode(self, jobs: Sequence[Job]) -> None:
        """Keep what the encoder makes of these jobs, or its error; a job that is the cause of one has it alone."""
        began = self._clock()
        try:
            encoded = self._runner.encode([job.source_ids for job in jobs])
        except Exception as error:  # noqa: BLE001 - whatever the runtime raises, only its sentence may fail
            if isinstance(error, MemoryError):
                self._was_short = True
            if len(jobs) == 1:
                self._encoded[jobs[0].id] = error
            else:
                for job in jobs:
                    self._encode([job])
            return
        encode_s = self._clock() - began
        self._count_encoded(encoded, encode_s)
        for index, job in enumerate(jobs):
            self._encoded[job.id] = _Encoding(encoded, index, encode_s)

    def _fail_encoding(self, job: Job, error: Exception) -> JobFailure:
        self._end(job.id)
        if isinstance(error, MemoryError):
            return _exhausted(job)
        message = f"the encoder failed: {type(error).__name__}"
        return JobFailure(job_id=job.id, kind=FailureKind.INTERNAL, message=message)

    def _admit(self, group: _Group, started: Sequence[tuple[Job, _Encoding]]) -> None:
        """Give rows to jobs that one run of the encoder has encoded."""
        group.cache.append(started[0][1].encoded, [encoding.index for _, encoding in started])
        if group.vocabulary is not None:
            group.vocabulary.append([job.source_ids for job, _ in started])
        now = self._clock()
        for job, encoding in started:
            group.search.add(job.params)
            queue_s = now - self._arrived_at[job.id] - encoding.encode_s
            group.sentences.append(_Live(job, queue_s, encoding.encode_s, now))

    def _group(self, key: GroupKey) -> _Group:
        """The group of this key, now the most recently used; the caches of long unused ones are given up."""
        group = self._groups.pop(key, None)
        if group is None:
            beam_size, _, use_shortlist = key
            vocabulary = self._runner.live_vocabulary() if use_shortlist else None
            group = _Group(BeamSearch(beam_size), self._runner.new_cache(beam_size), vocabulary)
        self._groups[key] = group
        idle = [other for other, members in self._groups.items() if not members.sentences and other != key]
        for other in idle[:-_MAX_IDLE_GROUPS]:
            del self._groups[other]
        return group

    def _drop_grown_groups(self) -> None:
        """Give memory back that only a former load needed; the runner's bindings to it go with the cache."""
        for key, group in list(self._groups.items()):
            if not group.sentences and group.cache.has_grown:
                del self._groups[key]

    def _give_way(self) -> None:
        """Run less at once for a while: once for a moment without memory, however many sentences it met."""
        if self._was_short:
            self._scheduler.halve(self._clock())
            self._was_short = False

    def _decode(self, group: _Group, outcomes: list[Outcome]) -> None:
        """One token for every hypothesis of a group; the outcomes get what ends by that, one by one."""
        began = self._clock()
        search, cache = group.search, group.cache
        cache.prepare()
        prepared = self._clock()
        candidates = self._runner.decode_step(search.tokens, search.scores, cache, group.vocabulary)
        decode_s = self._clock() - prepared
        self._count_step(group, decode_s)
        self._advance(group, candidates, outcomes)
        self._tally.step_beam_s.append(self._clock() - began - decode_s)

    def _decode_or_give_up(self, key: GroupKey, group: _Group) -> list[Outcome]:
        outcomes: list[Outcome] = []  # outlives an error: the group no longer has the jobs that ended before it
        try:
            self._decode(group, outcomes)
        except MemoryError:
            outcomes += self._give_up(key, [])
        return outcomes

    def _give_up(self, key: GroupKey, starting: Sequence[Job]) -> Iterable[Outcome]:
        """There is too little memory: a group's sentences fail, and less runs at once for a while."""
        group = self._groups.pop(key, None)  # None: there was not enough for an empty one
        self._was_short = True
        # Those whose arrival is forgotten were dropped in this step, and that is told already.
        running = [live.job for live in group.sentences if live.job.id in self._arrived_at] if group else []
        jobs = {job.id: job for job in (*running, *starting)}  # some may be both, where memory ended between two steps
        for job_id in jobs:
            self._end(job_id)
        return [_exhausted(job) for job in jobs.values()]

    def _advance(self, group: _Group, candidates: Candidates, outcomes: list[Outcome]) -> None:
        """Choose the tokens and bring the caches after them; the sentences that end by that."""
        progress = group.search.advance(candidates)
        group.cache.advance(progress.parents)
        if not (progress.finished or progress.non_finite):
            return
        # The highest number first: a sentence that moves into a hole then never has an outcome of its own to come.
        finished, non_finite = set(progress.finished), set(progress.non_finite)
        for index in sorted(finished | non_finite, reverse=True):
            is_finite = index in finished
            outcome = self._result(group, index) if is_finite else _non_finite(group.sentences[index].job)
            group.remove(index, is_finite=is_finite)
            self._end(outcome.job_id)
            self._tally.non_finite_jobs += not is_finite
            outcomes.append(outcome)

    def _result(self, group: _Group, index: int) -> JobResult:
        live = group.sentences[index]
        return JobResult(
            job_id=live.job.id,
            hypotheses=group.search.hypotheses(index),
            queue_s=live.queue_s,
            encode_s=live.encode_s,
            decode_s=self._clock() - live.decode_started_at,
            num_steps=group.search.num_steps(index),
        )

    def _end(self, job_id: int) -> None:
        self._scheduler.release(job_id)
        del self._arrived_at[job_id]

    def _count_step(self, group: _Group, decode_s: float) -> None:
        self._tally.steps += 1
        self._tally.step_rows.append(group.num_rows)
        self._tally.step_decode_s.append(decode_s)

    def _count_encoded(self, encoded: EncodedSentences, encode_s: float) -> None:
        self._tally.encode_s.append(encode_s)
        self._tally.encoded_sentences += len(encoded.lengths)
        self._tally.source_tokens += int(np.sum(encoded.lengths))
        self._tally.padded_source_tokens += len(encoded.lengths) * encoded.num_columns


def _exhausted(job: Job) -> JobFailure:
    message = "there is too little memory for this batch; the next ones are smaller"
    return JobFailure(job_id=job.id, kind=FailureKind.OUT_OF_MEMORY, message=message)


def _non_finite(job: Job) -> JobFailure:
    message = "the model produced non-finite scores for this sentence"
    return JobFailure(job_id=job.id, kind=FailureKind.NON_FINITE, message=message)


def group_key(job: Job) -> GroupKey:
    """Which sentences a job decodes with."""
    return job.params.beam_size, source_width(len(job.source_ids)), job.params.use_shortlist


def encoder_batches(jobs: Sequence[Job], max_tokens: int) -> Iterable[Sequence[Job]]:
    """Jobs in runs of the encoder: of similar length, and no more tokens than that, padding included."""
    batch: list[Job] = []
    for job in sorted(jobs, key=lambda job: len(job.source_ids)):
        if batch and (len(batch) + 1) * len(job.source_ids) > max_tokens:
            yield batch
            batch = []
        batch.append(job)
    if batch:
        yield batch
