"""The model shapes of the race: the trained default, and a Transformer-base made from it without training.

Random weights never stop by themselves, and a model that is forced to a length runs neither real text nor a real
search.  So the default is widened until it has the shape of Transformer-base and still gives the same translations:

    d_model 256 -> 512     every feature twice; what reads features reads half of each copy
    d_head 32 -> 64        every feature of a head twice, so that products of queries and keys double; the scale
                           1 / sqrt(d_head) takes back a factor sqrt(2), the query's weights the other
    d_ff 1,024 -> 2,048    every inner feature twice
    layers 6+2 -> 6+6      copies of the layers there are, whose outputs are scaled down to nearly nothing
    vocabulary -> 32,000   more embedding rows, which always score -24 (see `Bias`)

The embedding is multiplied by sqrt(d_model), so its rows shrink by sqrt(2), which the last norm takes back for the tied
projection.  The position table is the default's with every feature twice, where Transformer-base has one with other
frequencies: a table is a constant, which costs the same whatever is in it.

OPUS-MT's shape is that with 58,101 tokens and swish, of which each inner feature gets 32 times its value and gives
back a 32nd: swish(32 x) / 32 is within 0.009 of max(0, x).  Its norms stay before the sublayers, where OPUS-MT has them
behind, which costs the same.

The shape of NLLB-200-distilled-600M is widened twice, the second time with every head twice in place of its features:
d_model 1,024, d_ff 4,096, 16 heads, 12+12 layers and 256,206 tokens.

Knows parameters by the names of `model/transformer.py`; knows neither engines nor files.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from export.builder import Array
from export.linear import State
from model.config import Activation, ModelConfig, NormPlacement
from model.layers import sinusoidal_positions

SQRT2 = float(np.sqrt(2.0))
BASE_LAYERS, BASE_VOCABULARY, OPUS_VOCABULARY = 6, 32_000, 58_101
NLLB_LAYERS, NLLB_VOCABULARY = 12, 256_206
STEEPNESS = 32.0  # of swish
NEARLY_NOTHING = 2.0**-20  # of an added layer's output; not zero, which a library might treat by itself


@dataclass(frozen=True, slots=True)
class Shape:
    """A model that the race runs."""

    name: str
    config: ModelConfig
    state: State


@dataclass(frozen=True, slots=True)
class Bias:
    """How a model without output bias gets one for the tokens that were added.

    The two copies of the decoder's output differ by a constant after the last norm: h - b and h + b.  Rows of real
    tokens weigh both copies alike, so that b cancels.  Added rows weigh them oppositely and see b alone: their logit is
    the same at every step.

    24,000 tokens at -24 together have less than 1e-6 of the probability of one at 0, and the default's best tokens are
    at 6 and more.  They are not so improbable that exp() gives subnormal numbers, which are slow.
    """

    offset: float = 0.5  # b, on every feature; the outputs themselves are about 1
    logit: float = -24.0

    def rows(self, num_rows: int, d_model: int) -> Array:
        """Return embedding rows [num_rows, 2 * d_model] that always score `logit`."""
        weight = -self.logit / (2 * d_model * self.offset)
        row = np.concatenate([np.full(d_model, weight), np.full(d_model, -weight)])
        return np.tile(row, (num_rows, 1)).astype(np.float32)


BIAS = Bias()


def default_shape(config: ModelConfig, state: State) -> Shape:
    """The trained model as it is."""
    return Shape("default", config, state)


def base_shape(
    config: ModelConfig,
    state: State,
    *,
    layers: int = BASE_LAYERS,
    vocabulary: int = BASE_VOCABULARY,
    more_heads: bool = False,
) -> Shape:
    """Return a model twice as wide, deeper and with more tokens that gives the same translations.

    Args:
        config: the shape of the model that is widened.
        state: its parameters.
        layers: of the encoder and of the decoder.
        vocabulary: number of tokens.
        more_heads: whether there are twice as many heads, and not heads that are twice as wide.

    Raises:
        ValueError: the model is post-norm, where no layer can be added without effect, or larger already.
    """
    if config.norm_placement is not NormPlacement.PRE:
        raise ValueError(f"norm_placement is {config.norm_placement}; only a pre-norm model can be made deeper")
    wide = replace(
        config,
        d_model=2 * config.d_model,
        d_ff=2 * config.d_ff,
        num_heads=2 * config.num_heads if more_heads else config.num_heads,
        num_encoder_layers=layers,
        num_decoder_layers=layers,
        vocab_size=vocabulary,
        position_table=True,
    )
    if max(config.num_encoder_layers, config.num_decoder_layers) > layers or config.vocab_size > vocabulary:
        raise ValueError(f"the model has more than {layers} layers or {vocabulary} tokens already")
    positions = state.get("positions", sinusoidal_positions(config.max_positions, config.d_model).numpy())
    wider_heads = 0 if more_heads else config.num_heads
    widened = {name: _twice(name, array, wider_heads) for name, array in state.items() if name != "positions"}
    table = widened["embedding.weight"]
    widened["embedding.weight"] = np.concatenate([table, BIAS.rows(vocabulary - len(table), config.d_model)])
    return Shape("base", wide, _with_more_layers({**widened, "positions": np.tile(positions, (1, 2))}, config, layers))


def nllb_shape(config: ModelConfig, state: State) -> Shape:
    """Return a model of NLLB-200-distilled-600M's shape that gives the same translations; raise as `base_shape`."""
    base = base_shape(config, state, vocabulary=config.vocab_size)
    nllb = base_shape(base.config, base.state, layers=NLLB_LAYERS, vocabulary=NLLB_VOCABULARY, more_heads=True)
    return replace(nllb, name="nllb")


def opus_shape(
    config: ModelConfig, state: State, *, layers: int = BASE_LAYERS, vocabulary: int = OPUS_VOCABULARY
) -> Shape:
    """Return a model of OPUS-MT's shape that gives nearly the same translations.

    Raises:
        ValueError: as `base_shape`.
    """
    base = base_shape(config, state, layers=layers, vocabulary=vocabulary)
    factors = {"inner.weight": STEEPNESS, "inner.bias": STEEPNESS, "outer.weight": 1 / STEEPNESS}
    steep = {
        name: array * np.float32(factors.get(name.partition("feed_forward.")[2], 1.0))
        for name, array in base.state.items()
    }
    return Shape("opus", replace(base.config, activation=Activation.SWISH), steep)


def _twice(name: str, array: Array, num_heads: int) -> Array:
    """Return a parameter of the model that is twice as wide: of its heads each, or 0: there are twice as many."""
    kind, part = name.split(".")[-2:]
    if kind == "embedding":
        return np.tile(array, (1, 2)) / np.float32(SQRT2)
    if name.startswith("decoder.norm."):
        copies = [-BIAS.offset, BIAS.offset] if part == "bias" else [0.0, 0.0]
        return np.concatenate([array / SQRT2 + offset for offset in copies]).astype(np.float32)
    if kind.endswith("norm"):
        return np.tile(array, 2)
    of_heads = num_heads and kind in ("query", "key", "value")
    outputs = _twice_in_heads(array, num_heads) if of_heads else np.concatenate([array, array])
    if num_heads and kind == "query":
        outputs = outputs / np.float32(SQRT2)
    if part == "bias":
        return outputs
    is_from_heads = num_heads and kind == "output"
    return _twice_in_heads(outputs.T, num_heads).T / 2 if is_from_heads else np.tile(outputs, (1, 2)) / 2


def _twice_in_heads(array: Array, num_heads: int) -> Array:
    """[H * d, ..] -> [H * 2d, ..]: the features of each head are followed by their copies."""
    heads = array.reshape(num_heads, -1, *array.shape[1:])
    return np.concatenate([heads, heads], axis=1).reshape(-1, *array.shape[1:])


def _with_more_layers(state: Mapping[str, Array], config: ModelConfig, layers: int) -> dict[str, Array]:
    """Layer i becomes a copy of layer i modulo those there are, and adds nearly nothing."""
    deeper = dict(state)
    for stack, num_layers in (("encoder", config.num_encoder_layers), ("decoder", config.num_decoder_layers)):
        for layer in range(num_layers, layers):
            original, copy = (f"{stack}.layers.{number}." for number in (layer % num_layers, layer))
            for name in [name for name in state if name.startswith(original)]:
                scale = np.float32(NEARLY_NOTHING if re.search(r"\.(output|outer)\.", name) else 1.0)
                deeper[copy + name.removeprefix(original)] = state[name] * scale
    return deeper


MAKERS: dict[str, Callable[..., Shape]] = {
    "default": default_shape,
    "base": base_shape,
    "opus": opus_shape,
    "nllb": nllb_shape,  # 10 GB of memory and 4 GB of disk while it is made
}
