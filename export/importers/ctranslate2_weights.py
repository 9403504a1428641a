"""The weights of a CTranslate2 model under our names, and the description that they imply.

Names and defaults as in CTranslate2's src/models/transformer.cc and src/layers/transformer.cc.
"""

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from export.builder import Array
from export.importers.foreign import ForeignModelError, State, blaming, with_zero_row
from export.importers.model_bin import ModelFile
from model.config import Activation, ModelConfig, NormPlacement

# Specifications of translation models, and their heads where the file does not say them.
HEADS = {"": 8, "TransformerBase": 8, "TransformerBig": 16, "TransformerSpec": 8}
_ACTIVATIONS = {0: Activation.RELU, 2: Activation.SWISH, 3: Activation.GELU}
_DEFAULT_POSITIONS = 512  # of models without a table


class Ctranslate2Weights:
    """The variables of a file under the names of `model/transformer.py`."""

    def __init__(self, file: ModelFile, norm_epsilon: float) -> None:
        self._file = file
        self._norm_epsilon = norm_epsilon
        self._source = "encoder/embeddings" if "encoder/embeddings/weight" in file else "encoder/embeddings_0"
        self._starts_at_zero = bool(file.scalar("decoder/start_from_zero_embedding", 0))

    def convert(self, source: Sequence[str], target: Sequence[str], start: str, end: str) -> tuple[ModelConfig, State]:
        """Return the description and all parameters.

        Args:
            source, target: the vocabularies.
            start: the token that is the first decoder input.
            end: the token that ends a target.

        Raises:
            ForeignModelError: variables are missing, have other shapes, or are not supported.
        """
        state = self._tables(len(source), len(target))
        with blaming(self._file.path):
            config = self._config(state, target, start, end)
        for stack, num_layers in (("encoder", config.num_encoder_layers), ("decoder", config.num_decoder_layers)):
            for number in range(num_layers):
                state |= self._layer(stack, number, config)
            if config.has_final_norm:
                state |= self._norm(f"{stack}.norm", f"{stack}/layer_norm", config.d_model)
            if config.embedding_norm:
                state |= self._norm(f"{stack}.embedding_norm", f"{stack}/layernorm_embedding", config.d_model)
        return config, state

    def _tables(self, num_source: int, num_target: int) -> State:
        """Return embeddings, projection and positions; a zero row starts the decoder where the model wants it."""
        file, source, target = self._file, f"{self._source}/weight", "decoder/embeddings/weight"
        for side, name, size in (("source", source, num_source), ("target", target, num_target)):
            if (rows := self._shape(name)[0]) != size:
                raise ForeignModelError(f"{file.path}: {name} has {rows} rows, the {side} vocabulary {size} tokens")
        grow: Callable[[Array], Array] = with_zero_row if self._starts_at_zero else lambda table: table
        is_shared = file.is_same(source, target)
        state: State = {"embedding.weight": grow(file.array(source)) if is_shared else file.array(source)}
        if not is_shared:
            state["target_embedding.weight"] = grow(file.array(target, (num_target, file.shape(source)[1])))
        d_model = state["embedding.weight"].shape[1]
        if not file.is_same("decoder/projection/weight", target):
            state["projection.weight"] = grow(file.array("decoder/projection/weight", (num_target, d_model)))
        if "decoder/projection/bias" in file:
            state["projection_bias"] = grow(file.array("decoder/projection/bias", (num_target,)))
        return state | self._positions(d_model)

    def _config(self, state: State, target: Sequence[str], start: str, end: str) -> ModelConfig:
        file = self._file
        num_target = len(state.get("target_embedding.weight", state["embedding.weight"]))
        start_id = len(target) if self._starts_at_zero else _index(target, start, file.path)
        d_model = state["embedding.weight"].shape[1]
        return ModelConfig(
            vocab_size=len(state["embedding.weight"]),
            target_vocab_size=num_target,
            d_model=d_model,
            d_ff=self._shape("encoder/layer_0/ffn/linear_0/weight")[0],
            num_heads=int(self._both("num_heads", HEADS[file.specification])),
            num_encoder_layers=self._num_layers("encoder"),
            num_decoder_layers=self._num_layers("decoder"),
            norm_placement=NormPlacement.PRE if self._both("pre_norm", 1) else NormPlacement.POST,
            max_positions=len(state["positions"]),
            pad_id=0,
            unk_id=0,  # the tokenizer's affair
            start_id=start_id,
            eos_id=_index(target, end, file.path),
            suppressed_ids=(start_id,) if self._starts_at_zero else (),
            shared_embeddings="target_embedding.weight" not in state,
            tied_projection="projection.weight" not in state,
            projection_bias="projection_bias" in state,
            scaled_embeddings=self._is_scaled(d_model),
            position_table=True,
            separate_positions="target_positions" in state,
            embedding_norm=self._in_both("layernorm_embedding/gamma"),
            final_norm=self._in_both("layer_norm/gamma"),
            norm_epsilon=self._norm_epsilon,
            activation=self._activation(),
        )

    def _layer(self, stack: str, number: int, config: ModelConfig) -> State:
        key, name, D = f"{stack}.layers.{number}", f"{stack}/layer_{number}", config.d_model
        state = self._attention(f"{key}.self_attention", f"{name}/self_attention", ("query", "key", "value"), (), D)
        if stack == "decoder":
            state |= self._attention(f"{key}.cross_attention", f"{name}/attention", ("query",), ("key", "value"), D)
        feed_forward = f"{key}.feed_forward"
        state |= self._linear([f"{feed_forward}.inner"], f"{name}/ffn/linear_0", (config.d_ff, D))
        state |= self._linear([f"{feed_forward}.outer"], f"{name}/ffn/linear_1", (D, config.d_ff))
        return state | self._norm(f"{feed_forward}_norm", f"{name}/ffn/layer_norm", D)

    def _attention(self, key: str, name: str, first: Sequence[str], second: Sequence[str], D: int) -> State:
        """Return one attention, whose layers with the same input lie on top of each other in the file."""
        parts = [part for part in (first, second, ("output",)) if part]
        state = self._norm(f"{key}_norm", f"{name}/layer_norm", D)
        for number, names in enumerate(parts):
            state |= self._linear([f"{key}.{one}" for one in names], f"{name}/linear_{number}", (D * len(names), D))
        return state

    def _linear(self, keys: Sequence[str], name: str, shape: tuple[int, int]) -> State:
        weight = self._file.array(f"{name}/weight", shape)
        bias = np.zeros(shape[0], np.float32)
        if f"{name}/bias" in self._file:
            bias = self._file.array(f"{name}/bias", (shape[0],))
        weights, biases = np.split(weight, len(keys)), np.split(bias, len(keys))
        state = {f"{key}.weight": part for key, part in zip(keys, weights, strict=True)}
        return state | {f"{key}.bias": part for key, part in zip(keys, biases, strict=True)}

    def _norm(self, key: str, name: str, D: int) -> State:
        if f"{name}/beta" not in self._file and f"{name}/gamma" in self._file:
            raise ForeignModelError(f"{self._file.path}: {name} has no beta: RMS norms are not supported")
        gamma, beta = (self._file.array(f"{name}/{part}", (D,)) for part in ("gamma", "beta"))
        return {f"{key}.weight": gamma, f"{key}.bias": beta}

    def _positions(self, d_model: int) -> State:
        """Return the tables of both stacks, one if they are equal; without any, CTranslate2's own from step 1 on."""
        tables = [f"{stack}/position_encodings/encodings" for stack in ("encoder", "decoder")]
        if not any(name in self._file for name in tables):
            return {"positions": _own_positions(_DEFAULT_POSITIONS, d_model)}
        source, target = map(self._file.array, tables)
        if source.shape != target.shape:
            raise ForeignModelError(
                f"{self._file.path}: {tables[0]} and {tables[1]} have shapes {source.shape} and {target.shape}: "
                "not supported"
            )
        if source.ndim != 2 or source.shape[1] != d_model:
            raise ForeignModelError(
                f"{self._file.path}: {tables[0]} has shape {source.shape}, {d_model} columns needed"
            )
        return (
            {"positions": source}
            if np.array_equal(source, target)
            else {"positions": source, "target_positions": target}
        )

    def _shape(self, name: str) -> tuple[int, int]:
        """Return rows and columns."""
        shape = self._file.shape(name)
        if len(shape) != 2:
            raise ForeignModelError(f"{self._file.path}: {name} has shape {shape}, rows and columns are needed")
        return shape[0], shape[1]

    def _num_layers(self, stack: str) -> int:
        number = 0
        while f"{stack}/layer_{number}/self_attention/linear_0/weight" in self._file:
            number += 1
        return number

    def _attribute(self, stack: str, name: str, default: float) -> float:
        """Return a setting of a stack; before revision 5 both stacks have it together."""
        return self._file.scalar(f"{stack}/{name}", self._file.scalar(name, default))

    def _both(self, name: str, default: float) -> float:
        source, target = (self._attribute(stack, name, default) for stack in ("encoder", "decoder"))
        if source != target:
            raise ForeignModelError(
                f"{self._file.path}: {name} is {source:g} in the encoder and {target:g} in the decoder, "
                "which is not supported"
            )
        return source

    def _in_both(self, name: str) -> bool:
        source, target = (f"{stack}/{name}" in self._file for stack in ("encoder", "decoder"))
        if source != target:
            raise ForeignModelError(f"{self._file.path}: only one of encoder and decoder has {name}: not supported")
        return source

    def _activation(self) -> Activation:
        found = int(self._both("activation", 0))
        if found not in _ACTIVATIONS:
            names = ", ".join(f"{number} ({name})" for number, name in _ACTIVATIONS.items())
            raise ForeignModelError(f"{self._file.path}: activation is {found}, supported are {names}")
        return _ACTIVATIONS[found]

    def _is_scaled(self, d_model: int) -> bool:
        """Return whether both stacks multiply embeddings by sqrt(D)."""
        root = math.sqrt(d_model)
        factors = [self._factor("encoder", self._source), self._factor("decoder", "decoder/embeddings")]
        rounded = [root if factor is None or math.isclose(factor, root, rel_tol=1e-5) else factor for factor in factors]
        if rounded not in ([root, root], [1.0, 1.0]):
            raise ForeignModelError(
                f"{self._file.path}: embeddings are scaled by {rounded[0]:g} (source) and {rounded[1]:g} (target), "
                f"both must be 1 or {root:g}"
            )
        return factors[0] != 1.0

    def _factor(self, stack: str, embeddings: str) -> float | None:
        """Return what embeddings are multiplied by, None for sqrt(D): the file has a factor, a flag, or nothing."""
        for name in (f"{stack}/scale_embeddings", f"{embeddings}/multiply_by_sqrt_depth"):
            if name in self._file:
                value = self._file.scalar(name, 1.0)
                if self._file.is_float(name):
                    return value
                return None if value else 1.0
        return None


def _own_positions(num_positions: int, d_model: int) -> Array:
    """Return CTranslate2's sinusoids (src/layers/common.cc): halves, rates 10000^(-i / (D/2 - 1)), from step 1 on."""
    half = d_model // 2
    rates = np.exp(np.arange(half, dtype=np.float32) * np.float32(-math.log(10_000.0) / max(half - 1, 1)))
    angles = np.arange(1, num_positions + 1, dtype=np.float32)[:, None] * rates
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1)


def _index(tokens: Sequence[str], token: str, path: Path) -> int:
    if token not in tokens:
        raise ForeignModelError(f"{path}: the target vocabulary has no token {token!r}")
    return tokens.index(token)
