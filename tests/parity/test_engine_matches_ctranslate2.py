"""The engine against CTranslate2 on the same random weights: tokens in every mode of the search that both have."""

from pathlib import Path

import numpy as np
import pytest
import torch

from model.bundle import Bundle
from model.config import NormPlacement
from service.engine.cpu.runner import CpuRunner
from service.engine.job import SearchParams
from tests.fakes.engine_runs import translate
from tests.fakes.tiny_model import VOCABULARY, random_sentences, state_of, tiny_config, tiny_model, write_tiny_bundle
from tests.parity.ctranslate2_model import translate_with_ctranslate2, write_ctranslate2_model

MAX_TARGET_TOKENS = 16
SCORE_TOLERANCE = 1e-4  # a sum of 16 log-probabilities, each within about 1e-6, without normalisation


@pytest.fixture(scope="module", params=[(NormPlacement.PRE, 1.0), (NormPlacement.POST, 2.0)], ids=["flat", "peaked"])
def bundle(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """A random model; the larger its embeddings, the surer it is, and the more often a worse hypothesis ends first."""
    placement, factor = request.param
    model = tiny_model(tiny_config(placement, vocab_size=VOCABULARY), seed=3)
    with torch.no_grad():
        model.embedding.weight.mul_(factor)
    directory = tmp_path_factory.mktemp("models")
    bundle = write_tiny_bundle(model, directory / "bundle")
    write_ctranslate2_model(model.config, state_of(model), bundle.tokenizer_path, directory / "ctranslate2")
    return bundle


def neighbour(bundle: Bundle, sources: list[list[int]], params: SearchParams) -> list[list[tuple[list[int], float]]]:
    directory: Path = bundle.directory.parent / "ctranslate2"
    return translate_with_ctranslate2(
        directory,
        bundle.tokenizer_path,
        sources,
        beam_size=params.beam_size,
        num_hypotheses=params.num_hypotheses,
        length_penalty=params.length_penalty,
        patience=params.patience,
        max_decoding_length=params.max_target_tokens,
    )


@pytest.mark.parametrize(
    "mode",
    [
        {"beam_size": 1},
        {"beam_size": 2},
        {"beam_size": 4},
        {"beam_size": 4, "num_hypotheses": 4},
        {"beam_size": 4, "num_hypotheses": 3, "length_penalty": 0.0},
        {"beam_size": 4, "length_penalty": 0.0, "patience": 0.5},
        {"beam_size": 4, "num_hypotheses": 2, "length_penalty": 0.6, "patience": 0.5},
        {"beam_size": 5, "num_hypotheses": 3, "patience": 0.7},
        {"beam_size": 5, "num_hypotheses": 5, "length_penalty": 2.0, "patience": 2.0},
        {"beam_size": 8, "num_hypotheses": 8, "length_penalty": 1.4},
    ],
    ids=str,
)
def test_engine_gives_ctranslate2_s_tokens_and_scores(bundle, mode):
    params = SearchParams(**mode, max_target_tokens=MAX_TARGET_TOKENS)
    lengths = np.random.default_rng(1).integers(2, 25, 60).tolist()
    sources = random_sentences(bundle.manifest.config, lengths)

    ours, theirs = translate(CpuRunner(bundle), sources, params), neighbour(bundle, sources, params)

    assert [[list(hypothesis.token_ids) for hypothesis in best] for best in ours] == [
        [tokens for tokens, _ in best] for best in theirs
    ]
    np.testing.assert_allclose(
        [hypothesis.score for best in ours for hypothesis in best],
        [score for best in theirs for _, score in best],
        atol=SCORE_TOLERANCE,
    )
