"""MarianMT and our own model against `generate` of transformers: log-probabilities of steps, and the tokens."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from export.importers.command import import_model
from export.importers.foreign import ImportOptions
from export.importers.marian import read_marian
from export.verify import reference_model
from tests.parity.generate_models import (
    read_marian_model,
    write_random_marian,
)
from tests.parity.model_pair import SEARCHES, Pair, num_sentences

NUM_SENTENCES = num_sentences(20)
SIZES = {"encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4}
# Settings of the model, settings of `generate`, and weights with which lengths differ, and so do the two searches.
SHAPES: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "classic": (
        {**SIZES, "d_model": 32, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "eos_token_id": 0,
         "activation_function": "swish", "forced_eos_token_id": None},
        {},
        {"seed": 1, "scale": 0.25, "end_bias": 2.0},
    ),
    "tc-big": (
        {**SIZES, "d_model": 48, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "eos_token_id": 51,
         "activation_function": "relu", "encoder_layers": 3, "forced_eos_token_id": 51},
        {"renormalize_logits": True},
        {"seed": 0, "scale": 0.3, "end_bias": 5.0},
    ),
    "two vocabularies": (
        {**SIZES, "d_model": 32, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "eos_token_id": 7,
         "activation_function": "gelu", "share_encoder_decoder_embeddings": False, "forced_eos_token_id": 7},
        {"length_penalty": 1.3},
        {"seed": 1, "scale": 0.4, "end_bias": 3.0},
    ),
}  # fmt: skip


@pytest.fixture(scope="module", params=SHAPES)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, tiny_tokenizer_path: Path) -> Pair:
    directory = tmp_path_factory.mktemp("generate")
    settings, generation, weights = SHAPES[request.param]
    write_random_marian(directory / "marian", tiny_tokenizer_path, settings, generation, **weights)
    (directory / "scratch").mkdir()
    source = read_marian(directory / "marian", ImportOptions(), directory / "scratch")
    bundle = import_model(directory / "marian", directory / "bundle", ImportOptions())
    theirs = read_marian_model(directory / "marian")
    rng, config = np.random.default_rng(4), source.config
    lengths = rng.integers(1, 20, NUM_SENTENCES)
    sources = [[*rng.integers(9, config.vocab_size - 2, n).tolist(), config.eos_id] for n in lengths]
    return Pair(bundle, reference_model(config, source.state), theirs, sources)


def test_encoder_states_and_log_probabilities_are_those_of_transformers(pair):
    pair.require_log_probs_of_transformers()


@pytest.mark.parametrize(("beam_size", "early_stopping"), SEARCHES)
@pytest.mark.timeout(7200)
def test_random_models_write_the_tokens_of_generate(pair, beam_size, early_stopping):
    pair.require_tokens_of_generate(beam_size, early_stopping=early_stopping)
