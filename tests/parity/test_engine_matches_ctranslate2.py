"""The engine against CTranslate2 on the same random weights: tokens in every mode of the search that both have."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from model.bundle import Bundle
from model.config import NormPlacement
from service.engine.cpu.runner import CpuRunner
from service.engine.wire import Hypothesis, SearchParams
from tests.fakes.engine_runs import translate
from tests.fakes.steered_jobs import suppressing
from tests.fakes.tiny_model import VOCABULARY, random_sentences, state_of, tiny_config, tiny_model, write_tiny_bundle
from tests.parity.ctranslate2_model import pieces, translate_with_ctranslate2, write_ctranslate2_model

Translations = list[list[tuple[list[int], float]]]  # hypotheses of each source: tokens, score

MAX_TARGET_TOKENS = 16
pytestmark = pytest.mark.usefixtures("each_engine")
SUPPRESSED = [[6], [26, 26], [28, 28], [23, 28, 28, 6]]
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


def neighbour(
    bundle: Bundle, sources: list[list[int]], params: SearchParams, prefix: Sequence[int] = (), **options: Any
) -> Translations:
    directory: Path = bundle.directory.parent / "ctranslate2"
    names = pieces(bundle.tokenizer_path)
    if prefix:
        options["target_prefix"] = [[names[token] for token in prefix]] * len(sources)
    if params.suppressed:
        options["suppress_sequences"] = [[names[token] for token in each] for each in SUPPRESSED]
    return translate_with_ctranslate2(
        directory,
        bundle.tokenizer_path,
        sources,
        beam_size=params.beam_size,
        num_hypotheses=params.num_hypotheses,
        length_penalty=params.length_penalty,
        patience=params.patience,
        max_decoding_length=params.max_target_tokens,
        repetition_penalty=params.repetition_penalty,
        no_repeat_ngram_size=params.no_repeat_ngram_size,
        min_decoding_length=params.min_target_tokens,
        **options,
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
    lengths = np.random.default_rng(1).integers(2, 25, 24).tolist()
    sources = random_sentences(bundle.manifest.config, lengths)

    ours, theirs = translate(CpuRunner(bundle), sources, params), neighbour(bundle, sources, params)

    assert_same(ours, theirs)


@pytest.mark.parametrize(
    ("beam_size", "prefix"),
    [
        (4, ()),
        (4, (41, 41, 7, 12, 7)),
        pytest.param(1, (20, 33), marks=pytest.mark.thorough),
        pytest.param(1, (), marks=pytest.mark.thorough),
        pytest.param(4, (20, 33), marks=pytest.mark.thorough),
        pytest.param(1, (41, 41, 7, 12, 7), marks=pytest.mark.thorough),
    ],
    ids=lambda value: f"{len(value)} forced" if isinstance(value, tuple) else None,
)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"repetition_penalty": 1.3},
        {"repetition_penalty": 5.0},
        {"no_repeat_ngram_size": 1},
        {"no_repeat_ngram_size": 3},
        {"min_target_tokens": 9},
        {"suppressed": suppressing(SUPPRESSED)},
        {"repetition_penalty": 1.1, "no_repeat_ngram_size": 2, "min_target_tokens": 6, "length_penalty": 0.0},
    ],
    ids=lambda options: ", ".join(options) or "no option",
)
def test_options_give_ctranslate2_s_tokens_and_scores(bundle, beam_size, prefix, options):
    """Behind a prefix, CTranslate2 records an end-of-sentence only in first place; here there is none, in both."""
    params = SearchParams(
        **{"beam_size": beam_size, "num_hypotheses": beam_size, "max_target_tokens": MAX_TARGET_TOKENS, **options}
    )
    params = params._replace(min_target_tokens=max(params.min_target_tokens, len(prefix) + bool(prefix)))
    sources = some_sources(bundle)

    ours = translate(CpuRunner(bundle), sources, params, prefix)

    assert_same(ours, neighbour(bundle, sources, params, prefix))


@pytest.mark.parametrize("beam_size", [3, 5])
@pytest.mark.parametrize("prefix", [(), (20, 33)], ids=lambda prefix: f"{len(prefix)} forced")
def test_alternatives_are_ctranslate2_s(bundle, beam_size, prefix):
    """Where it does not matter that CTranslate2 searches behind each alternative as if nothing stood before it.

    It divides by the length of that part alone, penalizes repetitions of that part alone, and returns alternatives in
    the order of their first tokens.
    """
    params = SearchParams(
        beam_size=beam_size,
        num_hypotheses=3,
        length_penalty=0.0,
        return_alternatives=True,
        max_target_tokens=MAX_TARGET_TOKENS,
    )
    sources = some_sources(bundle)

    ours = translate(CpuRunner(bundle), sources, params, prefix)

    theirs = neighbour(bundle, sources, params, prefix, return_alternatives=True)
    assert_same(ours, [sorted(best, key=lambda hypothesis: -hypothesis[1]) for best in theirs])


def some_sources(bundle: Bundle) -> list[list[int]]:
    return random_sentences(bundle.manifest.config, np.random.default_rng(2).integers(2, 25, 16).tolist())


def assert_same(ours: list[tuple[Hypothesis, ...]], theirs: Translations) -> None:
    assert [[list(hypothesis.token_ids) for hypothesis in best] for best in ours] == [
        [tokens for tokens, _ in best] for best in theirs
    ]
    np.testing.assert_allclose(
        [hypothesis.score for best in ours for hypothesis in best],
        [score for best in theirs for _, score in best],
        atol=SCORE_TOLERANCE,
    )
