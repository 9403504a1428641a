"""Translations that are given: scored together where their shapes are alike, each for itself, and among searches."""

from collections.abc import Sequence

import pytest

from model.bundle import BundleError
from service.engine.cpu.runner import CpuEncoded
from service.engine.wire import (
    FailureKind,
    Job,
    JobResult,
    SchedulerConfig,
    TokenScores,
)
from tests.fakes.engine_runs import assert_nothing_is_left, engine, engine_with, job, kind_of, run, tokens
from tests.fakes.fake_runner import FakeRunner, misbehaving_script


def scoring(job_id: int, source: Sequence[int] = (5, 6, 7), target: Sequence[int] = (8, 9), **more: float) -> Job:
    return job(job_id, source, **{"beam_size": 1, **more})._replace(scored_ids=tuple(target))


def scores(outcome: object) -> TokenScores:
    assert isinstance(outcome, JobResult), outcome
    assert outcome.scores is not None
    return outcome.scores


def test_those_of_one_shape_run_together_and_searches_go_on_beside_them():
    runner = FakeRunner()
    loop = engine_with(SchedulerConfig(), runner)
    searches = [job(number, (5, 6, number)) for number in range(3)]
    pairs = [scoring(10 + number, (5, 6, 7), (8,) * number) for number in (1, 2, 16)]

    outcomes = run(loop, [*searches, *pairs])

    assert sorted(runner.scored) == [1, 2]  # 16 tokens and the end are padded to 32
    alone = {each.id: run(engine(), [each])[each.id] for each in (*searches, *pairs)}
    assert {number: tokens(outcome) for number, outcome in outcomes.items()} == {
        number: tokens(outcome) for number, outcome in alone.items()
    }
    assert_nothing_is_left(loop)


ERRORS = {20: MemoryError("small"), 21: RuntimeError("inside"), 22: BundleError("b has no graph; export again")}


class Failing(FakeRunner):
    """Fails where a translation begins with a token, by the error that belongs to it."""

    def score(
        self, encoded: Sequence[tuple[CpuEncoded, int]], translations: Sequence[Sequence[int]]
    ) -> list[TokenScores]:
        for translation in translations:
            if translation[0] in ERRORS:
                raise ERRORS[translation[0]]
        return super().score(encoded, translations)


@pytest.mark.parametrize(
    ("token", "kind", "message"),
    [
        (20, FailureKind.OUT_OF_MEMORY, "there is too little memory"),
        (21, FailureKind.INTERNAL, "the scorer failed: RuntimeError"),
        (22, FailureKind.INTERNAL, "b has no graph; export again"),
    ],
)
def test_one_that_cannot_be_scored_fails_alone(token, kind, message):
    loop = engine_with(SchedulerConfig(max_rows=64), Failing(misbehaving_script))

    outcomes = run(loop, [scoring(0), scoring(1, target=(token, 9)), scoring(2), job(3)])

    failure = outcomes.pop(1)
    assert (kind_of(failure), str(getattr(failure, "message", ""))[: len(message)]) == (kind, message)
    assert [kind_of(outcome) for outcome in outcomes.values()] == [None] * 3
    assert loop.take_stats().max_rows == (32 if token == 20 else 64)
    assert_nothing_is_left(loop)
