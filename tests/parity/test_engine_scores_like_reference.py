"""The engine's scorer against PyTorch, and a pair alone against the same pair among others: the same bits."""

from collections.abc import Sequence

import numpy as np
import pytest

from export.heads import usual_heads
from export.verify import ForcedInputs, reference_scores
from model.bundle import Bundle
from model.config import BOS_ID, EOS_ID
from model.tools.attention import AttentionPart, attention_weights
from model.transformer import Transformer
from service.engine.cpu.runner import CpuRunner
from service.engine.loop import EngineLoop
from service.engine.wire import FailureKind, Job, JobFailure, JobResult, SchedulerConfig, SearchParams, TokenScores
from tests.fakes.engine_runs import run
from tests.fakes.tiny_model import VOCABULARY, random_sentences, tiny_config, tiny_model, write_tiny_bundle

GREEDY = SearchParams(beam_size=1, max_target_tokens=60)


@pytest.fixture(scope="module")
def model() -> Transformer:
    return tiny_model(tiny_config(vocab_size=VOCABULARY))


@pytest.fixture(scope="module")
def tiny(model: Transformer, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return write_tiny_bundle(model, tmp_path_factory.mktemp("bundles") / "tiny", ("fp32", "int8"))


def jobs_of(pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> list[Job]:
    return [
        Job(id=number, source_ids=tuple(source), params=GREEDY, scored_ids=tuple(target))
        for number, (source, target) in enumerate(pairs)
    ]


def scored(runner: CpuRunner, jobs: Sequence[Job], config: SchedulerConfig | None = None) -> list[TokenScores]:
    outcomes = run(EngineLoop(runner, config), jobs)
    results = [outcomes[job.id] for job in jobs]
    assert all(isinstance(result, JobResult) and result.scores for result in results), results
    return [result.scores for result in results if isinstance(result, JobResult) and result.scores]


def attention_of(job: Job, scores: TokenScores) -> np.ndarray:
    assert job.scored_ids is not None
    return np.frombuffer(scores.attention, np.float16).reshape(len(job.scored_ids) + 1, len(job.source_ids))


@pytest.mark.usefixtures("each_engine")
def test_engine_gives_the_model_s_log_probabilities_and_attention(model, tiny):
    lengths = [(3, 9), (20, 1), (7, 17), (16, 16), (33, 2), (5, 5), (63, 63)]
    pairs = [
        (random_sentences(model.config, [s], seed)[0], random_sentences(model.config, [t], 50 + seed)[0][:-1])
        for seed, (s, t) in enumerate(lengths)
    ]
    jobs = jobs_of(pairs)

    found = scored(CpuRunner(tiny, precision="fp32"), jobs)

    for job, scores in zip(jobs, found, strict=True):
        assert job.scored_ids is not None
        source, lengths_of = np.array([job.source_ids]), np.array([len(job.source_ids)], np.int32)
        targets = np.array([[BOS_ID, *job.scored_ids]])
        sample = ForcedInputs(source, lengths_of, targets, np.array([targets.size]))
        log_probs, attention = reference_scores(
            model, sample, np.array([[*job.scored_ids, EOS_ID]]), usual_heads(model.config)
        )
        assert scores.log_probs == pytest.approx(log_probs[0].tolist(), abs=1e-4)
        assert np.abs(attention_of(job, scores) - attention[0]).max() < 1e-3  # float16


@pytest.mark.usefixtures("each_engine")
def test_engine_shows_what_each_head_of_the_model_attends_to(model, tiny):
    source, target = random_sentences(model.config, [9])[0], [7, 8, 9, 10]
    job = jobs_of([(source, target)])[0]._replace(shows_heads=True)

    (scores,) = scored(CpuRunner(tiny, precision="fp32"), [job])

    expected, heads = attention_weights(model, source, target), scores.heads
    assert heads is not None
    for part, weights in ((AttentionPart.ENCODER, heads.encoder), (AttentionPart.CROSS, heads.cross)):
        found = np.frombuffer(weights, np.uint8).reshape(expected[part].shape) / 255
        assert heads.num_heads == expected[part].shape[1]
        assert np.abs(found - expected[part].numpy()).max() <= 0.5 / 255 + 1e-4


@pytest.mark.usefixtures("each_engine")
@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_a_pair_among_others_gets_the_bits_that_it_gets_alone(tiny, model, precision):
    rng = np.random.default_rng(1)
    pairs = [
        (random_sentences(model.config, [int(s)], seed)[0], random_sentences(model.config, [int(t)], seed + 99)[0][:-1])
        for seed, (s, t) in enumerate(rng.integers(1, 64, (40, 2)))
    ]
    jobs = jobs_of(pairs)
    searches = [Job(id=100 + job.id, source_ids=job.source_ids, params=GREEDY) for job in jobs[:10]]
    runner = CpuRunner(tiny, precision=precision)

    together = run(EngineLoop(runner, SchedulerConfig(max_rows=16)), [*searches, *jobs], np.random.default_rng(2))

    for job in jobs:
        found = together[job.id]
        assert isinstance(found, JobResult)
        assert [found.scores] == scored(runner, [job])


@pytest.mark.usefixtures("each_engine")
def test_bundle_without_a_scorer_says_so_and_translates(model, tmp_path):
    bundle = write_tiny_bundle(model, tmp_path / "tiny", has_scorer=False)
    runner, source = CpuRunner(bundle), random_sentences(model.config, [9])[0]

    outcomes = run(EngineLoop(runner), [*jobs_of([(source, [7])]), Job(id=5, source_ids=tuple(source), params=GREEDY)])

    failure = outcomes[0]
    assert not runner.has_scorer
    assert isinstance(failure, JobFailure)
    assert failure.kind is FailureKind.INTERNAL
    assert f"{tmp_path / 'tiny'} (tiny 0) has no graph that scores" in failure.message
    assert "`python -m export BUNDLE BUNDLE` draws it" in failure.message
    assert isinstance(outcomes[5], JobResult)
