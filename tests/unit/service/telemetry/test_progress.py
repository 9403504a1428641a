"""A call's progress: where it is noted, and that nobody needs one."""

import asyncio

from service.records import Timings
from service.telemetry.calls import Progress, current_progress, follow

TIMINGS = Timings(tokenize_ms=1.0, queue_ms=2.0, encode_ms=3.0, decode_ms=4.0, detokenize_ms=5.0, total_ms=15.0)


async def test_tasks_note_on_the_progress_of_the_call_that_started_them():
    async def work(progress: Progress) -> None:
        follow(progress)
        await asyncio.gather(note(), note())

    async def note() -> None:
        current_progress().finished_texts += 1

    one, other = Progress(), Progress()
    await asyncio.gather(work(one), work(other))

    assert (one.finished_texts, other.finished_texts) == (2, 2)


async def test_without_a_call_notes_go_nowhere():
    async def outside() -> Progress:
        current_progress().phase = "decode"
        return current_progress()

    assert (await outside()).phase == "admission"


def test_timings_are_those_of_the_moment():
    assert Progress().timings() is None
    assert Progress(read_timings=lambda: TIMINGS).timings() == TIMINGS
