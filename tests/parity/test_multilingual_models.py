"""Imported models of many languages against transformers on the checkpoints that were imported."""

import os
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import model.search as reference_search
from export.importers.command import import_model
from export.importers.foreign import ImportOptions
from export.importers.m2m100 import read_m2m100
from export.runner import GraphRunner
from export.source import ExportSource
from export.verify import reference_model
from model.bundle import Bundle
from model.config import StopRule
from model.search import BeamConfig, beam_search
from model.tokenizer import SupportsTokens, load_tokenizer
from service.engine.cpu.runner import CpuRunner
from service.engine.job import Job, JobResult, SearchParams
from service.engine.loop import EngineLoop
from service.local import LocalTranslator
from service.records import Segmentation, TranslateOptions, TranslationRequest
from tests.fakes.engine_runs import run
from tests.fakes.own_text import own_sentences
from tests.parity.multilingual_checkpoints import SHAPES, Family, train_pieces, write_checkpoint

BEAMS = (1, 4, 6)
NUM_SENTENCES = int(os.environ.get("DRAGOMAN_TEST_PARITY_SENTENCES", "9"))
LONGEST = 24
TOLERANCE = 1e-4  # of float32 log-probabilities
OPTIONS = ImportOptions(source_language="en", target_language="de", profile=StopRule.CTRANSLATE2)


@pytest.fixture(scope="module")
def pieces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train_pieces(tmp_path_factory.mktemp("pieces") / "sentencepiece.bpe.model")


class Imported:
    """A checkpoint and its bundle."""

    def __init__(self, theirs: Any, source: ExportSource, bundle: Bundle) -> None:
        self.theirs, self.bundle = theirs, bundle
        self.config = bundle.manifest.config
        self.tokenizer = load_tokenizer(bundle.directory, bundle.manifest.tokenizer)
        self.reference = reference_model(source.config, source.state)

    def between(self, source: str, target: str) -> SupportsTokens:
        return self.tokenizer.between(source, target)

    def target(self, language: str) -> str:
        """The language, or of a model with one target that one."""
        is_target = self.bundle.manifest.tokenizer.language(language).is_target
        return language if is_target else self.bundle.manifest.target_language


@pytest.fixture(
    scope="module", params=[(family, number) for family in Family for number in range(len(SHAPES))], ids=str
)
def imported(request: pytest.FixtureRequest, pieces: Path, tmp_path_factory: pytest.TempPathFactory) -> Imported:
    family, number = request.param
    directory = tmp_path_factory.mktemp("imported")
    saving = {"max_shard_size": "40KB"} if number == 1 else {}  # the second shape in several files
    theirs = write_checkpoint(directory / "theirs", pieces, family, SHAPES[number], seed=number + 3, **saving)
    (directory / "scratch").mkdir()
    source = read_m2m100(directory / "theirs", OPTIONS, directory / "scratch")
    return Imported(theirs, source, import_model(directory / "theirs", directory / "bundle", OPTIONS))


def ours(one: Imported, sources: Sequence[list[int]], prefixes: Sequence[list[int]], beam_size: int) -> list[list[int]]:
    params = SearchParams(beam_size=beam_size, max_target_tokens=LONGEST)
    jobs = [
        Job(id=number, source_ids=tuple(ids), params=params, prefix_ids=tuple(prefix))
        for number, (ids, prefix) in enumerate(zip(sources, prefixes, strict=True))
    ]
    outcomes = run(EngineLoop(CpuRunner(one.bundle)), jobs)
    results = [outcomes[job.id] for job in jobs]
    return [list(result.hypotheses[0].token_ids) for result in results if isinstance(result, JobResult)]


def generated(one: Imported, source: list[int], prefix: list[int], beam_size: int) -> list[int]:
    """What `generate` gives, without the decoder's start and end-of-sentence."""
    found = one.theirs.generate(
        torch.tensor([source]),
        num_beams=beam_size,
        do_sample=False,
        early_stopping=beam_size > 1,
        max_length=LONGEST + 1,
        forced_bos_token_id=prefix[0] if prefix else None,
        forced_eos_token_id=None,
    )
    tokens: list[int] = found[0].tolist()[1:]
    return tokens[:-1] if tokens[-1] == one.bundle.manifest.config.eos_id else tokens


def least_margin(monkeypatch: pytest.MonkeyPatch, one: Imported, source: list[int], config: BeamConfig) -> float:
    """The smallest difference between neighbours among the candidates of a search."""
    margins: list[float] = []
    best_candidates = reference_search._best_candidates

    def watched(live: Any, log_probs: torch.Tensor, count: int) -> Any:
        best = best_candidates(live, log_probs, count + 1)
        margins.extend(a.log_prob - b.log_prob for a, b in pairwise(best))
        return best[:count]

    with monkeypatch.context() as patch:
        patch.setattr(reference_search, "_best_candidates", watched)
        beam_search(one.reference, source, config)
    return min(margins)


def test_encoder_states_and_log_probabilities_are_those_of_transformers(imported):
    tokenizer = imported.between("en", "de")
    sources = [tokenizer.encode(text) for text in own_sentences(6, seed=3)]
    start = imported.bundle.manifest.config.start_id
    runner = GraphRunner(
        imported.bundle.path("fp32/encoder.onnx"), imported.bundle.path("fp32/decoder_step.onnx"), imported.config
    )
    for source in sources:
        targets = [start, *tokenizer.target_prefix, *source[1:-1]]
        with torch.inference_mode():
            theirs = imported.theirs(input_ids=torch.tensor([source]), decoder_input_ids=torch.tensor([targets]))
            memory = imported.reference.encode(torch.tensor([source]), torch.tensor([len(source)]))

        found = runner.forced_log_probs(np.array([source]), np.array([len(source)], np.int32), np.array([targets]))

        ours = np.stack(list(found), axis=1)
        np.testing.assert_allclose(memory.numpy(), theirs.encoder_last_hidden_state.numpy(), atol=TOLERANCE)
        np.testing.assert_allclose(ours, theirs.logits.log_softmax(dim=-1).numpy(), atol=TOLERANCE)


@pytest.mark.parametrize("beam_size", BEAMS)
def test_tokens_are_those_of_generate_in_any_direction(imported, beam_size, monkeypatch):
    """A batch of ours has all directions in it; transformers gets sentence after sentence."""
    texts = own_sentences(NUM_SENTENCES, seed=beam_size)
    pairs = [("en", "de"), ("fr", imported.target("en")), ("en", imported.target("cs"))]
    tokenizers = [imported.between(*pairs[number % len(pairs)]) for number in range(len(texts))]
    sources = [tokenizer.encode(text) for tokenizer, text in zip(tokenizers, texts, strict=True)]
    prefixes = [tokenizer.target_prefix for tokenizer in tokenizers]

    found = ours(imported, sources, prefixes, beam_size)

    assert len(set(map(tuple, found))) > 1
    for source, prefix, tokens in zip(sources, prefixes, found, strict=True):
        if tokens != generated(imported, source, prefix, beam_size):
            config = BeamConfig(
                beam_size=beam_size,
                max_target_tokens=LONGEST,
                prefix=tuple(prefix),
                profile=imported.bundle.manifest.profile,
            )
            assert least_margin(monkeypatch, imported, source, config) < TOLERANCE


@pytest.mark.parametrize("imported", [(Family.NLLB, 0)], indirect=True, ids=str)
def test_texts_go_in_and_out_in_the_languages_of_their_request(imported):
    text, options = "The old man lost the keys.", TranslateOptions(beam_size=1, max_target_tokens=LONGEST)
    translator = LocalTranslator.open(imported.bundle.directory, threads=1)
    found = {}
    for source, target in (("en", "de"), ("eng_Latn", "fra_Latn"), ("fra", "zh-Hant")):
        request = TranslationRequest(source_language=source, target_language=target)
        plain = replace(options, segmentation=Segmentation.NONE)
        (found[target],) = (one.text for one in translator.translate_all([text], plain, request=request))

    for target, pair in {"de": ("en", "de"), "fra_Latn": ("en", "fr"), "zh-Hant": ("fr", "zh-Hant")}.items():
        tokenizer = imported.between(*pair)
        tokens = generated(imported, tokenizer.encode(text), tokenizer.target_prefix, 1)
        assert found[target] == tokenizer.decode(tokens)
