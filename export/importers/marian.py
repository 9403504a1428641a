"""A MarianMT checkpoint in the layout of Hugging Face (OPUS-MT, OPUS-MT tc-big) becomes what the export starts from.

Names and defaults as in transformers' models/marian.  A tensor that nobody asked for is refused: it would change the
translations.
"""

import pickle
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open

from export.builder import Array
from export.importers.foreign import (
    SOURCE_PIECES,
    SOURCE_VOCABULARY,
    TARGET_PIECES,
    TARGET_VOCABULARY,
    ForeignModelError,
    ImportOptions,
    copy_pieces,
    half_sinusoids,
    read_settings,
    require_keys,
    require_one_language,
    whole_number,
    write_vocabulary,
)
from export.source import FIRST_VERSION, ExportSource
from model.config import Activation, ModelConfig, NormPlacement
from model.manifest import DecodingDefaults, TokenizerFiles, TokenizerKind
from model.vocabulary_tokenizers import PieceTokenizer

State = dict[str, Array]

_ACTIVATIONS = {
    "relu": Activation.RELU,
    "swish": Activation.SWISH,
    "silu": Activation.SWISH,
    "gelu": Activation.GELU,
}
_EPSILON = 1e-5  # of torch.nn.LayerNorm
_ONLY = {
    "normalize_before": False,
    "normalize_embedding": False,
    "add_final_layer_norm": False,
    "is_encoder_decoder": True,
}
_ATTENTION = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "out_proj"}
# Copies of other tensors, which older files keep.
_COPIES = ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight")
_POSITIONS = ("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight")


def is_marian(directory: Path) -> bool:
    """Return whether the directory has a MarianMT model."""
    path = directory / "config.json"
    return path.is_file() and read_settings(path).get("model_type") == "marian"


def read_marian(directory: Path, options: ImportOptions, scratch: Path) -> ExportSource:
    """Read a model.

    Args:
        directory: with `config.json`, `model.safetensors` or `pytorch_model.bin`, `vocab.json`, `source.spm` and
            `target.spm`, and perhaps `generation_config.json`, `tokenizer_config.json` and `target_vocab.json`.
        options: what the owner says.
        scratch: an empty directory; gets the tokenizer's files.

    Raises:
        ForeignModelError: the model is damaged, or has parts that are not supported.
    """
    settings = read_settings(directory / "config.json")
    for name in ("generation_config.json", "tokenizer_config.json"):
        if (directory / name).is_file():
            settings |= read_settings(directory / name)
    require_keys(settings, _ONLY, directory / "config.json")
    languages = options.languages(_text(settings, "source_lang"), _text(settings, "target_lang"))
    config = _config(settings, directory / "config.json")
    tokenizer = _write_tokenizer(directory, scratch, settings, config, options)
    unknown = PieceTokenizer(scratch, tokenizer).unknown_id
    state = _Weights(_tensors(directory), directory).convert(config)
    return ExportSource(
        config=replace(config, position_table=True, unk_id=unknown),
        state=state,
        tokenizer_path=scratch,
        tokenizer=tokenizer,
        decoding=_decoding(settings, config, directory / "generation_config.json"),
        name=options.name or directory.resolve().name,
        version=options.version or FIRST_VERSION,
        source_language=languages[0],
        target_language=languages[1],
    )


def _config(settings: dict[str, Any], path: Path) -> ModelConfig:
    """Return the description; transformers' defaults where the file is silent."""
    activation = settings.get("activation_function", "gelu")
    if not isinstance(activation, str) or activation not in _ACTIVATIONS:
        supported = ", ".join(_ACTIVATIONS)
        raise ForeignModelError(f"{path}: activation_function is {activation!r:.60}, supported are {supported}")
    number = partial(whole_number, settings, path=path)
    is_shared = _flag(settings, "share_encoder_decoder_embeddings", path, default=True)
    vocab_size, pad = number("vocab_size", 58_101), number("pad_token_id", 58_100)
    try:
        return ModelConfig(
            vocab_size=vocab_size,
            target_vocab_size=vocab_size if is_shared else number("decoder_vocab_size", vocab_size),
            d_model=number("d_model", 1024),
            d_ff=_of_both(number("encoder_ffn_dim", 4096), number("decoder_ffn_dim", 4096), "inner width", path),
            num_heads=_of_both(
                number("encoder_attention_heads", 16), number("decoder_attention_heads", 16), "number of heads", path
            ),
            num_encoder_layers=number("encoder_layers", 12),
            num_decoder_layers=number("decoder_layers", 12),
            norm_placement=NormPlacement.POST,
            max_positions=number("max_position_embeddings", 1024),
            start_id=number("decoder_start_token_id", 58_100),
            eos_id=number("eos_token_id", 0),
            pad_id=pad,
            unk_id=0,
            suppressed_ids=tuple(sorted({pad, *_bad_words(settings, path)})),
            shared_embeddings=is_shared,
            tied_projection=_flag(settings, "tie_word_embeddings", path, default=True),
            projection_bias=True,
            scaled_embeddings=_flag(settings, "scale_embedding", path, default=False),
            norm_epsilon=_EPSILON,
            activation=_ACTIVATIONS[activation],
        )
    except ForeignModelError:
        raise
    except ValueError as error:
        raise ForeignModelError(f"{path}: {error}") from error


def _flag(settings: dict[str, Any], name: str, path: Path, *, default: bool) -> bool:
    value = settings.get(name, default)
    if not isinstance(value, bool):
        raise ForeignModelError(f"{path}: {name} is {value!r:.60}, it must be true or false")
    return value


def _of_both(encoder: int, decoder: int, what: str, path: Path) -> int:
    if encoder != decoder:
        raise ForeignModelError(
            f"{path}: the {what} is {encoder} in the encoder, {decoder} in the decoder: not supported"
        )
    return encoder


def _bad_words(settings: dict[str, Any], path: Path) -> list[int]:
    """Return the tokens that are never written."""
    words = settings.get("bad_words_ids") or []
    if not isinstance(words, list) or not all(isinstance(word, list) and len(word) == 1 for word in words):
        raise ForeignModelError(f"{path}: bad_words_ids has words of several tokens, which is not supported")
    return [whole_number({"bad_words_ids": word[0]}, "bad_words_ids", 0, path) for word in words]


def _decoding(settings: dict[str, Any], config: ModelConfig, path: Path) -> DecodingDefaults:
    """Return the model's own defaults; transformers counts the decoder's start as one of `max_length`."""
    usual = DecodingDefaults()
    longest = whole_number(settings, "max_length", usual.max_target_tokens + 1, path)
    try:
        return DecodingDefaults(
            beam_size=whole_number(settings, "num_beams", usual.beam_size, path),
            length_penalty=settings.get("length_penalty", 1.0),
            max_target_tokens=min(longest - 1, config.max_positions),
        )
    except ForeignModelError:
        raise
    except ValueError as error:
        raise ForeignModelError(f"{path}: {error}") from error


class _Weights:
    """The tensors of a file under the names of `model/transformer.py`."""

    def __init__(self, tensors: dict[str, Callable[[], torch.Tensor]], directory: Path) -> None:
        self._tensors = tensors
        self._directory = directory

    def convert(self, config: ModelConfig) -> State:
        """Return all parameters, and refuse tensors that are none of them."""
        state = self._tables(config)
        for stack, num_layers in (("encoder", config.num_encoder_layers), ("decoder", config.num_decoder_layers)):
            for number in range(num_layers):
                state |= self._layer(f"{stack}.layers.{number}", config, has_memory=stack == "decoder")
        left = sorted(self._tensors.keys() - {*_COPIES, "model.shared.weight"})
        if left:
            more = f" and {len(left) - 3} more" if len(left) > 3 else ""
            raise ForeignModelError(
                f"{self._directory} has tensors that are not understood: {', '.join(left[:3])}{more}"
            )
        return state

    def _tables(self, config: ModelConfig) -> State:
        V, W, D = config.vocab_size, config.num_target_tokens, config.d_model
        source = "model.shared.weight" if "model.shared.weight" in self._tensors else _COPIES[0]
        state = {"embedding.weight": self._take(source, (V, D))}
        target = source
        if not config.shared_embeddings:
            target = _COPIES[1]
            state["target_embedding.weight"] = self._take(target, (W, D))
        if not config.tied_projection:
            state["projection.weight"] = self._take("lm_head.weight", (W, D))
        state["projection_bias"] = np.zeros(W, np.float32)
        if "final_logits_bias" in self._tensors:
            state["projection_bias"] = self._take("final_logits_bias", (1, W)).reshape(W)
        state["positions"] = self._positions(config)
        return state

    def _positions(self, config: ModelConfig) -> Array:
        """Return the table: the file's, which both stacks must have, or the usual one."""
        usual = half_sinusoids(config.max_positions, config.d_model)
        tables = [self._take(name, usual.shape) for name in _POSITIONS if name in self._tensors]
        if len(tables) == 2 and not np.array_equal(tables[0], tables[1]):
            raise ForeignModelError(f"{self._directory}: {_POSITIONS[0]} and {_POSITIONS[1]} differ: not supported")
        return tables[0] if tables else usual

    def _layer(self, key: str, config: ModelConfig, *, has_memory: bool) -> State:
        name, D, F = f"model.{key}", config.d_model, config.d_ff
        state = self._attention(f"{key}.self_attention", f"{name}.self_attn", D)
        if has_memory:
            state |= self._attention(f"{key}.cross_attention", f"{name}.encoder_attn", D)
        state |= self._pair(f"{key}.feed_forward.inner", f"{name}.fc1", (F, D))
        state |= self._pair(f"{key}.feed_forward.outer", f"{name}.fc2", (D, F))
        return state | self._pair(f"{key}.feed_forward_norm", f"{name}.final_layer_norm", (D,))

    def _attention(self, key: str, name: str, D: int) -> State:
        state = self._pair(f"{key}_norm", f"{name}_layer_norm", (D,))
        for ours, theirs in _ATTENTION.items():
            state |= self._pair(f"{key}.{ours}", f"{name}.{theirs}", (D, D))
        return state

    def _pair(self, key: str, name: str, shape: tuple[int, ...]) -> State:
        return {
            f"{key}.weight": self._take(f"{name}.weight", shape),
            f"{key}.bias": self._take(f"{name}.bias", shape[:1]),
        }

    def _take(self, name: str, shape: tuple[int, ...]) -> Array:
        if name not in self._tensors:
            raise ForeignModelError(f"{self._directory} has no tensor {name!r}")
        tensor = self._tensors.pop(name)()
        if tuple(tensor.shape) != shape:
            raise ForeignModelError(
                f"{self._directory}: {name} has shape {tuple(tensor.shape)}, config.json says {shape}"
            )
        array: Array = tensor.float().numpy()
        if not np.isfinite(array).all():
            raise ForeignModelError(f"{self._directory}: {name} has numbers that are not finite")
        return array


def _tensors(directory: Path) -> dict[str, Callable[[], torch.Tensor]]:
    """Return by name how to read each tensor; nothing in a file is run."""
    path = directory / "model.safetensors"
    if path.is_file():
        try:
            file: Any = safe_open(path, framework="pt")
            return {name: partial(file.get_tensor, name) for name in file.keys()}  # noqa: SIM118 - it is no mapping
        except (SafetensorError, OSError) as error:
            raise ForeignModelError(f"{path} is no safetensors file: {error}") from error
    path = directory / "pytorch_model.bin"
    if not path.is_file():
        raise ForeignModelError(f"{directory} has neither model.safetensors nor pytorch_model.bin")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the pickle's protocol
            found = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, OSError, ValueError) as error:  # its advice is to trust
        raise ForeignModelError(f"{path} is damaged, or holds more than tensors ({type(error).__name__})") from error
    if not isinstance(found, dict) or not all(isinstance(tensor, torch.Tensor) for tensor in found.values()):
        raise ForeignModelError(f"{path} is no dictionary of tensors")
    return {name: tensor.clone for name, tensor in found.items()}


def _write_tokenizer(
    directory: Path, scratch: Path, settings: dict[str, Any], config: ModelConfig, options: ImportOptions
) -> TokenizerFiles:
    """Write vocabularies and SentencePiece models, and return their names."""
    source = _vocabulary(directory / "vocab.json", config.vocab_size)
    is_separate = bool(settings.get("separate_vocabs", False))
    target = _vocabulary(directory / "target_vocab.json", config.num_target_tokens) if is_separate else source
    require_one_language(source, options)
    write_vocabulary(scratch / SOURCE_VOCABULARY, source)
    if is_separate:
        write_vocabulary(scratch / TARGET_VOCABULARY, target)
    copy_pieces(options.source_pieces or directory / "source.spm", scratch / SOURCE_PIECES, source)
    copy_pieces(options.target_pieces or directory / "target.spm", scratch / TARGET_PIECES, target)
    end = target[config.eos_id]
    has_end = options.source_eos is not False
    return TokenizerFiles(
        kind=TokenizerKind.PIECES,
        source=SOURCE_PIECES,
        target=TARGET_PIECES,
        source_vocabulary=SOURCE_VOCABULARY,
        target_vocabulary=TARGET_VOCABULARY if is_separate else "",
        unknown=_text(settings, "unk_token") or "<unk>",
        end=end,
        source_prefix=options.source_prefix,
        source_suffix=(end,) if has_end else (),
    )


def _vocabulary(path: Path, num_rows: int) -> list[str]:
    """Return the tokens by id; an id without a token has an empty one."""
    found = read_settings(path)
    tokens = [""] * num_rows
    for token, number in found.items():
        if type(number) is not int or not 0 <= number < num_rows:
            raise ForeignModelError(f"{path}: token {token!r} has id {number!r}, the model has {num_rows} rows")
        if tokens[number]:
            raise ForeignModelError(f"{path}: tokens {tokens[number]!r} and {token!r} have one id, {number}")
        tokens[number] = token
    return tokens


def _text(settings: dict[str, Any], name: str) -> str:
    value = settings.get(name)
    return value if isinstance(value, str) else ""
