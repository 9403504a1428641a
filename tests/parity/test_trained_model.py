"""en-de end to end: random weights never end a sentence, trained ones do."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import sacrebleu
import torch

from export.runner import GraphRunner
from export.source import ExportSource
from export.verify import TOLERANCES, compare, reference_model, translated_samples
from model.bundle import WEIGHTS_NAME, Bundle, default_bundle_dir
from model.search import BeamConfig, beam_search, score
from model.tokenizer import Tokenizer
from service.engine.cpu.runner import CpuRunner
from service.engine.wire import SearchParams
from service.local import LocalTranslator
from tests.fakes.engine_runs import translate
from tests.fakes.own_text import own_sentences
from tests.parity.ctranslate2_model import translate_with_ctranslate2, write_ctranslate2_model
from tests.parity.model_pair import num_sentences


@dataclass(frozen=True, slots=True)
class Difference:
    """A sentence for which the two give other tokens."""

    text: str
    ours: str
    theirs: str
    our_score: float  # by the PyTorch model
    their_score: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """What was found."""

    num_sentences: int
    differences: tuple[Difference, ...]


def compare_with_ctranslate2(bundle_dir: Path, fp32_dir: Path, texts: Sequence[str], beam_size: int) -> Comparison:
    """Translate texts with both.

    Args:
        bundle_dir: a bundle that kept its weights; CTranslate2 and PyTorch get these.
        fp32_dir: a bundle with the fp32 graphs of the same weights, for the engine.
        texts: source sentences; blank ones are left out.
    """
    source, tokenizer = ExportSource.load(bundle_dir), Tokenizer.load(Bundle.load(bundle_dir).tokenizer_path)
    kept = [(text, ids) for text in texts if (ids := tokenizer.encode(text))]
    sources = [ids for _, ids in kept]
    ours = translate_with_engine(fp32_dir, sources, beam_size)
    with tempfile.TemporaryDirectory() as directory:
        neighbour = write_ctranslate2_model(source.config, source.state, source.tokenizer_path, Path(directory) / "ct2")
        answers = translate_with_ctranslate2(neighbour, source.tokenizer_path, sources, beam_size=beam_size)
    theirs = [answer[0][0] for answer in answers]
    model = reference_model(source.config, source.state)
    torch.set_num_threads(1)
    return Comparison(
        len(kept),
        tuple(
            Difference(text, tokenizer.decode(a), tokenizer.decode(b), score(model, ids, a), score(model, ids, b))
            for (text, ids), a, b in zip(kept, ours, theirs, strict=True)
            if a != b
        ),
    )


def translate_with_engine(bundle_dir: Path, sources: Sequence[Sequence[int]], beam_size: int) -> list[list[int]]:
    """Tokens of the best hypothesis of each source."""
    runner = CpuRunner(Bundle.load(bundle_dir), precision="fp32")
    return [list(best.token_ids) for best, *_ in translate(runner, sources, SearchParams(beam_size=beam_size))]


SCORE_TOLERANCE = 1e-3  # normalised log-probability; the two runtimes add in other orders
SAME_TOKENS = 0.995
MIN_INT8_CHRF = 90.0


@pytest.mark.timeout(600)
def test_real_sentences_get_ctranslate2s_tokens(trained_bundles):
    sentences = own_sentences(num_sentences(40))

    found = compare_with_ctranslate2(trained_bundles["int8"], trained_bundles["fp32"], sentences, beam_size=4)

    assert len(found.differences) <= max(1, (1 - SAME_TOKENS) * found.num_sentences), found.differences
    for difference in found.differences:
        assert difference.our_score == pytest.approx(difference.their_score, abs=SCORE_TOLERANCE), difference


@pytest.mark.parametrize("beam_size", [1, 4])
def test_engine_finds_what_the_reference_search_finds(trained_bundles, beam_size):
    source = ExportSource.load(trained_bundles["int8"])
    tokenizer = Tokenizer.load(source.tokenizer_path)
    sources = [tokenizer.encode(text) for text in own_sentences(num_sentences(8), seed=2)]
    model = reference_model(source.config, source.state)

    ours = translate_with_engine(trained_bundles["fp32"], sources, beam_size)

    reference = [beam_search(model, ids, BeamConfig(beam_size=beam_size))[0].tokens for ids in sources]
    assert ours == reference


def test_a_bundle_loaded_twice_gives_the_same_scores(trained_bundles):
    bundle = Bundle.load(trained_bundles["int8"])
    source = Tokenizer.load(bundle.tokenizer_path).encode("The children are playing in the garden.")
    params = SearchParams(beam_size=4, num_hypotheses=4)

    assert translate(CpuRunner(bundle), [source], params) == translate(CpuRunner(bundle), [source], params)


def test_int8_translates_nearly_as_fp32_does(trained_bundles):
    """Not the same tokens: weights and activations are rounded.  Compared as text, the one as the other's reference."""
    texts = own_sentences(120, seed=4)
    int8, fp32 = (
        [
            translation.text
            for translation in LocalTranslator.open(trained_bundles[name], threads=1).translate_all(texts)
        ]
        for name in ("int8", "fp32")
    )

    assert sacrebleu.corpus_chrf(int8, [fp32]).score >= MIN_INT8_CHRF


SENTENCES = [
    "The children are playing in the garden.",
    "A man in a blue shirt is standing on a ladder cleaning a window.",
    "Yes.",
    "Where did you put the keys that I gave you yesterday, and why is the door still open?",
    "Two dogs run through the snow.",
]


def test_the_shipped_graphs_are_within_the_stated_tolerance_of_the_kept_weights() -> None:
    bundle = Bundle.load(default_bundle_dir())
    assert WEIGHTS_NAME in bundle.manifest.files
    source, tokenizer = ExportSource.load(bundle.directory), Tokenizer.load(bundle.tokenizer_path)
    sentences = [tokenizer.encode(text) for text in SENTENCES]

    for precision, variant in bundle.manifest.variants.items():
        runner = GraphRunner(bundle.path(variant.encoder), bundle.path(variant.decoder_step), source.config)
        samples = translated_samples(runner, source.config, sentences)
        parity = compare(runner, reference_model(source.config, source.state), samples)
        parity.require(precision, TOLERANCES[precision])
        assert np.isfinite(parity.largest_difference)
