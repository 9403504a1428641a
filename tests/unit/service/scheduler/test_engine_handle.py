"""One engine's handle: what it makes of reports, and when it gives the engine up."""

import asyncio

import pytest

from service.call import ANYBODY, Call
from service.engine.wire import FailureKind, Job, JobFailure, JobResult, Report
from service.errors import DeadlineExceeded, InternalError, OutOfMemory
from service.records import Priority
from service.scheduler.engines import JobGroup, Pending
from tests.fakes.engine_pools import CONFIG, PARAMS, SPEC, hand_stepped

RESULT = JobResult(job_id=0, hypotheses=(), queue_s=0.0, encode_s=0.0, decode_s=0.1, num_steps=10)


def non_finite(number: int) -> Report:
    return Report(tuple([JobFailure(job_id=0, kind=FailureKind.NON_FINITE, message="not a number")] * number))


async def test_engine_that_gives_64_sentences_in_a_row_non_finite_scores_is_unhealthy():
    async with hand_stepped(SPEC, CONFIG) as (_, (engine,)):
        engine.report(non_finite(63))
        engine.report(non_finite(1))

        assert "64 sentences in a row" in engine.fault


@pytest.mark.parametrize("between", ["result", "loss"])
async def test_sentence_between_them_or_another_process_starts_the_count_again(between):
    async with hand_stepped(SPEC, CONFIG) as (_, (engine,)):
        engine.report(non_finite(63))
        if between == "result":
            engine.report(Report((RESULT,)))
        else:
            engine.die(is_delayed=False)
            engine.come_back()
        engine.report(non_finite(63))

        assert engine.fault == ""


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        (FailureKind.DEADLINE, DeadlineExceeded),
        (FailureKind.OUT_OF_MEMORY, OutOfMemory),
        (FailureKind.NON_FINITE, InternalError),
        (FailureKind.INTERNAL, InternalError),
    ],
)
async def test_failure_of_a_job_is_an_error_of_its_kind(kind, error):
    call = Call(method="m", started=0.0, deadline=0.0)
    group = JobGroup(call, 1)
    pending = Pending(Job((5,), PARAMS), ANYBODY, Priority.INTERACTIVE, 0.0, group=group, place=0)
    group.jobs.add(pending)

    pending.resolve(JobFailure(job_id=0, kind=kind, message="why"))
    pending.resolve(RESULT)  # too late: nothing happens

    (ended,) = await asyncio.gather(group.results, return_exceptions=True)
    found = ended[0] if isinstance(ended, list) else ended  # an error of the model is that of the sentence alone
    assert type(found) is error
    assert str(found) == "why"
    assert call.target_tokens == 0
