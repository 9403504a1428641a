"""Random weights as a MarianMT checkpoint, and the same as a CTranslate2 model: what an owner has, and the neighbour.

Not a test.  Both are written from one state with names of `model/transformer.py`, by the rules of transformers'
models/marian and of CTranslate2's converter: it drops the row of <pad> and starts from a zero embedding.
"""

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from ctranslate2.specs import common_spec, transformer_spec
from numpy.typing import NDArray
from safetensors.torch import save_file

from export.importers.foreign import half_sinusoids
from model.config import Activation, ModelConfig, NormPlacement
from model.transformer import Transformer
from tests.fakes.tiny_model import state_of, tiny_model
from tests.parity.ctranslate2_model import _set_stack, pieces

_ACTIVATIONS = {
    Activation.RELU: common_spec.Activation.RELU,
    Activation.SWISH: common_spec.Activation.SWISH,
    Activation.GELU: common_spec.Activation.GELU,
}
_NAMES = {
    "self_attention_norm": "self_attn_layer_norm",
    "cross_attention_norm": "encoder_attn_layer_norm",
    "feed_forward_norm": "final_layer_norm",
    "feed_forward.inner": "fc1",
    "feed_forward.outer": "fc2",
    "self_attention": "self_attn",
    "cross_attention": "encoder_attn",
    "query": "q_proj",
    "key": "k_proj",
    "value": "v_proj",
    "output": "out_proj",
}


@dataclass(frozen=True)
class MarianModel:
    """A model in both layouts."""

    config: ModelConfig
    state: Mapping[str, NDArray[np.float32]]
    tokens: list[str]  # by id; the last one is <pad>
    directory: Path  # MarianMT
    ctranslate2: Path


def write_marian(
    directory: Path, tokenizer: Path, *, activation: Activation = Activation.SWISH, as_pickle: bool = False
) -> MarianModel:
    """Write a small model with the pieces of a SentencePiece model in another order, below `directory`."""
    text = sorted(set(pieces(tokenizer)) - {"<pad>", "<unk>", "<s>", "</s>"})
    tokens = ["</s>", *text[:7], "<unk>", *text[7:], "<pad>"]
    config = ModelConfig(
        vocab_size=len(tokens),
        d_model=32,
        d_ff=64,
        num_heads=4,
        num_encoder_layers=2,
        num_decoder_layers=2,
        norm_placement=NormPlacement.POST,
        max_positions=64,
        pad_id=len(tokens) - 1,
        start_id=len(tokens) - 1,
        eos_id=0,
        suppressed_ids=(len(tokens) - 1,),
        projection_bias=True,
        activation=activation,
    )
    state = _random_state(config)
    model = MarianModel(config, state, tokens, directory / "marian", directory / "ctranslate2")
    _write_checkpoint(model, tokenizer, as_pickle=as_pickle)
    _write_ctranslate2(model)
    return model


def _random_state(config: ModelConfig) -> dict[str, NDArray[np.float32]]:
    """Parameters of a model that is sure of itself, with a bias that makes it end sentences."""
    model: Transformer = tiny_model(replace(config, position_table=False), seed=5)
    with torch.no_grad():
        model.embedding.weight.mul_(2.0)
        model.embedding.weight[config.pad_id].zero_()
    state = {name: np.array(value) for name, value in state_of(model).items()}
    state["projection_bias"] = np.random.default_rng(2).normal(0.0, 1.0, config.vocab_size).astype(np.float32)
    state["projection_bias"][config.eos_id] += 3.0
    state["projection_bias"][config.pad_id] = 0.0
    return state


def _write_checkpoint(model: MarianModel, tokenizer: Path, *, as_pickle: bool) -> None:
    directory, config = model.directory, model.config
    directory.mkdir(parents=True)
    tensors = {"model.shared.weight": model.state["embedding.weight"]}
    tensors["final_logits_bias"] = model.state["projection_bias"][None]
    for key, value in model.state.items():
        if ".layers." in key:
            name = f"model.{key}"
            for ours, theirs in _NAMES.items():
                name = name.replace(f".{ours}.", f".{theirs}.")
            tensors[name] = value
    found = {name: torch.from_numpy(np.array(value)) for name, value in tensors.items()}
    if as_pickle:
        torch.save(found, directory / "pytorch_model.bin")
    else:
        save_file(found, directory / "model.safetensors")
    settings = {
        "model_type": "marian",
        "activation_function": str(config.activation),
        "d_model": config.d_model,
        "encoder_ffn_dim": config.d_ff,
        "decoder_ffn_dim": config.d_ff,
        "encoder_attention_heads": config.num_heads,
        "decoder_attention_heads": config.num_heads,
        "encoder_layers": config.num_encoder_layers,
        "decoder_layers": config.num_decoder_layers,
        "max_position_embeddings": config.max_positions,
        "vocab_size": config.vocab_size,
        "pad_token_id": config.pad_id,
        "decoder_start_token_id": config.start_id,
        "eos_token_id": config.eos_id,
        "bad_words_ids": [[config.pad_id]],
        "scale_embedding": True,
        "static_position_embeddings": True,
        "normalize_before": False,
        "max_length": 33,
        "num_beams": 6,
    }
    (directory / "config.json").write_text(json.dumps(settings))
    (directory / "tokenizer_config.json").write_text(json.dumps({"source_lang": "en", "target_lang": "de"}))
    vocabulary = {token: number for number, token in enumerate(model.tokens)}
    (directory / "vocab.json").write_text(json.dumps(vocabulary))
    for name in ("source.spm", "target.spm"):
        shutil.copyfile(tokenizer, directory / name)


def _write_ctranslate2(model: MarianModel) -> None:
    config, state = model.config, model.state
    spec = transformer_spec.TransformerSpec.from_config(
        (config.num_encoder_layers, config.num_decoder_layers),
        config.num_heads,
        pre_norm=False,
        activation=_ACTIVATIONS[config.activation],
    )
    spec.decoder.start_from_zero_embedding = True
    for stack, name in ((spec.encoder, "encoder"), (spec.decoder, "decoder")):
        stack.scale_embeddings = True
        stack.position_encodings.encodings = half_sinusoids(config.max_positions, config.d_model)
        _set_stack(stack, config, state, name)
    table = np.ascontiguousarray(state["embedding.weight"][:-1])
    spec.encoder.embeddings[0].weight = table
    spec.decoder.embeddings.weight = table
    spec.decoder.projection.weight = table
    spec.decoder.projection.bias = np.ascontiguousarray(state["projection_bias"][:-1])
    spec.register_source_vocabulary(model.tokens[:-1])
    spec.register_target_vocabulary(model.tokens[:-1])
    spec.config.unk_token, spec.config.eos_token, spec.config.decoder_start_token = "<unk>", "</s>", "</s>"
    model.ctranslate2.mkdir()
    spec.validate()
    spec.optimize()
    spec.save(str(model.ctranslate2))
