"""The engine: jobs in, outcomes out.

Each step is schedule -> encode what starts -> decode -> collect what ended.  To decode is to extend each hypothesis by
one token; a runner that can (`AheadRunner`) extends those of plain sentences by several before anyone else has a turn.
A device that computes by itself (`LaunchingRunner`) is left with a step of each lane under way: what it has found is
collected when the lane has its next turn, and meanwhile the host sends outcomes, has what comes next encoded, and has
the other lane's turn.
Sentences of one beam size decode together, and of similar source length where each run of a graph is as wide as its
longest sentence: a long one must not slow short ones.  A translation that is only scored ends where it starts.
Single-threaded; knows neither processes nor texts.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, NamedTuple

from model.bundle import BundleError
from service.engine.beam_search import BeamSearch, may_repeat, num_candidates
from service.engine.beams import StepOutcome
from service.engine.runner import FULL_LANE, AheadRunner, DecoderState, LaunchingRunner, RecordingRunner, Runner
from service.engine.scheduler import Drop, Scheduler, encoder_batches, scorer_batches
from service.engine.wire import (
    FailureKind,
    FinishReason,
    Hypothesis,
    Job,
    JobFailure,
    JobResult,
    Outcome,
    SchedulerConfig,
    StepStats,
    TokenScores,
)

# Steps of plain sentences that the runner may take by itself: so long at most do new sentences and cancellations wait.
_AHEAD_S = 0.002
_MAX_IDLE_GROUPS = 2  # of a lane, whose empty states are kept for the next sentence

_MESSAGES = {
    FailureKind.CANCELLED: "the sentence was cancelled",
    FailureKind.DEADLINE: "the sentence passed its deadline",
    FailureKind.NON_FINITE: "the model produced non-finite scores for this sentence",
    FailureKind.OUT_OF_MEMORY: "there is too little memory for this batch; the next ones are smaller",
}


class GroupKey(NamedTuple):
    """What sentences that decode together have in common."""

    lane: int
    beam_size: int
    width: int  # of the source; 0 where none is padded
    use_shortlist: bool
    num_candidates: int


class _Encoding(NamedTuple):
    """A job's share in a run of the encoder."""

    batch: Any  # as the runner made it
    row: int
    encode_s: float


@dataclass(slots=True)
class _RunningSentence:
    """A running job, where its time went, and what it has found; the entry of each of its searches."""

    job: Job
    queue_s: float
    encode_s: float
    decode_started_at: float
    num_searches: int = 1  # that are not finished: more than one where alternatives are searched for
    num_steps: int = 0  # of the longest search
    hypotheses: tuple[Hypothesis, ...] = ()


@dataclass(slots=True)
class _Group:
    """The live sentences that decode together; entry i of all three is the same sentence."""

    search: BeamSearch
    state: DecoderState
    sentences: list[_RunningSentence] = field(default_factory=list)

    def remove(self, indices: Sequence[int], non_finite: Sequence[int] = ()) -> None:
        """Free sentences' rows, the highest number first; each time, the last sentence moves into the hole."""
        self.search.remove(*indices)
        for index in indices:
            self.state.remove(index, is_finite=index not in non_finite)
            self.sentences[index] = self.sentences[-1]
            self.sentences.pop()


class _UnderWay(NamedTuple):
    """A decoder step that a device computes."""

    key: GroupKey
    group: _Group
    launched: Any  # as the runner made it
    began: float


class EngineLoop:
    """Continuous batching over one runner."""

    def __init__(
        self, runner: Runner, config: SchedulerConfig | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._runner = runner
        self._ahead_runner = runner if isinstance(runner, AheadRunner) else None
        self._launching_runner = runner if isinstance(runner, LaunchingRunner) else None
        self._num_lanes = 1 if self._launching_runner is None else self._launching_runner.num_lanes
        self._recording_runner = runner if isinstance(runner, RecordingRunner) else None
        self._step_s = math.inf  # that the last decoder step took
        self._scheduler = Scheduler(config or SchedulerConfig())
        self._clock = clock
        self._groups: dict[GroupKey, _Group] = {}  # least recently used first
        self._under_way: dict[int, _UnderWay] = {}  # by lane, in the order in which they were launched
        self._arrived_at: dict[int, float] = {}
        self._lanes: dict[int, int] = {}  # of running jobs
        self._encoded: dict[int, _Encoding | Exception] = {}  # of jobs that have no rows yet
        self._stats = StepStats()
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
        """Drop, start, extend the live hypotheses, of a lane if there are some; return the outcomes of what ended."""
        began, outcomes = self._clock(), list[Outcome]()
        turn = next(iter(self._under_way), 0)
        self._collect(turn, outcomes)
        # A device that has something to do encodes sentences behind that, unless the next one is too long for it.
        is_busy = self._launching_runner is not None and self._scheduler.num_running > 0
        encoded = self._encoded if is_busy and self._scheduler.ahead() else None
        may_start = self._next_lane(self._sizes()) not in self._under_way
        plan = self._scheduler.schedule(began, may_start=may_start, encoded=encoded)
        if plan.drops:
            outcomes += self._drop(plan.drops)
        if plan.starts:
            outcomes += self._start(plan.starts)
        live = [(key, group) for key, group in self._groups.items() if group.sentences]
        free = [(key, group) for key, group in live if key.lane not in self._under_way]
        num_steps = max([self._decode(key, group, outcomes) for key, group in free], default=0)
        if self._under_way and self._scheduler.num_waiting:  # while the device computes
            self._encode_next()
        # Memory that only a former load needed is given back.
        for key in [key for key, group in self._groups.items() if not group.sentences and group.state.has_grown]:
            del self._groups[key]
        if self._was_short:  # once for a moment without memory, however many sentences it met
            self._scheduler.halve(self._clock())
            self._was_short = False
        if turn == min([key.lane for key, _ in live], default=turn):  # lanes take turns
            self._stats.loop_steps += num_steps
        self._stats.busy_s += self._clock() - began
        return outcomes

    def take_stats(self) -> StepStats:
        """Return what happened since the last call."""
        stats, self._stats = self._stats, StepStats()
        if self._recording_runner is not None:
            stats.unrecorded_steps = self._recording_runner.take_unrecorded()
        stats.live_rows = self._scheduler.rows
        stats.waiting_jobs = self._scheduler.num_waiting
        stats.max_rows = self._scheduler.config.max_rows
        stats.max_source_tokens = self._scheduler.config.max_source_tokens
        return stats

    def _drop(self, drops: Sequence[Drop]) -> list[Outcome]:
        """End these jobs, and where there is no memory for that, all that decode with them."""
        outcomes: list[Outcome] = []
        for drop in drops:  # all outcomes before any rows: a group that is given up must know who has one
            del self._arrived_at[drop.job.id]
            self._encoded.pop(drop.job.id, None)
            outcomes.append(_failure(drop.job, drop.kind))
        for drop in drops:
            key = self._key(drop.job, self._lanes.pop(drop.job.id, 0))
            if key.lane in self._under_way:
                self._collect(key.lane, outcomes)
            group = self._groups.get(key) if drop.was_running else None
            if group is None:  # waited, or its group was given up for another job of this step
                continue
            try:
                searches = [n for n, each in enumerate(group.sentences) if each.job.id == drop.job.id]
                self._stats.wasted_steps += sum(map(group.search.num_steps, searches))
                group.remove(searches[::-1])
            except MemoryError:
                outcomes += self._give_up(key)
        return outcomes

    def _start(self, starts: Sequence[Job]) -> list[Outcome]:
        """Start jobs; the encoder runs them with the jobs that come next.  A job that cannot be encoded fails."""
        if any(job.id not in self._encoded for job in starts):
            self._encode_next(starts)
        outcomes: list[Outcome] = []
        scored: list[tuple[Job, _Encoding]] = []
        together: dict[tuple[GroupKey, int], list[tuple[Job, _Encoding]]] = {}  # by group and run of the encoder
        sizes = {lane: size for lane, size in self._sizes().items() if lane not in self._under_way}
        for job in starts:
            encoding = self._encoded.pop(job.id)
            if not isinstance(encoding, _Encoding):
                self._end(job.id)
                outcomes.append(_graph_failure(job, "encoder", encoding))
            elif job.scored_ids is not None:
                scored.append((job, encoding))
            else:
                lane = self._lanes[job.id] = self._next_lane(sizes)
                sizes[lane] += job.params.num_searches
                together.setdefault((self._key(job, lane), id(encoding.batch)), []).append((job, encoding))
        for batch in scorer_batches(scored, self._scheduler.config.encoder_run_tokens):
            outcomes += self._score(batch)
        for (key, _), started in together.items():
            try:
                group, now = self._group(key), self._clock()
                indices = [encoding.row for job, encoding in started for _ in range(job.params.num_searches)]
                group.state.append(started[0][1].batch, indices)
                for job, encoding in started:
                    queue_s = now - self._arrived_at[job.id] - encoding.encode_s
                    num_searches = job.params.num_searches
                    sentence = _RunningSentence(job, queue_s, encoding.encode_s, now, num_searches)
                    group.sentences += [sentence] * num_searches
                    _begin(group.search, job)
            except MemoryError:
                outcomes += self._give_up(key, [job for job, _ in started])
        return outcomes

    def _encode_next(self, starts: Sequence[Job] = ()) -> None:
        """Encode jobs that start now, and those that come next."""
        ahead = self._scheduler.ahead()
        missing = [job for job in (*starts, *ahead) if job.id not in self._encoded]
        for jobs in encoder_batches(missing, self._scheduler.config.encoder_run_tokens):
            self._encode(jobs)
        for job in ahead:  # jobs without memory are tried again when they start: it may be back by then
            if isinstance(self._encoded[job.id], MemoryError):
                del self._encoded[job.id]

    def _encode(self, jobs: Sequence[Job]) -> None:
        """Keep what the encoder returns for these jobs, or its error; where it fails, each job is tried alone."""
        began = self._clock()
        try:
            batch = self._runner.encode([job.source_ids for job in jobs])
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
        for row, job in enumerate(jobs):
            self._encoded[job.id] = _Encoding(batch, row, encode_s)
        self._stats.encode_s.append(encode_s)
        self._stats.encoded_sentences += len(jobs)
        self._stats.source_tokens += sum(len(job.source_ids) for job in jobs)
        self._stats.padded_source_tokens += len(jobs) * batch.num_columns

    def _score(self, started: Sequence[tuple[Job, _Encoding]]) -> list[Outcome]:
        """Score the given translations of these jobs, which ends them; where that fails, each is tried alone."""
        began = self._clock()
        try:
            encoded = [(encoding.batch, encoding.row) for _, encoding in started]
            found = self._runner.score(encoded, [job.scored_ids or () for job, _ in started])
            for index, (job, _) in enumerate(started):
                if job.shows_heads:
                    heads = self._runner.head_weights(job.source_ids, job.scored_ids or ())
                    found[index] = found[index]._replace(heads=heads)
        except Exception as error:  # noqa: BLE001 - whatever the runtime raises, only its sentence may fail
            self._was_short = self._was_short or isinstance(error, MemoryError)
            if len(started) > 1:
                return [outcome for each in started for outcome in self._score([each])]
            self._end(started[0][0].id)
            return [_graph_failure(started[0][0], "scorer", error)]
        score_s = self._clock() - began
        self._stats.score_s.append(score_s)
        outcomes: list[Outcome] = []
        for (job, encoding), scores in zip(started, found, strict=True):
            if all(map(math.isfinite, scores.log_probs)):
                hypotheses = (_scored_hypothesis(job, scores),)
                queue_s = began - self._arrived_at[job.id] - encoding.encode_s
                outcomes.append(JobResult(job.id, hypotheses, queue_s, encoding.encode_s, score_s, 1, scores))
            else:
                self._stats.non_finite_jobs += 1
                outcomes.append(_failure(job, FailureKind.NON_FINITE))
            self._end(job.id)
        return outcomes

    def _sizes(self) -> dict[int, int]:
        """Return how many sentences each lane has."""
        sizes = dict.fromkeys(range(self._num_lanes), 0)
        for key, group in self._groups.items():
            sizes[key.lane] += len(group.sentences)
        return sizes

    @staticmethod
    def _next_lane(sizes: Mapping[int, int]) -> int:
        """Return the lane that gets the next sentence: the first one until it is full, then that with the fewest."""
        first = next(iter(sizes))
        return first if sizes[first] < FULL_LANE else min(sizes, key=sizes.__getitem__)

    def _key(self, job: Job, lane: int) -> GroupKey:
        """Return the key of the group of a lane that a job decodes with."""
        params, width = job.params, 0 if self._ahead_runner is not None else job.source_width
        candidates = num_candidates(params.beam_size, params.sampling_top_k)
        return GroupKey(lane, params.beam_size, width, params.use_shortlist, candidates)

    def _group(self, key: GroupKey) -> _Group:
        """Return the group of this key, now the most recently used; long unused ones are given up."""
        group = self._groups.pop(key, None)
        if group is None:
            beam_size, use_shortlist = key.beam_size, key.use_shortlist
            state = (
                self._runner.new_state(beam_size, use_shortlist=use_shortlist)
                if self._launching_runner is None
                else self._launching_runner.new_state(beam_size, use_shortlist=use_shortlist, lane=key.lane)
            )
            group = _Group(BeamSearch(beam_size, self._runner.profile), state)
        self._groups[key] = group
        idle = [other for other, members in self._groups.items() if not members.sentences and other != key]
        for other in idle[: -_MAX_IDLE_GROUPS * self._num_lanes]:
            del self._groups[other]
        return group

    def _decode(self, key: GroupKey, group: _Group, outcomes: list[Outcome]) -> int:
        """Extend every hypothesis of a group, or have that begun; return by how many tokens.

        What ends goes to `outcomes` even if an error follows.
        """
        self._collect(key.lane, outcomes)  # of another group, which had its turn before this one
        began, num_steps = self._clock(), 1
        search, state = group.search, group.state
        try:
            if self._launching_runner is not None:
                launched = self._launching_runner.launch(
                    search.tokens, search.scores, state, search.edits(), num_candidates=key.num_candidates
                )
                self._under_way[key.lane] = _UnderWay(key, group, launched, began)
                return num_steps
            most = min(search.num_plain_steps, 1 + int(_AHEAD_S / max(self._step_s, 1e-6)))
            if self._ahead_runner is not None and most > 0:
                candidates, step, num_steps = self._ahead_runner.decode_ahead(
                    search.beams, state, search.end, most, num_candidates=key.num_candidates
                )
                decode_s = self._clock() - began
                search.settle(step, candidates)
            else:
                candidates = self._runner.decode_step(
                    search.tokens, search.scores, state, search.edits(), num_candidates=key.num_candidates
                )
                decode_s = self._clock() - began
                step = search.advance(candidates)
            self._go_on(group, step, num_steps, began, decode_s, outcomes)
        except MemoryError:
            outcomes += self._give_up(key)
        return num_steps

    def _collect(self, lane: int, outcomes: list[Outcome]) -> None:
        """Take what the step that is under way in a lane has found, if there is one."""
        if self._launching_runner is None or (under_way := self._under_way.pop(lane, None)) is None:
            return
        key, group, launched, began = under_way
        try:
            candidates = self._launching_runner.collect(launched)
            decode_s = self._clock() - began
            self._go_on(group, group.search.advance(candidates), 1, began, decode_s, outcomes)
        except MemoryError:
            outcomes += self._give_up(key)

    def _go_on(
        self, group: _Group, step: StepOutcome, num_steps: int, began: float, decode_s: float, outcomes: list[Outcome]
    ) -> None:
        """Go on from the extended hypotheses of a group, and end the sentences that have ended."""
        search = group.search
        group.state.advance(step.parents)
        num_rows = len(group.sentences) * search.beam_size
        self._step_s = decode_s / num_steps
        self._stats.steps += num_steps
        self._stats.rows += num_steps * num_rows
        self._stats.step_rows += num_steps * [num_rows]
        self._stats.step_decode_s += num_steps * [self._step_s]
        now = self._clock()
        ended = sorted((*step.finished, *step.non_finite), reverse=True)
        for index in ended:
            sentence = group.sentences[index]
            sentence.num_searches -= 1
            sentence.num_steps = max(sentence.num_steps, search.num_steps(index))
            if index not in step.non_finite:
                sentence.hypotheses += search.hypotheses(index)
            if not sentence.num_searches and sentence.job.id in self._arrived_at:  # else it was just dropped
                self._end(sentence.job.id)
                self._stats.non_finite_jobs += not sentence.hypotheses
                outcomes.append(_outcome(sentence, now - sentence.decode_started_at))
        group.remove(ended, step.non_finite)
        self._stats.step_beam_s.append(self._clock() - began - decode_s)

    def _give_up(self, key: GroupKey, starting: Sequence[Job] = ()) -> list[Outcome]:
        """Fail a group's sentences for want of memory, and run less at once for a while."""
        group = self._groups.pop(key, None)  # None: there was not enough for an empty one
        self._was_short = True
        # Jobs whose arrival is forgotten were dropped in this step and have their outcome.
        running = [each.job for each in group.sentences if each.job.id in self._arrived_at] if group else []
        jobs = {job.id: job for job in (*running, *starting)}  # some may be both, where memory ended between two steps
        for job_id in jobs:
            self._end(job_id)
        return [_failure(job, FailureKind.OUT_OF_MEMORY) for job in jobs.values()]

    def _end(self, job_id: int) -> None:
        self._scheduler.release(job_id)
        self._lanes.pop(job_id, None)
        del self._arrived_at[job_id]


def _outcome(sentence: _RunningSentence, decode_s: float) -> Outcome:
    """Return what a job has found, best first; an alternative of which the model made nothing is left out."""
    if not sentence.hypotheses:
        return _failure(sentence.job, FailureKind.NON_FINITE)
    params = sentence.job.params
    return JobResult(
        job_id=sentence.job.id,
        hypotheses=tuple(sorted(sentence.hypotheses, key=attrgetter("score"), reverse=True)),
        queue_s=sentence.queue_s,
        encode_s=sentence.encode_s,
        decode_s=decode_s,
        num_steps=sentence.num_steps,
        beam_size=params.beam_size,
        row_steps=params.num_rows * sentence.num_steps,
    )


def _failure(job: Job, kind: FailureKind, message: str = "") -> JobFailure:
    return JobFailure(job_id=job.id, kind=kind, message=message or _MESSAGES[kind])


def _graph_failure(job: Job, graph: str, error: Exception) -> JobFailure:
    """Return the failure of a job whose run of a graph raised this error."""
    if isinstance(error, MemoryError):
        return _failure(job, FailureKind.OUT_OF_MEMORY)
    message = str(error) if isinstance(error, BundleError) else f"the {graph} failed: {type(error).__name__}"
    return _failure(job, FailureKind.INTERNAL, message)


def _begin(search: BeamSearch, job: Job) -> None:
    """Start a job's search, or those of its alternatives."""
    params = job.params
    if params.stop_repetition and may_repeat(job.source_ids):
        params = params._replace(stop_repetition=False)
    if not params.return_alternatives:
        search.add(params, job.prefix_ids)
        return
    params = params._replace(num_hypotheses=1)
    for alternative in range(job.params.num_searches):
        search.add(params, job.prefix_ids, alternative)


def _scored_hypothesis(job: Job, scores: TokenScores) -> Hypothesis:
    """Return the given translation as a search would have returned it."""
    score = math.fsum(scores.log_probs) / len(scores.log_probs) ** job.params.length_penalty
    return Hypothesis(job.scored_ids or (), score, FinishReason.END_OF_SENTENCE)
