"""Random weights as a MarianMT checkpoint, and the same as a CTranslate2 model: what an owner has, and the neighbour.

Not a test.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from ctranslate2.converters import transformers as converters

from tests.parity.generate_models import read_marian_model, write_random_marian

SIZES = {
    "d_model": 32,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_layers": 2,
    "decoder_layers": 2,
}


@dataclass(frozen=True)
class MarianModel:
    """A model in both layouts."""

    tokens: list[str]  # by id; the last one is <pad>
    directory: Path  # MarianMT
    ctranslate2: Path


def write_marian(
    directory: Path, tokenizer: Path, *, activation: str = "swish", as_pickle: bool = False
) -> MarianModel:
    """Write a small model, whose search stands in config.json as in old ones, below `directory`."""
    marian, neighbour = directory / "marian", directory / "ctranslate2"
    settings = {**SIZES, "eos_token_id": 0, "activation_function": activation, "forced_eos_token_id": None}
    search = {"max_length": 33, "num_beams": 6}
    write_random_marian(marian, tokenizer, settings, search, seed=1, scale=0.25, end_bias=2.0)
    (marian / "generation_config.json").unlink()
    tokens = list(json.loads((marian / "vocab.json").read_text()))
    described = json.loads((marian / "config.json").read_text()) | search | {"bad_words_ids": [[len(tokens) - 1]]}
    (marian / "config.json").write_text(json.dumps(described))
    _write_ctranslate2(read_marian_model(marian), tokens, neighbour)
    if as_pickle:
        torch.save(read_marian_model(marian).state_dict(), marian / "pytorch_model.bin")
        (marian / "model.safetensors").unlink()
    return MarianModel(tokens, marian, neighbour)


def _write_ctranslate2(model: Any, tokens: list[str], directory: Path) -> None:
    """Write what CTranslate2's own converter makes of the weights; it drops the row of <pad>."""
    spec = converters._MODEL_LOADERS["MarianConfig"].get_model_spec(model)
    spec.register_source_vocabulary(tokens[:-1])
    spec.register_target_vocabulary(tokens[:-1])
    spec.config.unk_token, spec.config.eos_token, spec.config.decoder_start_token = "<unk>", "</s>", "</s>"
    directory.mkdir()
    spec.validate()
    spec.optimize()
    spec.save(str(directory))
