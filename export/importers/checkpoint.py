"""A checkpoint as transformers' `save_pretrained` writes it: settings, tensors, vocabulary, how `generate` searches.

Names and defaults as in transformers 5.23.  Nothing in a file is run, and a tensor that nobody asked for is refused: it
would change the translations.
"""

import warnings
import zipfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open

from export.builder import Array
from export.importers.foreign import (
    ForeignModelError,
    ImportOptions,
    State,
    blaming,
    read_settings,
    require_keys,
    require_understood,
    stored_float32,
    whole_number,
)
from model.config import Activation, ModelConfig, StopRule
from model.manifest import DecodingDefaults

NORM_EPSILON = 1e-5  # of torch.nn.LayerNorm
_ACTIVATIONS = {
    "relu": Activation.RELU,
    "swish": Activation.SWISH,
    "silu": Activation.SWISH,
    "gelu": Activation.GELU,
}
_ATTENTION = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "out_proj"}
# Copies of other tensors, which older files keep.
_COPIES = ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight")
_PATTERNS = ("model{}.safetensors", "pytorch_model{}.bin")

# What changes the search and has no place in a bundle, with the values that change nothing.
_NEUTRAL: dict[str, Any] = {
    "do_sample": False,
    "no_repeat_ngram_size": 0,
    "encoder_no_repeat_ngram_size": 0,
    "repetition_penalty": 1.0,
    "encoder_repetition_penalty": 1.0,
    "min_length": 0,
    "num_beam_groups": 1,
    "diversity_penalty": 0.0,
}
_ABSENT = (
    "min_new_tokens",
    "begin_suppress_tokens",
    "forced_decoder_ids",
    "sequence_bias",
    "exponential_decay_length_penalty",
    "guidance_scale",
)

Tensors = dict[str, Callable[[], torch.Tensor]]  # how to read each, by name


def model_type_of(directory: Path) -> str:
    """Return what `config.json` calls the model; empty where there is no such file."""
    path = directory / "config.json"
    return text_of(read_settings(path), "model_type") if path.is_file() else ""


def read_checkpoint_settings(directory: Path) -> dict[str, Any]:
    """Return the settings of model, generation and tokenizer as one; the latter go first."""
    settings = read_settings(directory / "config.json")
    for name in ("generation_config.json", "tokenizer_config.json"):
        if (directory / name).is_file():
            settings |= read_settings(directory / name)
    return settings


def text_of(settings: dict[str, Any], name: str) -> str:
    """Return a setting that is text; empty where it is absent or anything else."""
    value = settings.get(name)
    return value if isinstance(value, str) else ""


def flag(settings: dict[str, Any], name: str, path: Path, *, default: bool) -> bool:
    """Return a setting that is true or false.

    Raises:
        ForeignModelError: it is anything else.
    """
    value = settings.get(name, default)
    if not isinstance(value, bool):
        raise ForeignModelError(f"{path}: {name} is {value!r:.60}, it must be true or false")
    return value


def model_config(settings: dict[str, Any], path: Path, *, activation: str, **known: Any) -> ModelConfig:
    """Return the description of a model with these sizes.

    Args:
        settings: of the checkpoint; silent ones have the defaults of all families.
        path: of the settings; only for errors.
        activation: the family's default.
        known: what else the family's importer knows.

    Raises:
        ForeignModelError: names the setting, and what it may be.
    """
    number = partial(whole_number, settings, path=path)
    name = settings.get("activation_function", activation)
    if not isinstance(name, str) or name not in _ACTIVATIONS:
        supported = ", ".join(_ACTIVATIONS)
        raise ForeignModelError(f"{path}: activation_function is {name!r:.60}, supported are {supported}")
    for size, usual in (("ffn_dim", 4096), ("attention_heads", 16)):
        encoder, decoder = number(f"encoder_{size}", usual), number(f"decoder_{size}", usual)
        if encoder != decoder:
            raise ForeignModelError(f"{path}: encoder_{size} is {encoder}, decoder_{size} {decoder}: not supported")
    with blaming(path):
        return ModelConfig(
            d_model=number("d_model", 1024),
            d_ff=number("encoder_ffn_dim", 4096),
            num_heads=number("encoder_attention_heads", 16),
            num_encoder_layers=number("encoder_layers", 12),
            num_decoder_layers=number("decoder_layers", 12),
            max_positions=number("max_position_embeddings", 1024),
            norm_epsilon=NORM_EPSILON,
            activation=_ACTIVATIONS[name],
            **known,
        )


def with_generation(
    config: ModelConfig, directory: Path, options: ImportOptions
) -> tuple[ModelConfig, DecodingDefaults]:
    """Return the model with the tokens that `generate` never writes, and its defaults for decoding.

    They stand in `generation_config.json`, or in `config.json` where a model has no such file.  With `options.profile`,
    nothing but beam size, length penalty and lengths is taken from the settings.

    Raises:
        ForeignModelError: a setting is damaged or not supported.
    """
    path = directory / "generation_config.json"
    if not path.is_file():
        path = directory / "config.json"
    settings = {name: value for name, value in read_settings(path).items() if value is not None}
    is_own = options.profile in (None, StopRule.HF)
    if is_own:
        _require_supported(settings, path)
    banned = {*config.suppressed_ids, *_banned(settings, path)} - {config.eos_id}
    keeps_mass = bool(banned) and is_own and not flag(settings, "renormalize_logits", path, default=False)
    with blaming(path):
        config = replace(config, suppressed_ids=tuple(sorted(banned)), suppressed_keep_mass=keeps_mass)
        return config, _decoding(settings, config, options.profile, path)


def _require_supported(settings: dict[str, Any], path: Path) -> None:
    try:
        require_keys(settings, _NEUTRAL, path)
        require_keys(settings, dict.fromkeys(_ABSENT), path)
        if settings.get("early_stopping", False) not in (True, False):
            require_keys(settings, {"early_stopping": False}, path)
    except ForeignModelError as error:
        raise ForeignModelError(f"{error}; --profile ctranslate2 searches without it") from error


def _decoding(settings: dict[str, Any], config: ModelConfig, profile: StopRule | None, path: Path) -> DecodingDefaults:
    """Return the defaults; transformers counts the decoder's start as one of `max_length`."""
    usual = DecodingDefaults()
    longest = whole_number(settings, "max_length", usual.max_target_tokens + 1, path)
    if settings.get("max_new_tokens") is not None:  # goes before `max_length`
        longest = whole_number(settings, "max_new_tokens", longest - 1, path) + 1
    own_rule = StopRule.CTRANSLATE2 if flag(settings, "early_stopping", path, default=False) else StopRule.HF
    return DecodingDefaults(
        beam_size=whole_number(settings, "num_beams", 1, path),
        length_penalty=settings.get("length_penalty", 1.0),
        max_target_tokens=min(longest - 1, config.max_positions),
        stop_rule=profile or own_rule,
        forced_end=profile in (None, StopRule.HF) and _forces_end(settings, config, path),
    )


def _forces_end(settings: dict[str, Any], config: ModelConfig, path: Path) -> bool:
    forced = settings.get("forced_eos_token_id")
    if forced in (None, config.eos_id, [config.eos_id]):
        return forced is not None
    raise ForeignModelError(f"{path}: forced_eos_token_id is {forced!r:.60}, only eos_token_id is supported")


def _banned(settings: dict[str, Any], path: Path) -> list[int]:
    """Return the tokens that are never written."""
    words, tokens = settings.get("bad_words_ids", []), settings.get("suppress_tokens", [])
    if not isinstance(words, list) or not all(isinstance(word, list) and len(word) == 1 for word in words):
        raise ForeignModelError(f"{path}: bad_words_ids has words of several tokens, which is not supported")
    if not isinstance(tokens, list):
        raise ForeignModelError(f"{path}: suppress_tokens is {tokens!r:.60}, it must be a list of tokens")
    return [
        whole_number({name: token}, name, 0, path)
        for name, found in (("bad_words_ids", [word[0] for word in words]), ("suppress_tokens", tokens))
        for token in found
    ]


class CheckpointWeights:
    """The tensors of a checkpoint under the names of `model/transformer.py`."""

    def __init__(self, directory: Path, tensors: Tensors | None = None) -> None:
        """Open the files, without reading a tensor yet, unless the tensors are given.

        Raises:
            ForeignModelError: there are none, or one is damaged or holds more than tensors.
        """
        self._tensors = _tensors(directory) if tensors is None else tensors
        self._directory = directory

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def convert(self, config: ModelConfig) -> State:
        """Return embeddings, projection and layers; positions and what else a family has remain to be taken."""
        state = self._tables(config)
        for stack, num_layers in (("encoder", config.num_encoder_layers), ("decoder", config.num_decoder_layers)):
            for number in range(num_layers):
                state |= self._layer(f"{stack}.layers.{number}", config, has_memory=stack == "decoder")
        return state

    def take(self, name: str, shape: tuple[int, ...]) -> Array:
        """Return a tensor, which must have this shape, in float32.

        Raises:
            ForeignModelError: it is missing, or another one, or not all of it is finite.
        """
        if name not in self._tensors:
            raise ForeignModelError(f"{self._directory} has no tensor {name!r}")
        tensor = self._tensors.pop(name)()
        if tuple(tensor.shape) != shape:
            raise ForeignModelError(
                f"{self._directory}: {name} has shape {tuple(tensor.shape)}, its settings say {shape}"
            )
        if not tensor.is_contiguous():  # one number in the file could stand for a gigabyte
            raise ForeignModelError(f"{self._directory}: {name} is no plain tensor: its numbers overlap or are turned")
        matrix = tensor.reshape(shape[0], -1)
        try:
            return stored_float32(lambda first, last: matrix[first:last].float().numpy(), shape)
        except ValueError as error:
            raise ForeignModelError(f"{self._directory}: {name} has {error}") from error

    def pair(self, key: str, name: str, shape: tuple[int, ...]) -> State:
        """Return weight and bias of a layer."""
        return {
            f"{key}.weight": self.take(f"{name}.weight", shape),
            f"{key}.bias": self.take(f"{name}.bias", shape[:1]),
        }

    def require_all_taken(self, ignored: Iterable[str] = ()) -> None:
        """Raise ForeignModelError if a tensor is left that is none of these and no copy of another."""
        left = sorted(self._tensors.keys() - {*_COPIES, "model.shared.weight", *ignored})
        require_understood(left, "tensors", self._directory)

    def _tables(self, config: ModelConfig) -> State:
        V, W, D = config.vocab_size, config.num_target_tokens, config.d_model
        source = next((name for name in ("model.shared.weight", *_COPIES) if name in self._tensors), _COPIES[0])
        state = {"embedding.weight": self.take(source, (V, D))}
        if not config.shared_embeddings:
            state["target_embedding.weight"] = self.take(_COPIES[1], (W, D))
        if not config.tied_projection:
            state["projection.weight"] = self.take("lm_head.weight", (W, D))
        if config.projection_bias:
            state["projection_bias"] = np.zeros(W, np.float32)
            if "final_logits_bias" in self._tensors:
                state["projection_bias"] = self.take("final_logits_bias", (1, W)).reshape(W)
        return state

    def _layer(self, key: str, config: ModelConfig, *, has_memory: bool) -> State:
        name, D, F = f"model.{key}", config.d_model, config.d_ff
        state = self._attention(f"{key}.self_attention", f"{name}.self_attn", D)
        if has_memory:
            state |= self._attention(f"{key}.cross_attention", f"{name}.encoder_attn", D)
        state |= self.pair(f"{key}.feed_forward.inner", f"{name}.fc1", (F, D))
        state |= self.pair(f"{key}.feed_forward.outer", f"{name}.fc2", (D, F))
        return state | self.pair(f"{key}.feed_forward_norm", f"{name}.final_layer_norm", (D,))

    def _attention(self, key: str, name: str, D: int) -> State:
        state = self.pair(f"{key}_norm", f"{name}_layer_norm", (D,))
        for ours, theirs in _ATTENTION.items():
            state |= self.pair(f"{key}.{ours}", f"{name}.{theirs}", (D, D))
        return state


def read_vocabulary(path: Path, num_rows: int) -> list[str]:
    """Return the tokens of a `vocab.json` by id; an id without a token has an empty one.

    Raises:
        ForeignModelError: the file is missing or damaged, or an id lies outside the model's rows or comes twice.
    """
    tokens = [""] * num_rows
    for token, number in read_settings(path).items():
        if type(number) is not int or not 0 <= number < num_rows:
            raise ForeignModelError(f"{path}: token {token!r} has id {number!r}, the model has {num_rows} rows")
        if tokens[number]:
            raise ForeignModelError(f"{path}: tokens {tokens[number]!r} and {token!r} have one id, {number}")
        tokens[number] = token
    return tokens


def _tensors(directory: Path) -> Tensors:
    for pattern, opened in zip(_PATTERNS, (_open_safetensors, _open_pickle), strict=True):
        path, index = directory / pattern.format(""), directory / f"{pattern.format('')}.index.json"
        if path.is_file():
            return opened(path)
        if index.is_file():
            return _open_shards(index, opened)
    raise ForeignModelError(f"{directory} has neither model.safetensors nor pytorch_model.bin")


def _open_shards(index: Path, opened: Callable[[Path], Tensors]) -> Tensors:
    """Return the tensors of all files that an index names."""
    places = read_settings(index).get("weight_map")
    if not isinstance(places, dict) or not all(isinstance(name, str) for name in places.values()):
        raise ForeignModelError(f"{index} has no weight_map with the file of each tensor")
    tensors: Tensors = {}
    for name in sorted(set(places.values())):
        path = index.parent / name
        if Path(name).name != name or not path.is_file():
            raise ForeignModelError(f"{index} names {name!r}, which is no file beside it")
        tensors |= opened(path)
    return tensors


def _open_safetensors(path: Path) -> Tensors:
    try:
        file: Any = safe_open(path, framework="pt")
        return {name: partial(file.get_tensor, name) for name in file.keys()}  # noqa: SIM118 - it is no mapping
    except (SafetensorError, OSError) as error:
        raise ForeignModelError(f"{path} is no safetensors file: {error}") from error


def _open_pickle(path: Path) -> Tensors:
    found = load_pickle(path)
    if not isinstance(found, dict) or not all(isinstance(tensor, torch.Tensor) for tensor in found.values()):
        raise ForeignModelError(f"{path} is no dictionary of tensors")
    return {name: tensor.detach for name, tensor in found.items()}


def load_pickle(path: Path, classes: Sequence[type] = ()) -> Any:
    """Return what torch has saved: tensors, numbers, texts, and objects of these classes, in any order.

    Raises:
        ForeignModelError: the file is damaged, or holds anything else.
    """
    try:
        is_archive = zipfile.is_zipfile(path)
        if is_archive:
            _require_stored(path)
        with warnings.catch_warnings(), torch.serialization.safe_globals(list(classes)):
            warnings.simplefilter("ignore")  # about the pickle's protocol
            return torch.load(path, map_location="cpu", weights_only=True, mmap=is_archive)
    except ForeignModelError:
        raise
    except Exception as error:  # any of them comes of damage; torch's message advises to trust the file
        raise ForeignModelError(f"{path} is damaged, or holds more than tensors ({type(error).__name__})") from error


def _require_stored(path: Path) -> None:
    """Raise ForeignModelError if a part is compressed, which torch never does: it could become any size."""
    with zipfile.ZipFile(path) as archive:
        for part in archive.infolist():
            if part.compress_type != zipfile.ZIP_STORED or part.file_size > path.stat().st_size:
                raise ForeignModelError(f"{path}: {part.filename!r:.60} is compressed or damaged: torch.save stores it")
