"""The engine on ONNX Runtime against the slow search on PyTorch, and against itself in other company."""

from collections.abc import Sequence

import numpy as np
import pytest

from model.bundle import Bundle
from model.search import BeamConfig, beam_search
from model.transformer import Transformer
from service.engine.cpu.runner import CpuEncoded, CpuRunner
from service.engine.loop import EngineLoop
from service.engine.wire import FailureKind, Job, JobFailure, JobResult, SchedulerConfig, SearchParams
from tests.fakes.engine_runs import hypotheses, run
from tests.fakes.steered_jobs import steered, suppressing
from tests.fakes.tiny_model import VOCABULARY, random_sentences, tiny_config, tiny_model, write_tiny_bundle

BEAM_SIZES = (1, 2, 3, 4, 5, 8)
# A sum of up to 30 log-probabilities, each within 1e-5 of the reference's, divided by its length.
SCORE_TOLERANCE = 1e-4
SEEDS = [0, 1, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in range(2, 8))]
RUNS = [
    pytest.param(precision, seed, marks=[pytest.mark.thorough] if seed else [])
    for precision in ("fp32", "int8")
    for seed in range(4)
]


@pytest.fixture(scope="module")
def model() -> Transformer:
    return tiny_model(tiny_config(vocab_size=VOCABULARY))


@pytest.fixture(scope="module")
def bundle(model: Transformer, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return write_tiny_bundle(model, tmp_path_factory.mktemp("bundles") / "tiny", ("fp32", "int8"))


def random_jobs(model: Transformer, count: int, seed: int) -> list[Job]:
    rng = np.random.default_rng(seed)
    sources = random_sentences(model.config, rng.integers(2, 40, count).tolist(), seed)
    return [
        Job(
            id=number,
            source_ids=tuple(source),
            params=SearchParams(beam_size=int(rng.choice(BEAM_SIZES)), max_target_tokens=int(rng.integers(1, 60))),
        )
        for number, source in enumerate(sources)
    ]


@pytest.mark.usefixtures("each_engine")
@pytest.mark.parametrize(("beam_size", "patience"), [(2, 2.0), (4, 1.0), (5, 2.0)])
def test_engine_gives_the_reference_search_s_tokens(model, bundle, beam_size, patience):
    sources = random_sentences(model.config, [3, 9, 5, 14, 2, 21])
    params = SearchParams(
        beam_size=beam_size, num_hypotheses=beam_size, length_penalty=0.8, patience=patience, max_target_tokens=12
    )
    jobs = [Job(id=number, source_ids=tuple(source), params=params) for number, source in enumerate(sources)]

    outcomes = run(EngineLoop(CpuRunner(bundle, precision="fp32")), jobs)

    config = BeamConfig(beam_size=beam_size, length_penalty=0.8, patience=patience, max_target_tokens=12)
    for number, source in enumerate(sources):
        result = outcomes[number]
        assert isinstance(result, JobResult)
        reference = beam_search(model, source, config)[:beam_size]
        assert [list(ours.token_ids) for ours in result.hypotheses] == [theirs.tokens for theirs in reference]
        np.testing.assert_allclose(
            [ours.score for ours in result.hypotheses], [theirs.score for theirs in reference], atol=SCORE_TOLERANCE
        )


@pytest.mark.usefixtures("each_engine")
@pytest.mark.parametrize(("precision", "seed"), RUNS)
def test_sentence_alone_is_bit_for_bit_the_sentence_in_any_company(model, bundle, precision, seed):
    """Scores included; sentences join and leave at random, with beams and lengths of their own."""
    rng = np.random.default_rng(seed)
    runner = CpuRunner(bundle, precision=precision)
    jobs = random_jobs(model, 24, seed)
    config = SchedulerConfig(max_rows=int(rng.integers(20, 100)), max_encode_tokens=200)

    together = run(EngineLoop(runner, config), jobs, rng)

    for job in jobs:
        alone = run(EngineLoop(runner), [job])[job.id]
        assert hypotheses(alone) == hypotheses(together[job.id]), f"seed {seed}, job {job.id}"


@pytest.mark.usefixtures("each_engine")
@pytest.mark.parametrize("seed", SEEDS)
def test_options_give_the_reference_search_s_tokens(model, bundle, seed):
    rng = np.random.default_rng(seed)
    jobs = [
        steered(job, rng, VOCABULARY)._replace(source_ids=job.source_ids[-12:]) for job in random_jobs(model, 40, seed)
    ]
    jobs = [job for job in jobs if not (job.params.sampling_top_k or job.params.return_alternatives)]
    phrases = ((30,), (31, 32), (33, 33, 34), (11, 11))
    for number, job in enumerate(jobs):
        params = job.params._replace(suppressed=suppressing(phrases) if job.params.suppressed else ())
        jobs[number] = job._replace(params=params._replace(max_target_tokens=max(12, params.max_target_tokens % 20)))

    outcomes = run(EngineLoop(CpuRunner(bundle, precision="fp32")), jobs)

    assert len(jobs) > 10
    for job in jobs:
        params = job.params
        config = BeamConfig(
            beam_size=params.beam_size,
            patience=max(params.patience, params.num_hypotheses / params.beam_size),
            max_target_tokens=params.max_target_tokens,
            prefix=job.prefix_ids,
            repetition_penalty=params.repetition_penalty,
            no_repeat_ngram_size=params.no_repeat_ngram_size,
            min_target_tokens=params.min_target_tokens,
            suppressed=phrases if params.suppressed else (),
        )
        reference = beam_search(model, job.source_ids, config)[: params.num_hypotheses]
        assert [list(ours.token_ids) for ours in hypotheses(outcomes[job.id])] == [one.tokens for one in reference]


@pytest.mark.usefixtures("each_engine")
@pytest.mark.parametrize(("precision", "seed"), RUNS)
def test_sentence_with_options_is_bit_for_bit_the_same_among_others_with_and_without(model, bundle, precision, seed):
    rng = np.random.default_rng(seed)
    runner = CpuRunner(bundle, precision=precision)
    jobs = [job if job.id % 4 == 0 else steered(job, rng, VOCABULARY) for job in random_jobs(model, 24, seed)]
    config = SchedulerConfig(max_rows=int(rng.integers(20, 100)), max_encode_tokens=200)

    together = run(EngineLoop(runner, config), jobs, rng)

    for job in jobs:
        alone = run(EngineLoop(runner), [job])[job.id]
        assert hypotheses(alone) == hypotheses(together[job.id]), f"seed {seed}, job {job.id}"


class FaultyRunner(CpuRunner):
    """The encoder produces NaN or infinity for sentences that begin with one token."""

    FAULTY_TOKEN = 7

    def __init__(self, bundle: Bundle, bad: float) -> None:
        super().__init__(bundle, precision="fp32")
        self._bad = bad

    def encode(self, sources: Sequence[Sequence[int]]) -> CpuEncoded:
        encoded = super().encode(sources)
        for index, source in enumerate(sources):
            if source[0] == self.FAULTY_TOKEN:
                for array in encoded.arrays:
                    array[index] = self._bad
        return encoded


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_sentence_with_nan_or_infinity_fails_alone_and_leaves_the_others_bit_for_bit_as_they_were(model, bundle, bad):
    """Also those that get its slot, whose masked columns must not hold what it left."""
    sound = [job for job in random_jobs(model, 60, seed=7) if job.source_ids[0] != FaultyRunner.FAULTY_TOKEN]
    jobs = [
        job._replace(source_ids=(FaultyRunner.FAULTY_TOKEN, *job.source_ids[1:])) if job.id % 5 == 0 else job
        for job in sound
    ]
    undisturbed = run(EngineLoop(CpuRunner(bundle, precision="fp32")), sound)

    outcomes = run(EngineLoop(FaultyRunner(bundle, bad), SchedulerConfig(max_rows=40)), jobs)

    for job in jobs:
        outcome = outcomes[job.id]
        if job.id % 5 == 0:
            assert isinstance(outcome, JobFailure)
            assert outcome.kind is FailureKind.NON_FINITE
        else:
            assert hypotheses(outcome) == hypotheses(undisturbed[job.id])
