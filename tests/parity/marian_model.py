"""Random weights as a MarianMT checkpoint, and the same as a CTranslate2 model: what an owner has, and the neighbour.

Not a test.  CTranslate2's own converter reads the checkpoint's tensors, from modules with the names of transformers';
it drops the row of <pad> and starts from a zero embedding.
"""

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from ctranslate2.converters import transformers as converters
from ctranslate2.specs import common_spec, transformer_spec
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import nn

from export.importers.foreign import half_sinusoids
from model.config import Activation, ModelConfig, NormPlacement
from model.transformer import Transformer
from tests.fakes.tiny_model import state_of, tiny_model
from tests.parity.ctranslate2_model import pieces, set_stack

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
    tokens: list[str]  # of sources, by id; the last one is <pad>
    target_tokens: list[str]
    directory: Path  # MarianMT
    ctranslate2: Path


def write_marian(
    directory: Path,
    tokenizer: Path,
    *,
    activation: Activation = Activation.SWISH,
    as_pickle: bool = False,
    is_shared: bool = True,
) -> MarianModel:
    """Write a small model with the pieces of a SentencePiece model in another order, below `directory`.

    Without `is_shared`, the target has a vocabulary and an embedding of its own.
    """
    text = sorted(set(pieces(tokenizer)) - {"<pad>", "<unk>", "<s>", "</s>"})
    tokens = ["</s>", *text[:7], "<unk>", *text[7:], "<pad>"]
    target_tokens = tokens if is_shared else ["<unk>", *reversed(text[10:]), "</s>", "<pad>"]
    pad = len(target_tokens) - 1
    config = ModelConfig(
        vocab_size=len(tokens),
        target_vocab_size=len(target_tokens),
        shared_embeddings=is_shared,
        d_model=32,
        d_ff=64,
        num_heads=4,
        num_encoder_layers=2,
        num_decoder_layers=2,
        norm_placement=NormPlacement.POST,
        max_positions=64,
        pad_id=len(tokens) - 1,
        start_id=pad,
        eos_id=target_tokens.index("</s>"),
        suppressed_ids=(pad,),
        projection_bias=True,
        activation=activation,
    )
    state = _random_state(config)
    model = MarianModel(config, state, tokens, target_tokens, directory / "marian", directory / "ctranslate2")
    _write_checkpoint(model, tokenizer, as_pickle=as_pickle)
    _write_ctranslate2(model)
    return model


def _random_state(config: ModelConfig) -> dict[str, NDArray[np.float32]]:
    """Parameters of a model that is sure of itself, with a bias that makes it end sentences."""
    model: Transformer = tiny_model(replace(config, position_table=False), seed=5)
    with torch.no_grad():
        model.embedding.weight.mul_(2.0)
        model.embedding.weight[config.pad_id].zero_()
        if not config.shared_embeddings:
            model.target_embedding.weight.mul_(2.0)
            model.target_embedding.weight[config.start_id].zero_()
    state = {name: np.array(value) for name, value in state_of(model).items()}
    state["projection_bias"] = np.random.default_rng(2).normal(0.0, 1.0, config.num_target_tokens).astype(np.float32)
    state["projection_bias"][config.eos_id] += 3.0
    state["projection_bias"][config.start_id] = 0.0
    return state


def _write_checkpoint(model: MarianModel, tokenizer: Path, *, as_pickle: bool) -> None:
    directory, config = model.directory, model.config
    directory.mkdir(parents=True)
    tensors = {"model.shared.weight": model.state["embedding.weight"]}
    if not config.shared_embeddings:
        tensors = {
            "model.encoder.embed_tokens.weight": model.state["embedding.weight"],
            "model.decoder.embed_tokens.weight": model.state["target_embedding.weight"],
        }
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
        "decoder_vocab_size": config.num_target_tokens,
        "share_encoder_decoder_embeddings": config.shared_embeddings,
        "pad_token_id": config.start_id,
        "decoder_start_token_id": config.start_id,
        "eos_token_id": config.eos_id,
        "bad_words_ids": [[config.start_id]],
        "scale_embedding": True,
        "static_position_embeddings": True,
        "normalize_before": False,
        "max_length": 33,
        "num_beams": 6,
    }
    (directory / "config.json").write_text(json.dumps(settings))
    (directory / "tokenizer_config.json").write_text(
        json.dumps({"source_lang": "en", "target_lang": "de", "separate_vocabs": not config.shared_embeddings})
    )
    for name, tokens in (("vocab.json", model.tokens), ("target_vocab.json", model.target_tokens)):
        (directory / name).write_text(json.dumps({token: number for number, token in enumerate(tokens)}))
    for name in ("source.spm", "target.spm"):
        shutil.copyfile(tokenizer, directory / name)


def _write_ctranslate2(model: MarianModel) -> None:
    """Write what CTranslate2's own converter makes of the checkpoint's tensors."""
    spec = _converted(model) if model.config.shared_embeddings else _separate(model)
    spec.register_source_vocabulary(model.tokens[:-1])
    spec.register_target_vocabulary(model.target_tokens[:-1])
    spec.config.unk_token, spec.config.eos_token, spec.config.decoder_start_token = "<unk>", "</s>", "</s>"
    model.ctranslate2.mkdir()
    spec.validate()
    spec.optimize()
    spec.save(str(model.ctranslate2))


def _converted(model: MarianModel) -> Any:
    """Return what the converter makes of a module that is built like transformers' MarianMTModel."""
    weights = model.directory / "model.safetensors"
    pickled = model.directory / "pytorch_model.bin"
    tensors = load_file(weights) if weights.exists() else torch.load(pickled, weights_only=True)
    module = _Modules(model.config)
    module.load_state_dict({**tensors, "lm_head.weight": tensors["model.shared.weight"]})
    layers = SimpleNamespace(Conv1D=type(None))  # it looks for those of GPT-2
    with patch.object(converters, "transformers", layers, create=True):
        return converters.MarianMTLoader().get_model_spec(module.eval())


class _Modules(nn.Module):
    """The modules of transformers' MarianMTModel by name, without what they compute."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.model = nn.Module()
        self.model.shared = nn.Embedding(config.vocab_size, config.d_model)
        for stack, num_layers in (("encoder", config.num_encoder_layers), ("decoder", config.num_decoder_layers)):
            layers = nn.ModuleList(_layer(config, has_memory=stack == "decoder") for _ in range(num_layers))
            setattr(self.model, stack, nn.Module())
            part: Any = getattr(self.model, stack)
            part.layers = layers
            part.embed_scale = config.d_model**0.5
            table = torch.from_numpy(half_sinusoids(config.max_positions, config.d_model))
            part.embed_positions = SimpleNamespace(weight=table)
            part.embed_tokens = SimpleNamespace(weight=self.model.shared.weight)
        self.lm_head = nn.Linear(config.d_model, config.vocab_size, bias=False)
        self.register_buffer("final_logits_bias", torch.zeros(1, config.vocab_size))
        self.config = SimpleNamespace(
            encoder_layers=config.num_encoder_layers,
            decoder_layers=config.num_decoder_layers,
            encoder_attention_heads=config.num_heads,
            activation_function=str(config.activation),
        )


def _layer(config: ModelConfig, *, has_memory: bool) -> nn.Module:
    layer, D = nn.Module(), config.d_model
    for name in ("self_attn", "encoder_attn")[: 1 + has_memory]:
        attention = nn.Module()
        for part in ("q_proj", "k_proj", "v_proj", "out_proj"):
            setattr(attention, part, nn.Linear(D, D))
        setattr(layer, name, attention)
        setattr(layer, f"{name}_layer_norm", nn.LayerNorm(D))
    layer.fc1, layer.fc2 = nn.Linear(D, config.d_ff), nn.Linear(config.d_ff, D)
    layer.final_layer_norm = nn.LayerNorm(D)
    return layer


def _separate(model: MarianModel) -> Any:
    """Return the model with two vocabularies, which the converter cannot make: without <pad> on either side."""
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
        set_stack(stack, config, state, name)
    spec.encoder.embeddings[0].weight = np.ascontiguousarray(state["embedding.weight"][:-1])
    table = np.ascontiguousarray(state["target_embedding.weight"][:-1])
    spec.decoder.embeddings.weight = spec.decoder.projection.weight = table
    spec.decoder.projection.bias = np.ascontiguousarray(state["projection_bias"][:-1])
    return spec
