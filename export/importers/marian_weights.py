"""The arrays of a Marian model under our names, and the description that its settings give.

Names as in marian-dev's src/models/transformer.h, src/layers and src/rnn/cells.h; a matrix is [inputs, outputs] there.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from export.builder import Array
from export.importers.foreign import ForeignModelError, State, blaming, index_of, require_understood, with_zero_row
from export.importers.marian_arrays import ArrayFile
from model.config import Activation, Architecture, ModelConfig, NormPlacement

UNKNOWN, END = "<unk>", "</s>"  # in every vocabulary
_MAX_POSITIONS = 1_024  # of sinusoids, which Marian computes as far as a sentence goes
_NORM_EPSILON = 1e-6  # src/models/transformer_factory.h
_ACTIVATIONS = {"relu": Activation.RELU, "swish": Activation.SWISH}
_NO_PROBABILITY = np.float32(-1e9)  # added to a logit
# Operations around each layer, in front and behind, without dropout: a is the residual sum, n a norm.
_NORM_PLACEMENTS = {("", "an"): NormPlacement.POST, ("n", "a"): NormPlacement.PRE}
_ARCHITECTURES = {"self-attention": Architecture.TRANSFORMER, "rnn": Architecture.SSRU}
_ONLY: dict[str, tuple[Any, ...]] = {
    "type": ("transformer",),
    "transformer-decoder-autoreg": tuple(_ARCHITECTURES),
    "transformer-rnn-projection": ("false",),
    "transformer-no-projection": ("false",),
    "transformer-ffn-depth": ("2",),
    "transformer-decoder-ffn-depth": ("0", "2"),
    "transformer-tied-layers": ([],),
    "transformer-pool": ("false",),
    "transformer-train-position-embeddings": ("false",),
    "layer-normalization": ("false",),
    "ulr": ("false",),
    "lemma-dim-emb": ("0",),
    "factors-combine": ("sum",),
    "factors-dim-emb": ("0",),
    "input-types": ([],),
}

Settings = Mapping[str, Any]  # texts, lists and mappings of them: nothing in them is resolved


class MarianWeights:
    """The arrays of a file under the names of `model/transformer.py`."""

    def __init__(self, file: ArrayFile[Any], settings: Settings) -> None:
        self._file = file
        self._settings = settings
        self._source = "Wemb" if "Wemb" in file else "encoder_Wemb"
        self._target = "Wemb" if "Wemb" in file else "decoder_Wemb"

    def convert(
        self, source: Sequence[str], target: Sequence[str], *, writes_unknown: bool
    ) -> tuple[ModelConfig, State]:
        """Return the description and all parameters; one more target token starts the decoder, with a zero embedding.

        Args:
            source, target: the vocabularies.
            writes_unknown: whether a translation may have the unknown token; its probability counts even if not.

        Raises:
            ForeignModelError: a setting or an array is missing, damaged or not supported.
        """
        with blaming(self._file.path):
            config = self._config(source, target, writes_unknown=writes_unknown)
        state = self._tables(len(source), len(target), config)
        for stack, num_layers in (("encoder", config.num_encoder_layers), ("decoder", config.num_decoder_layers)):
            for number in range(num_layers):
                state |= self._layer(stack, number, config)
            if config.has_final_norm:
                state |= self._norm(f"{stack}.norm", f"{stack}_top_ln", config.d_model)
            if config.embedding_norm:
                state |= self._norm(f"{stack}.embedding_norm", f"{stack}_emb_ln", config.d_model, suffix="_pre")
        require_understood(self._file.unread, "arrays", self._file.path)
        return config, state

    def _config(self, source: Sequence[str], target: Sequence[str], *, writes_unknown: bool) -> ModelConfig:
        path, settings, file = self._file.path, self._settings, self._file
        _require(settings, _ONLY, path)
        architecture = _ARCHITECTURES[text_of(settings, "transformer-decoder-autoreg", path, "self-attention")]
        if architecture is Architecture.SSRU:
            _require(settings, {"dec-cell": ("ssru",)}, path)
        number = partial(number_of, settings, path=path)
        before, behind, top, embedding = (
            text_of(settings, f"transformer-{name}", path).replace("d", "")
            for name in ("preprocess", "postprocess", "postprocess-top", "postprocess-emb")
        )
        if (before, behind) not in _NORM_PLACEMENTS or not {top, embedding} <= {"", "n"}:
            raise ForeignModelError(
                f"{path}: transformer-preprocess {before!r}, -postprocess {behind!r}, -postprocess-top {top!r}, "
                f"-postprocess-emb {embedding!r} (without d) are not supported: '', 'an' or 'n', 'a', with '' or 'n'"
            )
        activation = text_of(settings, "transformer-ffn-activation", path)
        if activation not in _ACTIVATIONS:
            raise ForeignModelError(
                f"{path}: transformer-ffn-activation is {activation!r:.60}, supported are {', '.join(_ACTIVATIONS)}"
            )
        d_ff = number("transformer-dim-ffn", 0)
        if number("transformer-decoder-dim-ffn", 0) not in (0, d_ff):
            raise ForeignModelError(f"{path}: transformer-decoder-dim-ffn is not transformer-dim-ffn: not supported")
        is_shared, start = "Wemb" in file, len(target)
        return ModelConfig(
            architecture=architecture,
            vocab_size=len(source) + is_shared,
            target_vocab_size=len(target) + 1,
            d_model=number("dim-emb", 0),
            d_ff=d_ff,
            num_heads=number("transformer-heads", 0),
            num_encoder_layers=number("enc-depth", 0),
            num_decoder_layers=number("dec-depth", 0),
            norm_placement=_NORM_PLACEMENTS[before, behind],
            max_positions=_MAX_POSITIONS,
            pad_id=0,
            unk_id=index_of(source, UNKNOWN, path),
            start_id=start,
            eos_id=index_of(target, END, path),
            suppressed_ids=(start,) if writes_unknown else (index_of(target, UNKNOWN, path), start),
            suppressed_keep_mass=not writes_unknown,
            shared_embeddings=is_shared,
            tied_projection=not {"decoder_ff_logit_out_W", "decoder_ff_logit_out_Wt"} & set(file),
            projection_bias=True,
            position_table=True,
            embedding_norm=embedding == "n",
            final_norm=top == "n",
            norm_epsilon=_NORM_EPSILON,
            activation=_ACTIVATIONS[activation],
        )

    def _tables(self, num_source: int, num_target: int, config: ModelConfig) -> State:
        """Return embeddings, projection and positions, with a row of zeros for the start, which has no probability."""
        file, D = self._file, config.d_model
        source = file.array(self._source, (num_source, D))
        state = {"embedding.weight": with_zero_row(source) if config.shared_embeddings else source}
        if not config.shared_embeddings:
            state["target_embedding.weight"] = with_zero_row(file.array(self._target, (num_target, D)))
        if "decoder_ff_logit_out_Wt" in file:
            state["projection.weight"] = with_zero_row(file.array("decoder_ff_logit_out_Wt", (num_target, D)))
        elif not config.tied_projection:
            state["projection.weight"] = with_zero_row(file.array("decoder_ff_logit_out_W", (D, num_target)).T)
        bias = np.zeros(num_target, np.float32)
        if "decoder_ff_logit_out_b" in file:
            bias = file.array("decoder_ff_logit_out_b", (num_target,))
        state["projection_bias"] = np.append(bias, _NO_PROBABILITY)
        state["positions"] = marian_positions(config.max_positions, D)
        return state

    def _layer(self, stack: str, number: int, config: ModelConfig) -> State:
        key, name, D, F = f"{stack}.layers.{number}", f"{stack}_l{number + 1}", config.d_model, config.d_ff
        suffix = "_pre" if config.norm_placement is NormPlacement.PRE else ""
        is_ssru = stack == "decoder" and config.architecture is Architecture.SSRU
        parts = {} if is_ssru else {"self_attention": "self"}
        parts |= {"cross_attention": "context"} if stack == "decoder" else {}
        state = self._norm(f"{key}.feed_forward_norm", f"{name}_ffn_ffn_ln", D, suffix)
        state |= self._linear(f"{key}.feed_forward.inner", f"{name}_ffn", "1", (F, D))
        state |= self._linear(f"{key}.feed_forward.outer", f"{name}_ffn", "2", (D, F))
        for ours, theirs in parts.items():
            state |= self._norm(f"{key}.{ours}_norm", f"{name}_{theirs}_Wo_ln", D, suffix)
            for part in ("query", "key", "value", "output"):
                state |= self._linear(f"{key}.{ours}.{part}", f"{name}_{theirs}", part[0], (D, D))
        if is_ssru:
            state |= self._norm(
                f"{key}.self_attention_norm", f"{name}_rnn_ln" if suffix else f"{name}_rnn_ffn_ln", D, suffix
            )
            state |= self._linear(f"{key}.self_attention.forget", f"{name}_rnn", "f", (D, D))
            state[f"{key}.self_attention.input.weight"] = self._file.array(f"{name}_rnn_W", (D, D)).T
            state[f"{key}.self_attention.input.bias"] = np.zeros(D, np.float32)
        return state

    def _linear(self, key: str, name: str, suffix: str, shape: tuple[int, int]) -> State:
        return {
            f"{key}.weight": self._file.array(f"{name}_W{suffix}", shape[::-1]).T,
            f"{key}.bias": self._file.array(f"{name}_b{suffix}", shape[:1]),
        }

    def _norm(self, key: str, name: str, D: int, suffix: str = "") -> State:
        names = {"weight": f"{name}_scale{suffix}", "bias": f"{name}_bias{suffix}"}
        return {f"{key}.{ours}": self._file.array(theirs, (D,)) for ours, theirs in names.items()}


def marian_positions(num_positions: int, d_model: int) -> Array:
    """Return Marian's sinusoids (src/tensors/cpu/tensor_operators.cpp): sines, then cosines, from 0 on.

    Returns:
        [num_positions, d_model] float32; the rates are 10000^(-i / (d_model / 2 - 1)).
    """
    half = d_model // 2
    rates = np.power(10_000.0, -np.arange(half) / max(half - 1, 1))
    angles = np.arange(num_positions)[:, None] * rates
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float32)


def text_of(settings: Settings, name: str, path: Path, default: str = "") -> str:
    """Return a setting that is text, or raise ForeignModelError."""
    value = settings.get(name, default)
    if not isinstance(value, str):
        raise ForeignModelError(f"{path}: {name} is {value!r:.60}, it must be text")
    return value


def number_of(settings: Settings, name: str, default: int, path: Path) -> int:
    """Return a setting that is a whole number below a million, which no model reaches, or raise ForeignModelError."""
    value = text_of(settings, name, path, str(default))
    if not (value.isascii() and value.isdigit() and len(value) < 7):
        raise ForeignModelError(f"{path}: {name} is {value!r:.60}, it must be a number from 0 to 999999")
    return int(value)


def _require(settings: Settings, allowed: Mapping[str, tuple[Any, ...]], path: Path) -> None:
    for name, values in allowed.items():
        if (found := settings.get(name, values[0])) not in values:
            supported = " or ".join(map(str, values))
            raise ForeignModelError(f"{path}: {name} is {found!r:.60}, only {supported} is supported")
