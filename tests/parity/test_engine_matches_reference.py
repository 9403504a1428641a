"""The engine against the slow search and the scorer on PyTorch, on other CPUs, and against itself in other company."""

import platform
from collections.abc import Sequence

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from export.heads import usual_heads
from export.verify import ForcedInputs, reference_scores
from model.bundle import Bundle
from model.config import BOS_ID, EOS_ID
from model.search import BeamConfig, beam_search
from model.tools.attention import AttentionPart, attention_weights
from model.transformer import Transformer
from service.engine.choice import cpu_flags, multiplies_int8_exactly
from service.engine.cpu import runner
from service.engine.cpu.runner import CpuEncoded, CpuRunner, session_options
from service.engine.loop import EngineLoop
from service.engine.wire import FailureKind, Job, JobFailure, JobResult, SchedulerConfig, SearchParams, TokenScores
from tests.fakes.engine_runs import hypotheses, run, translate
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


GREEDY = SearchParams(beam_size=1, max_target_tokens=60)


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
def test_engine_gives_the_model_s_log_probabilities_and_attention(model, bundle):
    lengths = [(3, 9), (20, 1), (7, 17), (16, 16), (33, 2), (5, 5), (63, 63)]
    pairs = [
        (random_sentences(model.config, [s], seed)[0], random_sentences(model.config, [t], 50 + seed)[0][:-1])
        for seed, (s, t) in enumerate(lengths)
    ]
    jobs = jobs_of(pairs)

    found = scored(CpuRunner(bundle, precision="fp32"), jobs)

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
def test_engine_shows_what_each_head_of_the_model_attends_to(model, bundle):
    source, target = random_sentences(model.config, [9])[0], [7, 8, 9, 10]
    job = jobs_of([(source, target)])[0]._replace(shows_heads=True)

    (scores,) = scored(CpuRunner(bundle, precision="fp32"), [job])

    expected, heads = attention_weights(model, source, target), scores.heads
    assert heads is not None
    for part, weights in ((AttentionPart.ENCODER, heads.encoder), (AttentionPart.CROSS, heads.cross)):
        found = np.frombuffer(weights, np.uint8).reshape(expected[part].shape) / 255
        assert heads.num_heads == expected[part].shape[1]
        assert np.abs(found - expected[part].numpy()).max() <= 0.5 / 255 + 1e-4


@pytest.mark.usefixtures("each_engine")
@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_a_pair_among_others_gets_the_bits_that_it_gets_alone(bundle, model, precision):
    rng = np.random.default_rng(1)
    pairs = [
        (random_sentences(model.config, [int(s)], seed)[0], random_sentences(model.config, [int(t)], seed + 99)[0][:-1])
        for seed, (s, t) in enumerate(rng.integers(1, 64, (40, 2)))
    ]
    jobs = jobs_of(pairs)
    searches = [Job(id=100 + job.id, source_ids=job.source_ids, params=GREEDY) for job in jobs[:10]]
    runner = CpuRunner(bundle, precision=precision)

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


PARAMS = SearchParams(beam_size=4, max_target_tokens=20)
WITH_DOT_PRODUCTS, WITHOUT = frozenset({"avx2", "avx512_vnni"}), frozenset({"avx2"})


@pytest.mark.skipif(not multiplies_int8_exactly(cpu_flags()), reason="this CPU has no int8 dot products")
def test_both_kinds_of_cpu_get_the_same_translations_and_scores(monkeypatch, bundle, model):
    sources = random_sentences(model.config, range(2, 12))

    monkeypatch.setattr(runner, "cpu_flags", lambda: WITH_DOT_PRODUCTS)
    with_dot_products = translate(CpuRunner(bundle), sources, PARAMS)
    monkeypatch.setattr(runner, "cpu_flags", lambda: WITHOUT)

    assert translate(CpuRunner(bundle), sources, PARAMS) == with_dot_products


@pytest.mark.skipif(platform.machine() != "x86_64", reason="only x86 saturates")
@pytest.mark.parametrize("graph", ["encoder", "decoder_step"])
def test_no_product_keeps_signed_weights_where_they_may_saturate(bundle, graph, tmp_path):
    options = session_options(1, WITHOUT)
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    path = bundle.path(getattr(bundle.variant(), graph))
    ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    optimized = onnx.load(tmp_path / "optimized.onnx", load_external_data=False).graph
    types = {tensor.name: tensor.data_type for tensor in optimized.initializer}
    products = [node for node in optimized.node if "MatMulInteger" in node.op_type]
    assert products
    assert {types[node.input[1]] for node in products} == {onnx.TensorProto.UINT8}
