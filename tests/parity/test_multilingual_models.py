"""Imported models of many languages against transformers on the checkpoints that were imported."""

from pathlib import Path
from typing import Any

import pytest

from export.importers.command import import_model
from export.importers.foreign import ImportOptions
from export.importers.m2m100 import read_m2m100
from export.verify import reference_model
from model.config import StopRule
from model.tokenizer import load_tokenizer
from tests.fakes.own_text import own_sentences
from tests.parity.model_pair import SEARCHES, Pair, num_sentences, write_ctranslate2_of
from tests.parity.multilingual_checkpoints import SHAPES, Family, train_pieces, write_checkpoint

LONGEST = 24

SMALL = [(Family.NLLB, 0), (Family.M2M100, 1), (Family.MBART50, 2), (Family.MBART, 0)]  # each family, each shape
OTHERS = [(family, number) for family in Family for number in range(len(SHAPES)) if (family, number) not in SMALL]
OPTIONS = ImportOptions(source_language="en", target_language="de", profile=StopRule.CTRANSLATE2)


@pytest.fixture(scope="module")
def pieces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train_pieces(tmp_path_factory.mktemp("pieces") / "sentencepiece.bpe.model")


@pytest.fixture(
    scope="module", params=[*SMALL, *(pytest.param(one, marks=pytest.mark.thorough) for one in OTHERS)], ids=str
)
def pair(request: pytest.FixtureRequest, pieces: Path, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """A batch of ours has all directions in it; transformers gets one direction after the other."""
    family, number = request.param
    directory = tmp_path_factory.mktemp("imported")
    saving: dict[str, Any] = {"max_shard_size": "40KB"} if number == 1 else {}  # the second shape in several files
    theirs = write_checkpoint(directory / "theirs", pieces, family, SHAPES[number], seed=number + 3, **saving)
    theirs.generation_config.update(max_length=LONGEST + 1, forced_eos_token_id=None)
    (directory / "scratch").mkdir()
    source = read_m2m100(directory / "theirs", OPTIONS, directory / "scratch")
    bundle = import_model(directory / "theirs", directory / "bundle", OPTIONS)
    texts, described = own_sentences(num_sentences(40), seed=4), bundle.manifest.tokenizer
    pairs = [
        (one, other if described.language(other).is_target else bundle.manifest.target_language)
        for one, other in (("en", "de"), ("fr", "en"), ("en", "cs"))
    ]
    tokenizer = load_tokenizer(bundle.directory, described)
    tokenizers = [tokenizer.between(*pairs[place % len(pairs)]) for place in range(len(texts))]
    return Pair(
        bundle,
        reference_model(source.config, source.state),
        theirs,
        sources=[one.encode(text) for one, text in zip(tokenizers, texts, strict=True)],
        prefixes=[list(one.target_prefix) for one in tokenizers],
    )


def test_encoder_states_and_log_probabilities_are_those_of_transformers(pair):
    pair.require_log_probs_of_transformers()


@pytest.mark.parametrize(("beam_size", "early_stopping"), SEARCHES)
@pytest.mark.timeout(7200)
def test_tokens_are_those_of_generate_in_any_direction(pair, beam_size, early_stopping):
    pair.require_tokens_of_generate(beam_size, early_stopping=early_stopping)


@pytest.mark.usefixtures("each_engine")
def test_tokens_are_those_of_ctranslate2(pair, tmp_path):
    directory = write_ctranslate2_of(pair.theirs, tmp_path / "neighbour")
    for beam_size in (1, 4):
        pair.require_tokens_of_ctranslate2(directory, beam_size)
