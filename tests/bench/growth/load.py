"""Steady loads on an engine's loop in this process, and what they cost in CPU time, which other work does not lengthen.

Sentences are cut from our own text to a wanted length and go on to a wanted number of steps, so that a load is the same
whatever the model would have said.
"""

import gc
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count, cycle
from pathlib import Path
from statistics import median

import numpy as np

from model.config import EOS_ID, UNK_ID
from model.tokenizer import Tokenizer
from service.engine.beam import Candidates
from service.engine.cpu.runner import CpuRunner, CpuState
from service.engine.job import Job, JobResult, SearchParams, StepStats
from service.engine.loop import EngineLoop
from service.engine.runner import Floats, Ints, Runner
from service.engine.scheduler import SchedulerConfig
from tests.fakes.own_text import own_sentences

USUAL_STEPS = tuple(12 + 7 * number % 25 for number in range(25))  # 12 to 36 in no order: 24 on average
WARM_UP_STEPS = 48  # until sentences of these lengths come and go evenly, and caches have grown
UNBOUNDED = SchedulerConfig(max_rows=1 << 16, max_source_tokens=1 << 24)  # a load keeps to its own number of sentences

_job_ids = count()


class EndlessRunner(CpuRunner):
    """The model, but no sentence ends before its limit."""

    def decode_step(self, tokens: Ints, scores: Floats, state: CpuState) -> Candidates:
        candidates = super().decode_step(tokens, scores, state)
        return replace(candidates, tokens=np.where(candidates.tokens == EOS_ID, UNK_ID, candidates.tokens))


class Text:
    """Our own sentences, one behind the other, as token ids without an end."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        sentences = own_sentences(400)
        self._ids = [token for sentence in sentences for token in tokenizer.encode(sentence)[:-1]]
        self._offset = 0

    def cut(self, num_tokens: int) -> tuple[int, ...]:
        """The next piece of this length, end-of-sentence included."""
        begin = self._offset % (len(self._ids) - num_tokens)
        self._offset += 7 * num_tokens + 3  # another beginning each time, for a long while
        return (*self._ids[begin : begin + num_tokens - 1], EOS_ID)

    def jobs(
        self,
        *,
        source_tokens: int,
        steps: Iterable[int] = USUAL_STEPS,
        beam_size: int = 4,
        deadline_s: float | None = None,
    ) -> Iterator[Job]:
        """An endless stream of sentences of one length.

        Args:
            steps: how long they are decoded, again and again; different numbers, so that they do not all end at once.
            deadline_s: seconds from now, and a millisecond more for each; None for none.
        """
        for number, max_target_tokens in enumerate(cycle(steps)):
            deadline = None if deadline_s is None else time.process_time() + deadline_s + 1e-3 * number
            params = SearchParams(beam_size=beam_size, max_target_tokens=max_target_tokens)
            yield Job(id=next(_job_ids), source_ids=self.cut(source_tokens), params=params, deadline=deadline)


@dataclass(frozen=True, slots=True)
class Cost:
    """What a load took, CPU time."""

    step_ms: float  # a step of the loop
    row_us: float  # a live hypothesis in a step of the loop, everything included: a row-step
    graph_us: float  # of that: the decoder graph
    search_us: float  # of that: search and caches
    source_token_us: float  # the encoder, per source token

    @classmethod
    def of(cls, stats: StepStats, num_steps: int) -> "Cost":
        """From what the loop reports after so many steps."""
        per_row = 1e6 / stats.rows
        return cls(
            step_ms=1e3 * stats.busy_s / num_steps,
            row_us=per_row * stats.busy_s,
            graph_us=per_row * sum(stats.step_decode_s),
            search_us=per_row * sum(stats.step_beam_s),
            source_token_us=1e6 * sum(stats.encode_s) / max(1, stats.source_tokens),
        )


class Load:
    """A loop that always holds the same number of sentences of each stream: whenever one ends, its next one comes."""

    def __init__(
        self,
        runner: Runner,
        *streams: tuple[Iterator[Job], int],
        config: SchedulerConfig = UNBOUNDED,
        num_cancelled: int = 0,
    ) -> None:
        """Put streams on a new loop, each with the number of its sentences that are held at a time.

        Args:
            num_cancelled: of the oldest sentences are given up at the beginning, without others in their place.
        """
        self.loop = EngineLoop(runner, config, clock=time.process_time)
        self._streams = streams
        self._num_cancelled = num_cancelled
        self._stream_of: dict[int, Iterator[Job]] = {}
        self.submit_us = 0.0  # per sentence, of those at the beginning

    def fill(self) -> None:
        """Submit what is to be held, and take the first steps, which encode."""
        began = time.process_time()
        for jobs, num_held in self._streams:
            for _ in range(num_held):
                self._submit(jobs)
        self.submit_us = 1e6 * (time.process_time() - began) / len(self._stream_of)
        self.step()
        for job_id in list(self._stream_of)[: self._num_cancelled]:
            self.loop.cancel(job_id)
            del self._stream_of[job_id]
        self.loop.step()

    def step(self) -> None:
        """One step of the loop."""
        for outcome in self.loop.step():
            if not isinstance(outcome, JobResult):
                raise TypeError(f"sentence {outcome.job_id} failed: {outcome.message}")
            self._submit(self._stream_of.pop(outcome.job_id))

    def run(self, num_steps: int) -> StepStats:
        """So many steps, and what the loop reports of them."""
        self.loop.take_stats()
        for _ in range(num_steps):
            self.step()
        return self.loop.take_stats()

    def turn(self, seconds: float) -> Cost:
        """What a step costs, measured for so long."""
        self.loop.take_stats()
        began, num_steps = time.process_time(), 0
        while time.process_time() - began < seconds:
            self.step()
            num_steps += 1
        return Cost.of(self.loop.take_stats(), num_steps)

    def _submit(self, jobs: Iterator[Job]) -> None:
        job = next(jobs)
        self._stream_of[job.id] = jobs
        self.loop.submit(job)


def take_turns(loads: Sequence[Load], seconds: float, num_turns: int) -> list[list[Cost]]:
    """What each load costs in each of its turns, which alternate, so that a slow moment meets all loads."""
    for load in loads:
        load.fill()
        load.run(WARM_UP_STEPS)
    rounds = [[load.turn(seconds) for load in loads] for _ in range(num_turns)]
    return [list(turns) for turns in zip(*rounds, strict=True)]


def middle(turns: Sequence[Cost]) -> Cost:
    """The median of each figure."""
    return Cost(**{name: median(getattr(turn, name) for turn in turns) for name in Cost.__slots__})


def slowdown(turns: Sequence[Cost], without: Sequence[Cost]) -> float:
    """How much longer a step took than without something, relative, turn by turn; the median."""
    return median(turn.step_ms / other.step_ms for turn, other in zip(turns, without, strict=True)) - 1


def resident_mb() -> float:
    """Memory of this process that is in RAM."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
