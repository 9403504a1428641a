"""What the engines are asked for the work of a call, and which beams it gets."""

import asyncio
import time
from typing import Any, cast

import pytest

from service.call import Call
from service.config import LimitsConfig
from service.engine.wire import Job, JobResult, SearchParams, Settled
from service.models.call_scheduler import Work, run_jobs, with_smaller_beam
from service.scheduler.admission import Admission
from tests.fakes.manual_pool import ManualPool


class TestWork:
    async def done(self, work: Work) -> tuple[ManualPool, Call, list[Settled]]:
        """What was submitted for a call whose jobs all are answered, and what became of it."""
        pool, now, admission = ManualPool(), time.monotonic(), Admission(LimitsConfig())
        call = Call(method="m", started=now, deadline=now + 600.0)
        with admission.admit(len(work.jobs), now=now, deadline=call.deadline, caller=call.caller) as reservation:
            task = asyncio.create_task(run_jobs(work, call, reservation, cast("Any", pool)))
            await pool.submitted(len(work.jobs))
            for index in range(len(work.jobs)):
                pool.answer(index, "eins")
            return pool, call, await task

    @pytest.mark.parametrize("num_texts", [1, 3])
    async def test_each_job_gets_the_prefix_of_its_text(self, num_texts):
        sources = tuple((5,) * (number + 1) for number in range(num_texts))

        prefixes = ((1,), (), (3, 4))[:num_texts]
        work = Work([Job(source, SearchParams(), prefix) for source, prefix in zip(sources, prefixes, strict=True)])

        pool, _, done = await self.done(work)

        assert {job.source_ids: job.prefix_ids for job in pool.jobs} == dict(
            zip(sources, ((1,), (), (3, 4)), strict=False)
        )
        assert {job.scored_ids for job in pool.jobs} == {None}
        assert [one.beam_size for one in done if isinstance(one, JobResult)] == [4] * num_texts

    async def test_translation_to_score_is_one_step_of_one_row_and_counts_with_its_tokens(self):
        params = SearchParams(beam_size=4, num_hypotheses=2)
        work = Work([Job((5, 6), params, scored_ids=(7, 8, 9)), Job((5,), params, scored_ids=())])

        pool, _, done = await self.done(work)

        assert [(job.source_ids, job.scored_ids) for job in pool.jobs] == [((5, 6), (7, 8, 9)), ((5,), ())]
        assert {job.params for job in pool.jobs} == {SearchParams(beam_size=1, max_target_tokens=1)}
        assert pool.forecasts == [(5, 1)]
        assert [one.beam_size for one in done if isinstance(one, JobResult)] == [1, 1]


@pytest.mark.parametrize(
    ("waiting_s", "threshold_s", "beams"),
    [
        (1.9, 2.0, [1, 2, 4, 5, 16]),
        (2.0, 2.0, [1, 1, 2, 2, 8]),
        (4.0, 2.0, [1, 1, 1, 1, 4]),
        (1e9, None, [1, 2, 4, 5, 16]),
    ],
)
def test_beams_are_halved_at_the_threshold_and_again_at_twice_as_much(waiting_s, threshold_s, beams):
    work = Work([Job((5, 2), SearchParams(beam_size=beam)) for beam in (1, 2, 4, 5, 16)])

    found = with_smaller_beam(work, waiting_s=waiting_s, threshold_s=threshold_s)

    assert [job.params.beam_size for job in found.jobs] == beams


def test_smaller_beam_holds_the_hypotheses_that_were_asked_for():
    work = Work([Job((5, 2), SearchParams(beam_size=8, num_hypotheses=3))])

    assert with_smaller_beam(work, waiting_s=100.0, threshold_s=1.0).jobs[0].params.beam_size == 3
