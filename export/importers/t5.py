"""Checkpoints of T5, mT5 and MADLAD in the layout of Hugging Face.

Names and defaults as in transformers' models/t5.  T5 does not multiply queries by d^-0.5, and its version 1.0
multiplies the states before the projection by D^-0.5.  The graphs know neither: the importer changes the weights of the
queries and of the decoder's last norm instead.  Tables of buckets become tables of distances.
"""

import math
import re
from collections.abc import Container
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from export.builder import Array
from export.importers.checkpoint import (
    CheckpointWeights,
    flag,
    model_type_of,
    read_checkpoint_settings,
    with_generation,
)
from export.importers.foreign import (
    SOURCE_PIECES,
    SOURCE_VOCABULARY,
    ForeignModelError,
    ImportOptions,
    State,
    blaming,
    copy_pieces,
    imported,
    read_pieces,
    require_keys,
    stored_float32,
    whole_number,
    write_vocabulary,
)
from export.importers.language_tokens import added_tokens, choose_pair, language_of
from export.source import ExportSource
from model.config import Activation, ModelConfig
from model.languages import Language
from model.manifest import TARGET_LANGUAGE, TokenizerFiles, TokenizerKind

_KINDS = ("t5", "mt5")
_PIECES_NAME = "spiece.model"
_ONLY = {"is_encoder_decoder": True, "forced_bos_token_id": None}
_ACTIVATIONS = {
    "relu": Activation.RELU,
    "gelu": Activation.GELU,
    "gelu_new": Activation.GELU_TANH,
    "silu": Activation.SWISH,
}
_TABLES = ("shared.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight")  # copies of one
_HEAD = "lm_head.weight"
_UNUSED = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"  # of the first checkpoints
_PARTS = {"query": "q", "key": "k", "value": "v", "output": "o"}
_LANGUAGE = re.compile(r"<2[a-z]{2,3}(_[A-Z][a-z]{3})?(_[A-Z]{2})?>")  # of MADLAD


def is_t5(directory: Path) -> bool:
    """Return whether the directory has a model of T5's kind."""
    return model_type_of(directory) in _KINDS


def read_t5(directory: Path, options: ImportOptions, scratch: Path) -> ExportSource:
    """Read a model.

    Args:
        directory: with `config.json`, the weights, `spiece.model`, and perhaps `generation_config.json` and
            `tokenizer.json`.
        options: what the owner says; its `source_prefix` is text, such as "translate English to German:".
        scratch: an empty directory; gets the tokenizer's files.

    Raises:
        ForeignModelError: the model is damaged, or has parts that are not supported.
    """
    settings, path = read_checkpoint_settings(directory), directory / "config.json"
    require_keys(settings, _ONLY, path)
    weights = CheckpointWeights(directory)
    is_scaled = _has_scaled_states(settings, path)
    is_tied = _HEAD not in weights or is_scaled
    if _HEAD not in weights and not flag(settings, "tie_word_embeddings", path, default=True):
        raise ForeignModelError(f"{directory} has no tensor {_HEAD!r}, and tie_word_embeddings is false")
    pieces = options.source_pieces or directory / _PIECES_NAME
    config = _config(settings, path, read_pieces(pieces).unk_id(), is_tied=is_tied)
    config, decoding = with_generation(config, directory, options)
    added = set(added_tokens(directory, settings).values())
    tokenizer = _write_tokenizer(pieces, scratch, config, options, added)
    if tokenizer.languages:
        languages = choose_pair(tokenizer.languages, {"src_lang": "en"}, options)
    else:
        languages = options.languages("", "")
    state = _state(weights, config, settings, path)
    if is_tied and _HEAD in weights:
        table = state["embedding.weight"]
        if not np.array_equal(weights.take(_HEAD, table.shape), table):
            raise ForeignModelError(f"{directory}: states are scaled for tied embeddings, and {_HEAD} is another table")
    if is_scaled:
        state["decoder.norm.weight"] = state["decoder.norm.weight"] * np.float32(config.d_model**-0.5)
    weights.require_all_taken([*_TABLES, _UNUSED])
    return imported(
        options, directory, scratch, languages, config=config, state=state, tokenizer=tokenizer, decoding=decoding
    )


def _has_scaled_states(settings: dict[str, Any], path: Path) -> bool:
    """Return whether states are scaled before the projection; transformers 4 did so where embeddings are tied."""
    is_tied = flag(settings, "tie_word_embeddings", path, default=True)
    return flag(settings, "scale_decoder_outputs", path, default=is_tied)


def _config(settings: dict[str, Any], path: Path, unknown_id: int, *, is_tied: bool) -> ModelConfig:
    """Return the description; transformers' defaults where the file is silent."""
    number = partial(whole_number, settings, path=path)
    network = settings.get("feed_forward_proj", "relu")
    name = str(network).removeprefix("gated-")
    is_gated = network == f"gated-{name}"
    activation = _ACTIVATIONS.get("gelu_new" if network == "gated-gelu" else name)
    if activation is None:
        supported = ", ".join(_ACTIVATIONS)
        raise ForeignModelError(
            f"{path}: feed_forward_proj is {network!r:.60}, supported are {supported} and gated-..."
        )
    pad, num_layers = number("pad_token_id", 0), number("num_layers", 6)
    with blaming(path):
        return ModelConfig(
            vocab_size=number("vocab_size", 32_128),
            d_model=number("d_model", 512),
            d_ff=number("d_ff", 2048),
            num_heads=number("num_heads", 8),
            head_width=number("d_kv", 64),
            num_encoder_layers=num_layers,
            num_decoder_layers=number("num_decoder_layers", num_layers),
            max_positions=number("n_positions", 512),
            pad_id=pad,
            unk_id=unknown_id,
            start_id=number("decoder_start_token_id", pad),
            eos_id=number("eos_token_id", 1),
            tied_projection=is_tied,
            scaled_embeddings=False,
            relative_distance=number("relative_attention_max_distance", 128),
            rms_norm=True,
            norm_epsilon=settings.get("layer_norm_epsilon", 1e-6),
            activation=activation,
            gated=is_gated,
        )


def _state(weights: CheckpointWeights, config: ModelConfig, settings: dict[str, Any], path: Path) -> State:
    """Return all parameters."""
    V, D = config.vocab_size, config.d_model
    table = next((name for name in _TABLES if name in weights), _TABLES[0])
    state = {"embedding.weight": weights.take(table, (V, D))}
    if not config.tied_projection:
        state["projection.weight"] = weights.take(_HEAD, (V, D))
    num_buckets = whole_number(settings, "relative_attention_num_buckets", 32, path)
    if not 4 <= num_buckets < 2 * config.relative_distance:
        raise ForeignModelError(
            f"{path}: relative_attention_num_buckets is {num_buckets}, it must be from 4 to less than twice "
            f"relative_attention_max_distance ({config.relative_distance})"
        )
    for stack, num_layers in (("encoder", config.num_encoder_layers), ("decoder", config.num_decoder_layers)):
        is_encoder = stack == "encoder"
        name = f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        bias = weights.take(name, (num_buckets, config.num_heads))
        buckets = _buckets(config.relative_distance, num_buckets, is_bidirectional=is_encoder)
        state[f"{stack}.relative_bias"] = np.ascontiguousarray(bias[buckets].T)
        state[f"{stack}.norm.weight"] = weights.take(f"{stack}.final_layer_norm.weight", (D,))
        for number in range(num_layers):
            block, layer = f"{stack}.block.{number}.layer", f"{stack}.layers.{number}"
            state |= _attention(weights, f"{layer}.self_attention", f"{block}.0", "SelfAttention", config)
            if not is_encoder:
                state |= _attention(weights, f"{layer}.cross_attention", f"{block}.1", "EncDecAttention", config)
            state |= _feed_forward(weights, f"{layer}.feed_forward", f"{block}.{1 if is_encoder else 2}", config)
    return state


def _buckets(farthest: int, num_buckets: int, *, is_bidirectional: bool) -> Array:
    """Return the row of T5's table for a key `farthest` behind its query, ..., for one `farthest` before it.

    Half of the buckets have one distance each, the others grow by a factor.  Both directions have half of the table,
    or the one before the query all of it.  Computed in torch's float32, whose rounding decides at the borders.
    """
    distances = torch.arange(-farthest, farthest + 1)
    first = torch.zeros_like(distances)
    if is_bidirectional:
        num_buckets //= 2
        first[distances < 0] = num_buckets
        distances = distances.abs()
    distances = distances.clamp(min=0)
    num_exact = num_buckets // 2
    logarithms = torch.log(distances.float() / num_exact) / math.log(farthest / num_exact) * (num_buckets - num_exact)
    large = (num_exact + logarithms.clamp(min=0).long()).clamp(max=num_buckets - 1)
    found: Array = (first + torch.where(distances < num_exact, distances, large)).numpy()
    return found


def _attention(weights: CheckpointWeights, key: str, block: str, kind: str, config: ModelConfig) -> State:
    D, A = config.d_model, config.attention_width
    state = {f"{key}_norm.weight": weights.take(f"{block}.layer_norm.weight", (D,))}
    for ours, theirs in _PARTS.items():
        shape = (D, A) if ours == "output" else (A, D)
        state |= _linear(weights, f"{key}.{ours}", f"{block}.{kind}.{theirs}", shape)
    state[f"{key}.query.weight"] = _scaled(state[f"{key}.query.weight"], config.d_head**0.5)
    return state


def _feed_forward(weights: CheckpointWeights, key: str, block: str, config: ModelConfig) -> State:
    D, F = config.d_model, config.d_ff
    state = {f"{key}_norm.weight": weights.take(f"{block}.layer_norm.weight", (D,))}
    names = {"gate": "wi_0", "inner": "wi_1"} if config.gated else {"inner": "wi"}
    for ours, theirs in names.items():
        state |= _linear(weights, f"{key}.{ours}", f"{block}.DenseReluDense.{theirs}", (F, D))
    return state | _linear(weights, f"{key}.outer", f"{block}.DenseReluDense.wo", (D, F))


def _linear(weights: CheckpointWeights, key: str, name: str, shape: tuple[int, int]) -> State:
    return {f"{key}.weight": weights.take(f"{name}.weight", shape), f"{key}.bias": np.zeros(shape[0], np.float32)}


def _scaled(weight: Array, factor: float) -> Array:
    return stored_float32(lambda first, last: weight[first:last] * np.float32(factor), weight.shape)


def _write_tokenizer(
    pieces: Path, scratch: Path, config: ModelConfig, options: ImportOptions, added: Container[str]
) -> TokenizerFiles:
    """Write vocabulary and SentencePiece model; the ids are its own, and nothing beyond them is text.

    SentencePiece puts a space before the language that a text begins with, often a piece of its own.  Tokens that
    transformers has `added` are cut off before, and have none.
    """
    processor = read_pieces(pieces)
    tokens = [processor.id_to_piece(number) for number in range(processor.get_piece_size())]
    if len(tokens) > config.vocab_size:
        raise ForeignModelError(f"{pieces} has {len(tokens)} pieces, the model {config.vocab_size} rows")
    tokens += [""] * (config.vocab_size - len(tokens))
    copy_pieces(pieces, scratch / SOURCE_PIECES, tokens)
    write_vocabulary(scratch / SOURCE_VOCABULARY, tokens)
    languages: dict[str, Language] = {}
    for token in filter(_LANGUAGE.fullmatch, tokens):
        one = language_of(token)
        languages.setdefault(one.code, one)
    prompt: list[str] = processor.encode(" ".join(options.source_prefix), out_type=str)
    first = next(iter(languages.values())).token if languages else ""
    if languages and first not in added:
        *space, last = processor.encode(first, out_type=str)
        if last != first:
            raise ForeignModelError(f"{pieces} cuts the language {first!r} into pieces; a tokenizer.json must have it")
        prompt += space
    return TokenizerFiles(
        kind=TokenizerKind.PIECES,
        source=SOURCE_PIECES,
        source_vocabulary=SOURCE_VOCABULARY,
        unknown=tokens[config.unk_id],
        end=tokens[config.eos_id],
        source_prompt=tuple(prompt),
        source_prefix=(TARGET_LANGUAGE,) if languages else (),
        source_suffix=(tokens[config.eos_id],),
        languages=tuple(languages.values()),
    )
