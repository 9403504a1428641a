"""An OpenNMT-py checkpoint (.pt, version 3) becomes what the export starts from.

Names as in OpenNMT-py's onmt/models and onmt/modules.  Checkpoints of older versions keep their vocabularies as objects
and are refused: nothing in a file is run.
"""

from argparse import Namespace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from export.builder import Array
from export.importers.checkpoint import CheckpointWeights, load_pickle, text_of
from export.importers.foreign import (
    ForeignModelError,
    ImportOptions,
    State,
    blaming,
    imported,
    index_of,
    whole_number,
    write_tokenizer,
)
from export.importers.language_tokens import codes_in, with_languages
from export.source import ExportSource
from model.config import Activation, ModelConfig

_PARTS = ("model", "generator", "vocab", "opt")
_ACTIVATIONS = {"relu": Activation.RELU, "gelu": Activation.GELU, "silu": Activation.SWISH}
# Of the options, silent ones are as the first value says.
_ONLY: dict[str, tuple[Any, ...]] = {
    "encoder_type": ("transformer",),
    "decoder_type": ("transformer",),
    "position_encoding": (True,),
    "self_attn_type": ("scaled-dot", "scaled-dot-flash"),  # the same numbers
    "max_relative_positions": (0,),
    "layer_norm": ("standard",),
    "generator_function": ("softmax",),
    "copy_attn": (False,),
    "multiquery": (False,),
    "num_kv": (0,),
    "parallel_residual": (False,),
    "sliding_window": (0,),
    "num_experts": (0,),
}
_ATTENTION = {"query": "linear_query", "key": "linear_keys", "value": "linear_values", "output": "final_linear"}
_NORM_EPSILON = 1e-6
_EMBEDDINGS, _POSITIONS = "embeddings.make_embedding.emb_luts.0.weight", "embeddings.make_embedding.pe.pe"


def is_opennmt_py(directory: Path) -> bool:
    """Return whether the directory has a checkpoint of OpenNMT-py."""
    return any(directory.glob("*.pt"))


def read_opennmt_py(directory: Path, options: ImportOptions, scratch: Path) -> ExportSource:
    """Read a model.

    Args:
        directory: with one `.pt` file, and perhaps SentencePiece models.
        options: what the owner says.
        scratch: an empty directory; gets the tokenizer's files.

    Raises:
        ForeignModelError: the model is damaged, or has parts that are not supported.
    """
    paths = sorted(directory.glob("*.pt"))
    if len(paths) != 1:
        raise ForeignModelError(f"{directory} has {len(paths)} .pt files: leave the one to import")
    settings, tensors, source, target = _parts(paths[0])
    config = _config(settings, tensors, source, target, paths[0])
    if codes := codes_in(source):
        raise ForeignModelError(
            f"{paths[0]} has {len(codes)} language codes ({codes[0]}, {codes[1]}, ...) and does not say where they "
            "stand: import the model from the files of transformers or CTranslate2"
        )
    files = write_tokenizer(scratch, [directory], options, source, target, source_eos=False)
    tokenizer, languages = with_languages(files, source, ("", ""), options)
    return imported(
        options,
        directory,
        scratch,
        languages,
        config=config,
        state=_state(CheckpointWeights(paths[0], {name: tensor.detach for name, tensor in tensors.items()}), config),
        tokenizer=tokenizer,
    )


def _parts(path: Path) -> tuple[dict[str, Any], dict[str, torch.Tensor], list[str], list[str]]:
    """Return options, tensors, and the vocabularies of both sides."""
    found = load_pickle(path, [Namespace])
    if not isinstance(found, dict) or not all(name in found for name in _PARTS):
        raise ForeignModelError(f"{path} is no checkpoint of OpenNMT-py: it needs {', '.join(_PARTS)}")
    model, generator, vocabulary, options = (found[name] for name in _PARTS)
    if not all(isinstance(part, dict) for part in (model, generator, vocabulary)) or not isinstance(options, Namespace):
        raise ForeignModelError(f"{path} is no checkpoint of OpenNMT-py's version 3: a part has another type")
    tensors = {**model, **{f"generator.{name}": tensor for name, tensor in generator.items()}}
    if not all(isinstance(name, str) and isinstance(tensor, torch.Tensor) for name, tensor in tensors.items()):
        raise ForeignModelError(f"{path} has parameters that are no tensors")
    for side in ("src", "tgt"):
        tokens = vocabulary.get(side)
        if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
            raise ForeignModelError(f"{path}: vocabulary {side} is no list of tokens")
    if vocabulary.get("src_feats"):
        raise ForeignModelError(f"{path} has several features for each source token, which is not supported")
    plain = {name: one for name, one in vars(options).items() if isinstance(one, (bool, int, float, str, list))}
    return plain, tensors, vocabulary["src"], vocabulary["tgt"]


def _config(
    settings: dict[str, Any], tensors: dict[str, torch.Tensor], source: list[str], target: list[str], path: Path
) -> ModelConfig:
    for name in ("heads", "position_encoding"):  # no tensor shows a wrong guess
        if name not in settings:
            raise ForeignModelError(f"{path}: {name} is missing among the options of the training")
    for name, values in _ONLY.items():
        if settings.get(name, values[0]) not in values:
            raise ForeignModelError(
                f"{path}: {name} is {settings[name]!r:.60}, only {' or '.join(map(str, values))} is supported"
            )
    activation = text_of(settings, "pos_ffn_activation_fn") or "relu"
    if activation not in _ACTIVATIONS:
        raise ForeignModelError(
            f"{path}: pos_ffn_activation_fn is {activation!r:.60}, supported are {', '.join(_ACTIVATIONS)}"
        )
    number = partial(whole_number, settings, path=path)
    tables = [tensors.get(f"{stack}.{name}") for name in (_EMBEDDINGS, _POSITIONS) for stack in ("encoder", "decoder")]
    if any(table is None or table.dim() < 2 for table in tables):
        raise ForeignModelError(f"{path} does not have the embeddings and position tables of both stacks")
    source_table, target_table, *positions = [table for table in tables if table is not None]
    with blaming(path):
        return ModelConfig(
            vocab_size=len(source),
            target_vocab_size=len(target),
            d_model=source_table.size(1),
            d_ff=number("transformer_ff", 2048),
            num_heads=number("heads", 8),
            num_encoder_layers=number("enc_layers", 2),
            num_decoder_layers=number("dec_layers", 2),
            max_positions=positions[0].size(0),
            pad_id=0,
            unk_id=index_of(source, "<unk>", path),
            start_id=index_of(target, text_of(settings, "decoder_start_token") or "<s>", path),
            eos_id=index_of(target, "</s>", path),
            shared_embeddings=_is_same(source_table, target_table),
            tied_projection=_is_same(tensors.get("generator.weight"), target_table),
            projection_bias="generator.bias" in tensors,
            position_table=True,
            separate_positions=not _is_same(*positions),
            norm_epsilon=settings.get("norm_eps", _NORM_EPSILON),
            activation=_ACTIVATIONS[activation],
        )


def _is_same(one: torch.Tensor | None, other: torch.Tensor) -> bool:
    return one is not None and one.shape == other.shape and one.dtype == other.dtype and torch.equal(one, other)


def _state(weights: CheckpointWeights, config: ModelConfig) -> State:
    V, W, D, P = config.vocab_size, config.num_target_tokens, config.d_model, config.max_positions
    tables = {stack: weights.take(f"{stack}.{_POSITIONS}", (P, 1, D)).reshape(P, D) for stack in ("encoder", "decoder")}
    state = {"positions": tables["encoder"], "embedding.weight": weights.take(f"encoder.{_EMBEDDINGS}", (V, D))}
    target, projection = weights.take(f"decoder.{_EMBEDDINGS}", (W, D)), weights.take("generator.weight", (W, D))
    if config.separate_positions:
        state["target_positions"] = tables["decoder"]
    if not config.shared_embeddings:
        state["target_embedding.weight"] = target
    if not config.tied_projection:
        state["projection.weight"] = projection
    if config.projection_bias:
        state["projection_bias"] = weights.take("generator.bias", (W,))
    for number in range(config.num_encoder_layers):
        key, name = f"encoder.layers.{number}", f"encoder.transformer.{number}"
        state |= _sublayer(weights, f"{key}.self_attention", f"{name}.self_attn", f"{name}.layer_norm", D)
        state |= _feed_forward(weights, f"{key}.feed_forward", f"{name}.feed_forward", config)
    for number in range(config.num_decoder_layers):
        key, name = f"decoder.layers.{number}", f"decoder.transformer_layers.{number}"
        state |= _sublayer(weights, f"{key}.self_attention", f"{name}.self_attn", f"{name}.layer_norm_1", D)
        state |= _sublayer(weights, f"{key}.cross_attention", f"{name}.context_attn", f"{name}.layer_norm_2", D)
        state |= _feed_forward(weights, f"{key}.feed_forward", f"{name}.feed_forward", config)
    for stack in ("encoder", "decoder"):
        state |= weights.pair(f"{stack}.norm", f"{stack}.layer_norm", (D,))
    weights.require_all_taken()
    return state


def _sublayer(weights: CheckpointWeights, key: str, name: str, norm: str, D: int) -> State:
    state = weights.pair(f"{key}_norm", norm, (D,))
    for ours, theirs in _ATTENTION.items():
        state |= _linear(weights, f"{key}.{ours}", f"{name}.{theirs}", (D, D))
    return state


def _feed_forward(weights: CheckpointWeights, key: str, name: str, config: ModelConfig) -> State:
    D, F = config.d_model, config.d_ff
    state = weights.pair(f"{key}_norm", f"{name}.layer_norm", (D,))
    state |= _linear(weights, f"{key}.inner", f"{name}.w_1", (F, D))
    return state | _linear(weights, f"{key}.outer", f"{name}.w_2", (D, F))


def _linear(weights: CheckpointWeights, key: str, name: str, shape: tuple[int, int]) -> State:
    """Return a layer, whose bias is zero where the model has none."""
    bias: Array = np.zeros(shape[0], np.float32)
    if f"{name}.bias" in weights:
        bias = weights.take(f"{name}.bias", shape[:1])
    return {f"{key}.weight": weights.take(f"{name}.weight", shape), f"{key}.bias": bias}
