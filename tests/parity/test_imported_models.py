"""Imported models against CTranslate2 on the files that were imported: tokens, at several beams.

CTranslate2 runs in float32, which it makes of whatever type the file has, as the importer does.
"""

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import ctranslate2
import pytest

from export.importers.command import import_model
from export.importers.foreign import ImportOptions
from export.source import ExportSource
from model.bundle import Bundle, default_bundle_dir
from model.config import StopRule
from model.tokenizer import load_tokenizer
from service.engine.cpu.runner import CpuRunner
from service.engine.wire import SearchParams
from tests.fakes.engine_runs import translate
from tests.fakes.own_text import own_sentences
from tests.parity.ctranslate2_model import write_ctranslate2_model
from tests.parity.marian_model import MarianModel, write_marian
from tests.parity.model_pair import num_sentences

BEAMS = (1, 4, 6)
NUM_SENTENCES = num_sentences(16)
OPTIONS = ImportOptions(source_language="en", target_language="de", profile=StopRule.CTRANSLATE2)


def tokens_of(bundle: Bundle, sources: Sequence[Sequence[int]], beam_size: int, longest: int = 64) -> list[list[str]]:
    """What our engine gives of source ids."""
    found = translate(CpuRunner(bundle), sources, SearchParams(beam_size=beam_size, max_target_tokens=longest))
    vocabulary = load_tokenizer(bundle.directory, bundle.manifest.tokenizer)._vocabularies.target  # type: ignore[union-attr]
    return [[vocabulary.tokens[token] for token in best.token_ids] for best, *_ in found]


def neighbour(directory: Path, sources: Sequence[Sequence[str]], beam_size: int, longest: int = 64) -> list[list[str]]:
    """What CTranslate2 gives of source tokens."""
    translator = ctranslate2.Translator(str(directory), device="cpu", compute_type="float32", intra_threads=1)
    results = translator.translate_batch(
        list(map(list, sources)), beam_size=beam_size, min_decoding_length=0, max_decoding_length=longest
    )
    return [result.hypotheses[0] for result in results]


@pytest.mark.usefixtures("each_engine")
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("quantization", "beams"),
    [
        ("int8", (1, 4)),
        *(pytest.param(kind, (4,), marks=pytest.mark.thorough) for kind in (None, "int16", "float16")),
    ],
)
def test_our_trained_weights_come_back_as_ctranslate2_has_them(quantization, beams, tmp_path):
    source = ExportSource.load(default_bundle_dir())
    directory = write_ctranslate2_model(
        source.config, source.state, source.tokenizer_path, tmp_path / "model", quantization=quantization
    )
    (directory / "sentencepiece.model").write_bytes(source.tokenizer_path.read_bytes())
    bundle = import_model(directory, tmp_path / "bundle", replace(OPTIONS, source_eos=True))
    tokenizer = load_tokenizer(bundle.directory, bundle.manifest.tokenizer)
    names = tokenizer._vocabularies.source.tokens  # type: ignore[union-attr]
    sources = [tokenizer.encode(text) for text in own_sentences(NUM_SENTENCES, seed=3)]

    for beam_size in beams:
        theirs = neighbour(directory, [[names[token] for token in ids] for ids in sources], beam_size, 256)
        assert tokens_of(bundle, sources, beam_size, 256) == theirs


@pytest.fixture(
    scope="module",
    params=[
        {"activation": "swish"},
        {"activation": "relu", "as_pickle": True},
    ],
    ids=["safetensors", "pickle"],
)
def model(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, tiny_tokenizer_path: Path
) -> MarianModel:
    return write_marian(tmp_path_factory.mktemp("marian"), tiny_tokenizer_path, **request.param)


@pytest.mark.usefixtures("each_engine")
@pytest.mark.parametrize("layout", ["marian", "ctranslate2"])
def test_random_sentences_of_marian_get_ctranslate2s_tokens(model, layout, tmp_path):
    directory = model.directory
    if layout == "ctranslate2":
        directory = model.ctranslate2
        (directory / "source.spm").write_bytes((model.directory / "source.spm").read_bytes())
    bundle = import_model(directory, tmp_path / "bundle", OPTIONS)
    choice = random.Random(4)
    sources = [
        [*(choice.randrange(1, len(model.tokens) - 2) for _ in range(choice.randint(1, 20))), 0]
        for _ in range(NUM_SENTENCES)
    ]

    for beam_size in BEAMS:
        theirs = neighbour(model.ctranslate2, [[model.tokens[token] for token in ids] for ids in sources], beam_size)

        assert tokens_of(bundle, sources, beam_size) == theirs
        assert len(set(map(tuple, theirs))) > NUM_SENTENCES // 8
