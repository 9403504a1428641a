"""Imported models against CTranslate2 on the files that were imported: tokens, at several beams."""

import random
from collections.abc import Sequence
from pathlib import Path

import ctranslate2
import pytest

from export.importers.command import import_model
from export.importers.foreign import ImportOptions
from model.bundle import Bundle
from model.config import StopRule
from model.tokenizer import load_tokenizer
from service.engine.cpu.runner import CpuRunner
from service.engine.wire import SearchParams
from tests.fakes.engine_runs import translate
from tests.parity.marian_model import MarianModel, write_marian
from tests.parity.model_pair import num_sentences

BEAMS, LONGEST = (1, 4, 6), 64
NUM_SENTENCES = num_sentences(16)
OPTIONS = ImportOptions(source_language="en", target_language="de", profile=StopRule.CTRANSLATE2)


def tokens_of(bundle: Bundle, sources: Sequence[Sequence[int]], beam_size: int) -> list[list[str]]:
    """What our engine gives of source ids."""
    found = translate(CpuRunner(bundle), sources, SearchParams(beam_size=beam_size, max_target_tokens=LONGEST))
    vocabulary = load_tokenizer(bundle.directory, bundle.manifest.tokenizer)._vocabularies.target  # type: ignore[union-attr]
    return [[vocabulary.tokens[token] for token in best.token_ids] for best, *_ in found]


def neighbour(directory: Path, sources: Sequence[Sequence[str]], beam_size: int) -> list[list[str]]:
    """What CTranslate2 gives of source tokens."""
    translator = ctranslate2.Translator(str(directory), device="cpu", compute_type="float32", intra_threads=1)
    results = translator.translate_batch(
        list(map(list, sources)), beam_size=beam_size, min_decoding_length=0, max_decoding_length=LONGEST
    )
    return [result.hypotheses[0] for result in results]


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
