"""Options change what a sentence finds as the plain search says, alone and among others."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.config import EOS_ID
from service.engine.logits import draw
from service.engine.wire import Job, JobResult, SearchParams
from tests.fakes.engine_runs import alone, engine, run, tokens
from tests.fakes.fake_runner import FakeRunner, random_script
from tests.fakes.plain_search import plain_search
from tests.fakes.steered_jobs import steered


def random_job(number: int, rng: np.random.Generator) -> Job:
    """Of a few steps, with some of the options."""
    params = SearchParams(
        beam_size=int(rng.integers(1, 5)),
        length_penalty=float(rng.choice([0.0, 0.6, 1.0])),
        max_target_tokens=int(rng.integers(5, 14)),
    )
    source = (*rng.integers(3, 30, int(rng.integers(1, 8))).tolist(), EOS_ID)
    return steered(Job(id=number, source_ids=source, params=params), rng, num_tokens=12)


def expected(job: Job) -> object:
    found = plain_search(lambda prefix: random_script(job.source_ids, prefix), job.params, job.prefix_ids)
    return [hypothesis.token_ids for hypothesis in found.hypotheses]


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_a_batch_with_all_options_mixed_gives_what_the_plain_search_gives_each_sentence(seed):
    rng = np.random.default_rng(seed)
    jobs = [random_job(number, rng) for number in range(12)]

    outcomes = run(engine(FakeRunner(random_script), max_rows=40), jobs, arrivals=rng)

    for job in jobs:
        outcome = outcomes[job.id]
        assert isinstance(outcome, JobResult)
        assert [hypothesis.token_ids for hypothesis in outcome.hypotheses] == expected(job), job
        assert tokens(outcome) == tokens(alone(job))


def test_draws_follow_the_probabilities_of_the_candidates_that_are_kept():
    """4,000 seeds; a share's standard deviation is at most 0.008."""
    log_probs = np.log(np.array([0.5, 0.2, 0.1, 0.05], np.float32))
    params = SearchParams(beam_size=1, sampling_top_k=3, sampling_temperature=0.5)

    def shares(params: SearchParams) -> list[float]:
        counts = Counter(draw(log_probs, params._replace(sampling_seed=seed), 5) for seed in range(4_000))
        return [counts[rank] / 4_000 for rank in range(4)]

    assert shares(params) == pytest.approx([25 / 30, 4 / 30, 1 / 30, 0.0], abs=0.033)
    assert shares(params._replace(sampling_top_p=0.9)) == pytest.approx([25 / 29, 4 / 29, 0.0, 0.0], abs=0.033)
    assert shares(params._replace(sampling_top_p=0.5)) == [1.0, 0.0, 0.0, 0.0]
