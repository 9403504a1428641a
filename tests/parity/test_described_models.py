"""Models of other families than our own, as configurations describe them: graphs and engine do what PyTorch does."""

from dataclasses import asdict, replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch
from onnx import TensorProto

from export.graphs import ENCODER_NAME
from export.heads import usual_heads
from export.linear import FloatProducts
from export.onnx_export import write_cuda_graphs, write_graphs
from export.runner import ScorerRunner
from export.scorer import SCORER_NAME
from export.verify import TOLERANCES, compare, compare_scorer, seeded_samples, translated_samples
from model.bundle import Bundle
from model.config import Activation, Architecture, ModelConfig, NormPlacement, StopRule
from model.recurrent import Recurrent
from model.search import BeamConfig, beam_search
from model.transformer import Transformer
from service.engine.cpu.runner import CpuRunner
from service.engine.loop import EngineLoop
from service.engine.wire import FinishReason, Hypothesis, Job, JobResult, SchedulerConfig, SearchParams
from tests.fakes.engine_runs import hypotheses, run
from tests.fakes.tiny_model import random_sentences, state_of, tiny_model, tiny_recurrent_model, write_tiny_bundle

SIZES: dict[str, Any] = {"d_model": 32, "d_ff": 64, "num_heads": 4, "num_encoder_layers": 2, "num_decoder_layers": 2}
CONFIGS = {
    # Of a classic OPUS-MT model: end-of-sentence first, padding last, which starts and is never written.
    "marian": ModelConfig(
        **SIZES,
        vocab_size=131,
        max_positions=64,
        norm_placement=NormPlacement.POST,
        activation=Activation.SWISH,
        projection_bias=True,
        position_table=True,
        eos_id=0,
        unk_id=1,
        pad_id=130,
        start_id=130,
        suppressed_ids=(130,),
    ),
    # Of a model that OpenNMT trained: two vocabularies, and a projection of its own.
    "opennmt": ModelConfig(
        **SIZES,
        vocab_size=51,
        target_vocab_size=43,
        max_positions=64,
        shared_embeddings=False,
        tied_projection=False,
        projection_bias=True,
        position_table=True,
        norm_epsilon=1e-6,
    ),
    # Of mBART's kind, as far as search goes, with a head of the target's table.
    "mbart": ModelConfig(
        **SIZES,
        vocab_size=128,
        target_vocab_size=70,
        max_positions=64,
        shared_embeddings=False,
        scaled_embeddings=False,
        position_table=True,
        separate_positions=True,
        embedding_norm=True,
        activation=Activation.GELU,
        pad_id=1,
        unk_id=3,
        start_id=2,
        eos_id=2,
        suppressed_ids=(1, 5),
    ),
    "suppressed tokens with mass": ModelConfig(
        **SIZES, vocab_size=70, max_positions=64, suppressed_ids=(0, 9), suppressed_keep_mass=True
    ),
    # Of the students that Firefox translates with.
    "ssru": ModelConfig(
        **SIZES, architecture=Architecture.SSRU, vocab_size=70, max_positions=64, norm_placement=NormPlacement.POST
    ),
    "post-norm with final norms": ModelConfig(
        **SIZES, vocab_size=65, max_positions=64, norm_placement=NormPlacement.POST, final_norm=True
    ),
    # Of T5 v1.1's kind; heads are no share of the width, and texts are longer than the farthest distance.
    "t5": ModelConfig(
        **SIZES,
        vocab_size=131,
        max_positions=64,
        scaled_embeddings=False,
        relative_distance=6,
        rms_norm=True,
        norm_epsilon=1e-6,
        activation=Activation.GELU_TANH,
        gated=True,
        head_width=6,
        start_id=0,
        eos_id=1,
        unk_id=2,
    ),
}


RECURRENT = (Architecture.LSTM, Architecture.LSTM_ATTENTION)
of_transformers = pytest.mark.parametrize("model", CONFIGS, indirect=True)


@pytest.fixture(scope="module", params=[*CONFIGS, *RECURRENT])
def model(request: pytest.FixtureRequest) -> Transformer | Recurrent:
    if request.param in RECURRENT:
        return tiny_recurrent_model(request.param)
    return tiny_model(CONFIGS[request.param], seed=7)


@pytest.fixture(scope="module")
def bundle(model: Transformer | Recurrent, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    directory = tmp_path_factory.mktemp("described") / "tiny"
    return write_tiny_bundle(model, directory, ("fp32", "int8"))


def sources(config: ModelConfig) -> list[list[int]]:
    return random_sentences(config, [3, 9, 5, 14, 2, 21, 8, 6])


def found_by_engine(
    bundle: Bundle, config: ModelConfig, precision: str, params: SearchParams
) -> list[list[Hypothesis]]:
    jobs = [Job(id=number, source_ids=tuple(source), params=params) for number, source in enumerate(sources(config))]
    outcomes = run(EngineLoop(CpuRunner(bundle, precision=precision)), jobs)
    results = [outcomes[job.id] for job in jobs]
    assert all(isinstance(result, JobResult) for result in results), results
    return [list(result.hypotheses) for result in results if isinstance(result, JobResult)]


def test_fp32_graphs_give_the_model_s_log_probabilities(model, tmp_path):
    runner = write_graphs(model.config, state_of(model), FloatProducts(), tmp_path / "fp32")

    samples = [*seeded_samples(model.config)]
    samples += translated_samples(runner, model.config, random_sentences(model.config, range(2, 12), seed=3))
    parity = compare(runner, model, samples)
    assert parity.largest_difference < 1e-4
    assert parity.same_best_token == 1.0
    if isinstance(model, Recurrent):  # which has no scorer
        return
    scorer = ScorerRunner(tmp_path / "fp32" / SCORER_NAME, tmp_path / "fp32" / ENCODER_NAME)
    found = compare_scorer(scorer, model, seeded_samples(model.config), usual_heads(model.config))
    assert max(asdict(found).values()) < 1e-4


@pytest.mark.parametrize("model", [name for name in CONFIGS if name != "ssru"], indirect=True)  # which has none
def test_fp16_graphs_are_within_the_stated_tolerance(model, tmp_path):
    if model.config.relative_distance:
        with pytest.raises(ValueError, match=r"relative positions .* has no graphs for a GPU"):
            write_cuda_graphs(
                model.config, state_of(model), FloatProducts(dtype=TensorProto.FLOAT16), tmp_path / "fp16"
            )
        return
    runner = write_cuda_graphs(
        model.config, state_of(model), FloatProducts(dtype=TensorProto.FLOAT16), tmp_path / "fp16"
    )

    compare(runner, model, seeded_samples(model.config)).require("fp16", TOLERANCES["fp16"])


@pytest.mark.usefixtures("each_engine")
@pytest.mark.parametrize("beam_size", [1, 4])
def test_engine_gives_the_reference_search_s_tokens(model, bundle, beam_size):
    config = model.config
    params = SearchParams(beam_size=beam_size, num_hypotheses=beam_size, max_target_tokens=12)

    found = found_by_engine(bundle, config, "fp32", params)

    wanted = BeamConfig(
        beam_size=beam_size,
        max_target_tokens=12,
        never_written=config.suppressed_ids,
        profile=bundle.manifest.profile,
    )
    for source, ours in zip(sources(config), found, strict=True):
        theirs = beam_search(model, source, wanted)[:beam_size]
        assert [list(one.token_ids) for one in ours] == [one.tokens for one in theirs]
        np.testing.assert_allclose([one.score for one in ours], [one.score for one in theirs], atol=1e-4)


@pytest.mark.usefixtures("each_engine")
def test_engine_ends_as_the_reference_search_under_every_rule(tmp_path):
    """Here suppressed tokens keep their mass, the longest hypotheses are made to end, and others end likely enough.

    Rules give other tokens than each other by margins of 1e-3 and more.
    """
    model = tiny_model(replace(CONFIGS["mbart"], projection_bias=True, suppressed_keep_mass=True), seed=7)
    with torch.no_grad():
        model.get_parameter("projection_bias")[model.config.eos_id] += 2.0
    whole, wanted = write_tiny_bundle(model, tmp_path / "tiny"), dict[StopRule, list[list[int]]]()
    for rule in StopRule:
        decoding = replace(whole.manifest.decoding, stop_rule=rule, forced_end=True)
        bundle = replace(whole, manifest=replace(whole.manifest, decoding=decoding))
        config = BeamConfig(
            max_target_tokens=12, never_written=model.config.suppressed_ids, profile=bundle.manifest.profile
        )

        found = found_by_engine(bundle, model.config, "fp32", SearchParams(beam_size=4, max_target_tokens=12))

        best = [beam_search(model, source, config)[0] for source in sources(model.config)]
        wanted[rule] = [one.tokens for one in best]
        assert [list(ours.token_ids) for (ours,) in found] == wanted[rule]
        assert [ours.score for (ours,) in found] == pytest.approx([one.score for one in best], abs=1e-4)
    for one, other in combinations(StopRule, 2):
        assert wanted[one] != wanted[other]


@pytest.mark.usefixtures("each_engine")
@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize("model", ["ssru", "t5", *RECURRENT], indirect=True)
def test_a_sentence_of_a_model_with_caches_or_positions_of_its_own_is_the_same_in_any_company(model, bundle, precision):
    rng = np.random.default_rng(7)
    jobs = [
        Job(
            id=number,
            source_ids=tuple(source),
            params=SearchParams(beam_size=int(rng.choice([1, 2, 4, 5])), max_target_tokens=int(rng.integers(1, 60))),
        )
        for number, source in enumerate(random_sentences(model.config, rng.integers(2, 40, 20).tolist(), 7))
    ]
    runner = CpuRunner(bundle, precision=precision)

    together = run(EngineLoop(runner, SchedulerConfig(max_rows=60, max_encode_tokens=200)), jobs, rng)

    for job in jobs:
        assert hypotheses(run(EngineLoop(runner), [job])[job.id]) == hypotheses(together[job.id]), f"job {job.id}"


@of_transformers
@pytest.mark.usefixtures("each_engine")
def test_the_scorer_begins_and_ends_with_the_model_s_tokens(model, bundle):
    config, runner = model.config, CpuRunner(bundle, precision="fp32")
    params = SearchParams(beam_size=4, max_target_tokens=30, length_penalty=1.0)
    best = found_by_engine(bundle, config, "fp32", params)[1][0]
    job = Job(id=0, source_ids=tuple(sources(config)[1]), params=params, scored_ids=best.token_ids)

    result = run(EngineLoop(runner), [job])[0]

    assert isinstance(result, JobResult)
    assert result.scores is not None
    is_ended = best.finish_reason is FinishReason.END_OF_SENTENCE
    log_probs = result.scores.log_probs[: len(best.token_ids) + is_ended]
    assert sum(log_probs) / len(log_probs) == pytest.approx(best.score, abs=1e-4)
