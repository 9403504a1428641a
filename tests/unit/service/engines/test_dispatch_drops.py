"""Jobs that are cancelled or late, in the queue and while they decode: what becomes of them and of their rows."""

import asyncio
import time

import pytest

from model.config import EOS_ID
from service.errors import DeadlineExceeded
from service.telemetry.calls import Call
from tests.fakes.fake_runner import STUCK_TOKEN
from tests.fakes.running_dispatcher import LONG, NORMAL, PARAMS, SLOW, Counts, running


async def test_deadline_in_the_past_fails_at_once():
    async with running() as dispatcher:
        with pytest.raises(DeadlineExceeded):
            await dispatcher.submit(NORMAL, PARAMS, time.monotonic() - 1)


async def test_deadline_passes_in_the_queue():
    counts = Counts()
    async with running(observer=counts) as dispatcher:
        blockers = [dispatcher.submit(SLOW, LONG, None) for _ in range(5)]
        late = dispatcher.submit(NORMAL, PARAMS, time.monotonic() + 0.02)

        with pytest.raises(DeadlineExceeded, match="queued"):
            await late
        await asyncio.sleep(0)

        assert counts.dropped == [("queue", "deadline")]
        for job in blockers:
            job.cancel()


async def test_deadline_is_kept_while_the_engine_is_stuck():
    async with running() as dispatcher:
        with pytest.raises(DeadlineExceeded, match="decoding"):
            await dispatcher.submit((STUCK_TOKEN, EOS_ID), PARAMS, time.monotonic() + 0.05)


async def test_job_cancelled_in_the_queue_never_reaches_the_engine():
    counts = Counts()
    async with running(observer=counts) as dispatcher:
        blockers = [dispatcher.submit(SLOW, PARAMS, None) for _ in range(5)]
        waiting = dispatcher.submit(NORMAL, PARAMS, None)
        await asyncio.sleep(0)
        assert dispatcher.queued_jobs == 1

        waiting.cancel()
        await asyncio.sleep(0)

        assert (dispatcher.queued_jobs, dispatcher.queued_tokens) == (0, 0)
        assert counts.dropped == [("queue", "cancelled")]
        for job in blockers:
            job.cancel()
        await dispatcher.submit(NORMAL, PARAMS, None)
    assert sum(stats.encoded_sentences for stats in counts.stats) <= 6


async def test_job_cancelled_while_decoding_frees_its_rows():
    counts = Counts()
    async with running(observer=counts) as dispatcher:
        blockers = [dispatcher.submit(SLOW, LONG, None) for _ in range(5)]
        await counts.until(lambda: any(stats.live_rows == 8 for stats in counts.stats))
        assert dispatcher.live_rows == 8

        for job in blockers:
            job.cancel()
        await counts.until(lambda: counts.stats[-1].live_rows == 0)

        assert (dispatcher.running_jobs, dispatcher.live_rows) == (0, 0)
        assert counts.dropped == [("decode", "cancelled")] * 5
        assert sum(stats.wasted_steps for stats in counts.stats) > 0


@pytest.mark.parametrize(("late_in_s", "reason"), [(-0.1, "deadline"), (3600.0, "cancelled")])
async def test_job_that_its_call_takes_back_at_its_deadline_was_not_cancelled(late_in_s, reason):
    counts = Counts()
    async with running(observer=counts) as dispatcher:
        now = time.monotonic()
        call = Call(method="m", started=now, deadline=now + late_in_s, limit_s=60.0)
        job = dispatcher.submit(SLOW, PARAMS, now + 3600.0, call=call)
        await asyncio.sleep(0)

        job.cancel()
        await asyncio.sleep(0)

    assert [why for _, why in counts.dropped] == [reason]
