"""Recurrent decoders: the graphs against PyTorch, the engine against the reference search and against other company."""

from dataclasses import replace

import numpy as np
import pytest

from export.runner import GraphRunner
from export.verify import TOLERANCES, compare, seeded_samples
from model.bundle import Bundle
from model.config import Architecture
from model.recurrent import Recurrent
from model.search import BeamConfig, beam_search
from model.transformer import Transformer
from service.engine.cpu.runner import CpuRunner
from service.engine.loop import EngineLoop
from service.engine.wire import Job, JobResult, SchedulerConfig, SearchParams
from tests.fakes.engine_runs import hypotheses, run
from tests.fakes.tiny_model import (
    VOCABULARY,
    random_sentences,
    tiny_config,
    tiny_model,
    tiny_recurrent_model,
    write_tiny_bundle,
)


@pytest.fixture(scope="module", params=[Architecture.LSTM, Architecture.LSTM_ATTENTION, Architecture.SSRU])
def model(request: pytest.FixtureRequest) -> Recurrent | Transformer:
    if request.param is Architecture.SSRU:
        return tiny_model(replace(tiny_config(vocab_size=VOCABULARY), architecture=Architecture.SSRU))
    return tiny_recurrent_model(request.param)


@pytest.fixture(scope="module")
def bundle(model: Recurrent | Transformer, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return write_tiny_bundle(model, tmp_path_factory.mktemp("bundles") / "tiny", ("fp32", "int8"))


def test_graphs_are_within_the_stated_tolerance(model, bundle):
    variant = bundle.variant("fp32")
    runner = GraphRunner(bundle.path(variant.encoder), bundle.path(variant.decoder_step), model.config)

    compare(runner, model, seeded_samples(model.config)).require("fp32", TOLERANCES["fp32"])


@pytest.mark.parametrize("beam_size", [1, 2, 5])
def test_engine_gives_the_reference_search_s_tokens(model, bundle, beam_size):
    sources = random_sentences(model.config, [3, 9, 5, 14, 2, 21])
    params = SearchParams(beam_size=beam_size, num_hypotheses=beam_size, length_penalty=0.8, max_target_tokens=20)
    jobs = [Job(id=number, source_ids=tuple(source), params=params) for number, source in enumerate(sources)]

    outcomes = run(EngineLoop(CpuRunner(bundle, precision="fp32")), jobs)

    config = BeamConfig(beam_size=beam_size, length_penalty=0.8, max_target_tokens=20)
    for number, source in enumerate(sources):
        result = outcomes[number]
        assert isinstance(result, JobResult)
        reference = beam_search(model, source, config)[:beam_size]
        assert [list(ours.token_ids) for ours in result.hypotheses] == [theirs.tokens for theirs in reference]


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_sentence_alone_is_bit_for_bit_the_sentence_in_any_company(model, bundle, precision):
    rng = np.random.default_rng(7)
    sources = random_sentences(model.config, rng.integers(2, 40, 20).tolist(), 7)
    jobs = [
        Job(
            id=number,
            source_ids=tuple(source),
            params=SearchParams(beam_size=int(rng.choice([1, 2, 4, 5])), max_target_tokens=int(rng.integers(1, 60))),
        )
        for number, source in enumerate(sources)
    ]
    runner = CpuRunner(bundle, precision=precision)

    together = run(EngineLoop(runner, SchedulerConfig(max_rows=60, max_encode_tokens=200)), jobs, rng)

    for job in jobs:
        assert hypotheses(run(EngineLoop(runner), [job])[job.id]) == hypotheses(together[job.id]), f"job {job.id}"
