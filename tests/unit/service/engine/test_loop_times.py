"""What the engine says of its time and its work: of each job, and of all since it was last asked."""

from collections.abc import Sequence

import numpy as np

from model.config import EOS_ID
from service.engine.cpu.cache import CpuEncoded
from service.engine.job import Job, JobResult, SearchParams, StepStats
from service.engine.scheduler import SchedulerConfig
from tests.fakes.clock import Clock
from tests.fakes.fake_runner import FakeRunner, Script, random_script
from tests.fakes.scripted_engine import engine, job, never_ending, run


class Ticking(FakeRunner):
    """Every run of the encoder takes two seconds, every decoder step of one sentence half a second."""

    def __init__(self, clock: Clock, script: Script = random_script) -> None:
        def ticking(source: tuple[int, ...], prefix: tuple[int, ...]) -> np.ndarray:
            clock.now += 0.25  # for each of two hypotheses
            return script(source, prefix)

        super().__init__(ticking)
        self._clock = clock

    def encode(self, sources: Sequence[Sequence[int]]) -> CpuEncoded:
        self._clock.now += 2.0
        return super().encode(sources)


def test_times_of_a_job_begin_with_its_submission():
    clock = Clock(100.0)
    loop = engine(Ticking(clock), clock)
    early = Job(id=0, source_ids=(5, EOS_ID), params=SearchParams(beam_size=2, max_target_tokens=3), submitted_at=90.0)
    loop.submit(early)
    clock.now = 104.0

    result = run(loop)[0]

    assert isinstance(result, JobResult)
    assert (result.queue_s, result.encode_s, result.decode_s) == (14.0, 2.0, 0.5 * result.num_steps)
    stats = loop.take_stats()
    assert stats.encode_s == [2.0]
    assert stats.step_decode_s == [0.5] * result.num_steps
    assert stats.step_beam_s == [0.0] * result.num_steps
    assert stats.busy_s == 2.0 + 0.5 * result.num_steps


def test_job_without_a_time_of_submission_waits_from_its_arrival():
    clock = Clock(100.0)
    loop = engine(clock=clock)
    loop.submit(job(0))
    clock.now += 3.0

    result = run(loop)[0]

    assert isinstance(result, JobResult)
    assert result.queue_s == 3.0


def test_time_between_the_encoder_and_the_first_rows_is_time_in_the_queue():
    clock = Clock(100.0)
    loop = engine(Ticking(clock, never_ending), clock, max_rows=2)
    outcomes = run(loop, [job(0, max_target_tokens=4), job(1, max_target_tokens=3)])

    times = [(each.queue_s, each.encode_s, each.decode_s) for each in outcomes.values() if isinstance(each, JobResult)]
    assert times == [(0.0, 2.0, 2.0), (2.0, 2.0, 1.5)]
    assert clock.now == 100.0 + 2.0 + 2.0 + 1.5


def test_statistics_count_what_happened_since_they_were_last_taken():
    loop = engine(max_rows=6)
    for each in (job(0, [5, 6, 7, 8, 9]), job(1, [5]), job(2), job(3)):
        loop.submit(each)
    loop.step()
    loop.step()
    loop.cancel(0)
    loop.step()

    stats = loop.take_stats()

    assert stats.steps == 3
    assert stats.step_rows == [6, 6, 6]
    assert stats.rows == 18
    assert stats.encoded_sentences == 4
    assert stats.source_tokens == 6 + 2 + 4 + 4
    assert stats.padded_source_tokens == 4 * 6  # the fourth was encoded ahead
    assert stats.padding_ratio == 1 - 16 / 24
    assert stats.wasted_steps == 2
    assert (stats.live_rows, stats.waiting_jobs) == (6, 0)
    assert loop.take_stats() == StepStats(
        live_rows=6, max_rows=6, max_source_tokens=SchedulerConfig().max_source_tokens
    )


def test_padding_ratio_of_no_encoder_run_is_zero():
    assert StepStats().padding_ratio == 0.0
