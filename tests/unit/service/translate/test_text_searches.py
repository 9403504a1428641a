"""How the works of a request wait for the engine together."""

import asyncio
from collections.abc import Sequence

import pytest

from service.engine.wire import FinishReason, Hypothesis, Job, JobResult, SearchParams, Settled
from service.translate.search_batcher import SearchBatcher


class Engine:
    """Answers each job with its own source, and remembers the runs."""

    def __init__(self) -> None:
        self.runs: list[list[int]] = []  # the first token of each job

    async def run(self, jobs: Sequence[Job]) -> list[Settled]:
        self.runs.append([job.source_ids[0] for job in jobs])
        await asyncio.sleep(0)
        return [result_of(job) for job in jobs]


def result_of(job: Job) -> JobResult:
    hypothesis = Hypothesis(job.source_ids, 0.0, FinishReason.END_OF_SENTENCE)
    return JobResult(0, (hypothesis,), 0.0, 0.0, 0.0, num_steps=1)


async def asking(batcher: SearchBatcher, *numbers: int) -> list[int]:
    """Ask once for each number, one after the other."""
    found = []
    for number in numbers:
        (result,) = await batcher.search([Job((number,), SearchParams())])
        assert isinstance(result, JobResult)
        found.append(result.hypotheses[0].token_ids[0])
    return found


@pytest.mark.parametrize("in_turns", [False, True])
async def test_what_works_ask_for_goes_out_together_once_all_of_them_wait(in_turns):
    engine = Engine()
    batcher = SearchBatcher(engine.run, in_turns=in_turns)

    found = await batcher.together(
        [asking(batcher, 1, 2, 3), asking(batcher, 11), asking(batcher), asking(batcher, 21, 22)]
    )

    assert found == [[1, 2, 3], [11], [], [21, 22]]
    assert engine.runs == [[1, 11, 21], [2, 22], [3]]


async def test_works_within_works_share_their_runs():
    engine = Engine()
    batcher = SearchBatcher(engine.run)

    async def parent(*numbers: int) -> list[list[int]]:
        inner = await batcher.together([asking(batcher, number) for number in numbers])
        return [*inner, await asking(batcher, 100 + numbers[0])]

    found = await batcher.together([parent(1, 2), parent(3), asking(batcher, 4, 5)])

    assert found == [[[1], [2], [101]], [[3], [103]], [4, 5]]
    assert engine.runs == [[3, 4, 1, 2], [103, 5, 101]]


async def test_error_of_one_work_ends_its_siblings_and_leaves_the_others_at_work():
    engine = Engine()
    batcher = SearchBatcher(engine.run)

    async def bad() -> list[int]:
        raise ValueError("it cannot be split")

    async def parent() -> list[int]:
        with pytest.raises(ValueError, match="cannot be split"):
            await batcher.together([asking(batcher, 1), bad()])
        return await asking(batcher, 2)

    assert await batcher.together([parent(), asking(batcher, 3)]) == [[2], [3]]
    assert engine.runs == [[3, 2]]


async def test_whoever_goes_away_takes_the_runs_along():
    started, ended = asyncio.Event(), asyncio.Event()

    async def run(jobs: Sequence[Job]) -> list[Settled]:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return []

    async def request() -> None:
        batcher = SearchBatcher(run)
        try:
            await batcher.together([asking(batcher, 1), asking(batcher, 2)])
        finally:
            await batcher.close()

    caller = asyncio.create_task(request())
    await started.wait()
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller

    assert ended.is_set()
