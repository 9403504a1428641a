"""The dispatcher: what it gives to engines, what it says of them, and how it begins and ends."""

import asyncio
import os
import time
from dataclasses import replace

import pytest

from model.config import EOS_ID
from service.engine.job import StepStats
from service.engine.process import Report
from service.engine.scheduler import SchedulerConfig
from service.engines.dispatcher import DispatchConfig, Dispatcher
from service.engines.supervisor import EngineSupervisor
from service.errors import InternalError, Unavailable
from service.queue.job_queue import EngineLoad
from service.telemetry.calls import Call
from tests.fakes.fake_runner import NAN_TOKEN, POISON_TOKEN
from tests.fakes.running_dispatcher import CONFIG, LONG, NORMAL, PARAMS, SLOW, SPEC, Counts, expected, running


async def test_results_are_the_engines_and_come_for_every_job():
    sources = [(5 + n % 20, 6, 7 + n % 9, EOS_ID) for n in range(40)]

    async with running() as dispatcher:
        assert dispatcher.is_ready
        results = await asyncio.gather(*(dispatcher.submit(source, PARAMS, None) for source in sources))
        assert (dispatcher.queued_jobs, dispatcher.queued_tokens, dispatcher.running_jobs) == (0, 0, 0)

    assert [result.hypotheses for result in results] == [expected(source).hypotheses for source in sources]
    assert all(result.queue_s >= 0 and result.num_steps > 0 for result in results)


async def test_queue_counts_what_the_engine_has_no_credit_for():
    async with running() as dispatcher:
        jobs = [dispatcher.submit(SLOW, PARAMS, None) for _ in range(9)]
        assert dispatcher.queued_jobs == 9

        await asyncio.sleep(0)  # the pump

        assert dispatcher.running_jobs == 5  # 8 rows of 2, and one to look ahead
        assert dispatcher.queued_jobs == 4
        assert dispatcher.queued_tokens == 4 * len(SLOW)
        for job in jobs:
            job.cancel()


async def test_engine_that_runs_less_for_want_of_memory_is_given_less():
    async with running() as dispatcher:
        jobs = [dispatcher.submit(SLOW, PARAMS, None) for _ in range(9)]
        dispatcher._slots[0].heard(Report((), StepStats(max_rows=4)))
        await asyncio.sleep(0)

        assert dispatcher.running_jobs == 3  # 4 rows of 2, and one to look ahead
        assert [engine.max_rows for engine in dispatcher.snapshot(time.monotonic()).engines] == [4]
        assert dispatcher._load() == EngineLoad(num_engines=1, rows=6, max_rows=4)
        for job in jobs:
            job.cancel()


async def test_jobs_go_to_the_engine_with_the_fewest_rows():
    async with running(config=replace(CONFIG, num_engines=2)) as dispatcher:
        assert len(set(dispatcher.engine_pids)) == 2
        jobs = [dispatcher.submit(SLOW, PARAMS, None) for _ in range(4)]
        await asyncio.sleep(0)

        assert [slot.held.rows for slot in dispatcher._slots] == [4, 4]
        for job in jobs:
            job.cancel()


async def test_sentences_that_start_together_are_dealt_by_length():
    async with running(config=replace(CONFIG, num_engines=2)) as dispatcher:
        lengths = (12, 4, 3, 3, 3)
        jobs = [dispatcher.submit((*SLOW[: length - 1], EOS_ID), PARAMS, None) for length in lengths]
        await asyncio.sleep(0)

        held = [sorted(len(pending.job.source_ids) for pending in slot.jobs.values()) for slot in dispatcher._slots]
        assert sorted(held) == [[3, 3, 3, 4], [12]]
        assert sorted(slot.held.rows for slot in dispatcher._slots) == [2, 8]
        assert sorted(slot.held.work for slot in dispatcher._slots) == [2 * 12, 2 * 13]
        for job in jobs:
            job.cancel()


async def test_dealing_by_length_keeps_to_the_source_tokens_of_each_engine():
    spec = replace(SPEC, scheduler=SchedulerConfig(max_rows=8, max_source_tokens=512))
    async with running(spec, replace(CONFIG, num_engines=2)) as dispatcher:
        lengths = (128, 128, 65, 65, 65, 65, 65)  # each as wide as 128
        params = replace(LONG, beam_size=1)
        jobs = [dispatcher.submit((*[5] * (length - 1), EOS_ID), params, None) for length in lengths]
        await asyncio.sleep(0)

        assert sorted(slot.held.source_tokens for slot in dispatcher._slots) == [384, 512]
        for job in jobs:
            job.cancel()


async def test_sentences_that_do_not_all_find_rows_go_to_the_engine_with_the_fewest():
    async with running(config=replace(CONFIG, num_engines=2)) as dispatcher:
        jobs = [dispatcher.submit(SLOW, PARAMS, None) for _ in range(8)]
        one_more = [dispatcher.submit(SLOW, PARAMS, None), dispatcher.submit(NORMAL, PARAMS, None)]
        await asyncio.sleep(0)

        assert [slot.held.rows for slot in dispatcher._slots] == [10, 10]  # 8 of them now, and a sentence to look ahead
        for job in (*jobs, *one_more):
            job.cancel()


async def test_engine_that_is_not_up_is_dealt_nothing(monkeypatch):
    async with running(config=replace(CONFIG, num_engines=3)) as dispatcher:
        lost = dispatcher._slots[0].keeper
        monkeypatch.setattr(EngineSupervisor, "is_up", property(lambda keeper: keeper is not lost))
        jobs = [dispatcher.submit(SLOW, PARAMS, None) for _ in range(4)]
        await asyncio.sleep(0)

        assert [len(slot.jobs) for slot in dispatcher._slots] == [0, 2, 2]
        for job in jobs:
            job.cancel()


async def test_job_waits_while_no_engine_is_up(monkeypatch):
    async with running(config=replace(CONFIG, num_engines=2)) as dispatcher:
        errors: list[dict[str, object]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
        monkeypatch.setattr(EngineSupervisor, "is_up", property(lambda _: False))
        job = dispatcher.submit(SLOW, PARAMS, None)
        await asyncio.sleep(0)

        assert dispatcher.queued_jobs == 1
        assert not errors
        job.cancel()


@pytest.mark.parametrize(("token", "message"), [(NAN_TOKEN, "non-finite"), (POISON_TOKEN, "encoder")])
async def test_sentence_the_model_cannot_do_fails_alone(token, message):
    async with running() as dispatcher:
        bad = dispatcher.submit((token, EOS_ID), PARAMS, None)
        good = dispatcher.submit(NORMAL, PARAMS, None)

        with pytest.raises(InternalError, match=message):
            await bad
        assert (await good).hypotheses == expected(NORMAL).hypotheses


async def test_snapshot_shows_what_waits_and_what_each_engine_holds():
    counts, calls = Counts(), [Call(method="m", started=0.0, deadline=9.0, phase="queue") for _ in range(7)]
    async with running(observer=counts) as dispatcher:
        jobs = [dispatcher.submit(SLOW, PARAMS, None, call=call) for call in calls]
        await counts.until(lambda: any(stats.live_rows == 8 for stats in counts.stats))
        seen = dispatcher.snapshot(time.monotonic())
        (pid,) = dispatcher.engine_pids
        for job in jobs:
            job.cancel()

    assert (seen.queued_jobs, seen.queued_tokens) == (2, 2 * len(SLOW))
    (engine,) = seen.engines
    assert (engine.pid, engine.state, engine.jobs, engine.rows, engine.max_rows) == (pid, "up", 5, 8, 8)
    assert engine.restarts == 0
    assert engine.silent_s < 60.0
    assert [call.phase for call in calls] == ["decode"] * 5 + ["queue"] * 2


async def test_statistics_add_up():
    counts = Counts()
    async with running(observer=counts) as dispatcher:
        results = await asyncio.gather(*(dispatcher.submit(NORMAL, PARAMS, None) for _ in range(3)))
        await counts.until(lambda: sum(stats.encoded_sentences for stats in counts.stats) == 3)

    assert sum(stats.rows for stats in counts.stats) == sum(2 * result.num_steps for result in results)
    assert sum(stats.source_tokens for stats in counts.stats) == 3 * len(NORMAL)
    assert all(len(stats.step_rows) == stats.steps for stats in counts.stats)


async def test_engine_that_cannot_start_says_why():
    spec = replace(SPEC, runner_factory="tests.fakes.fake_runner:create_nothing")

    with pytest.raises(InternalError, match="ValueError: no-bundle has no graphs"):
        await Dispatcher(spec, CONFIG).start()


async def test_engine_that_is_not_ready_in_time_is_an_error():
    with pytest.raises(InternalError, match=r"not ready within 0\.001 s"):
        await Dispatcher(SPEC, replace(CONFIG, start_timeout_s=0.001)).start()


async def test_closed_dispatcher_refuses():
    async with running() as dispatcher:
        closing = asyncio.create_task(dispatcher.close())
        await asyncio.sleep(0)

        with pytest.raises(Unavailable, match="stopping"):
            await dispatcher.submit(NORMAL, PARAMS, None)
        await closing
        assert not dispatcher.is_ready


async def test_close_fails_what_is_not_done_and_ends_the_processes():
    async with running() as dispatcher:
        (pid,) = dispatcher.engine_pids
        jobs = [dispatcher.submit(SLOW, LONG, None) for _ in range(7)]
        await asyncio.sleep(0)

        await dispatcher.close()

        results = await asyncio.gather(*jobs, return_exceptions=True)
        assert [type(result) for result in results] == [Unavailable] * 7
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.mark.parametrize("name", ["num_engines", "lookahead_jobs"])
def test_wrong_settings_name_themselves_and_their_range(name):
    with pytest.raises(ValueError, match=f"{name} is 0, at least 1"):
        DispatchConfig(**{name: 0})
