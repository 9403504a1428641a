"""Writes the weights of a bundle's graphs as `model.cpp` reads them: each once, packed for products, in one file.

All engines of a model map that file, which `service/scheduler/packed_weights.py` has had written before they start.
Sums run over zeros where a width is no multiple of 16, which changes nothing.

Axes: I inputs and O outputs of a product, D width, H heads, d width of a head, V tokens.
"""

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from model.bundle import Bundle, BundleError
from model.config import Activation, Architecture, ModelConfig, NormPlacement
from model.manifest import Variant
from protos.graph_weights_pb2 import GraphFile, Tensor
from service.engine.beams import Floats
from service.engine.cpu.native.library import PANEL, most_weight_sum
from service.engine.wire import EngineSpec

Array = npt.NDArray[Any]
_Parts = tuple[int, int]  # of an axis: number and width

_MAGIC, _FORMAT = b"DRAGOMAN", 4
_HEADER = struct.Struct("<8s 4i f 20i f i")  # `Header` of model.h
_SUMMED_DOTS = 8  # kSummedDots of kernels.h
_PLACE = struct.Struct("<2Q")  # offset and length of a tensor
_ALIGNMENT = 64
_BLOCK = 64  # logits come in multiples of it
_PANELS = 32  # of 16 outputs that are fitted together: what is between stays in cache
_ACTIVATIONS = (Activation.RELU, Activation.SWISH, Activation.GELU, Activation.GELU_TANH)  # `Activation` of kernels.h
_TYPES = {1: np.float32, 2: np.uint8, 3: np.int8, 7: np.int64, 10: np.float16}  # TensorProto.DataType
_NOTHING = np.zeros(0, np.float32)


def write_shared(spec: EngineSpec) -> None:
    """Write the packed weights that all engines of this spec map; raises as `write_packed`."""
    assert spec.packed_weights is not None
    bundle = Bundle.load(spec.bundle_dir, manifest_sha256=spec.manifest_sha256)
    with spec.packed_weights.open("wb") as out:
        write_packed(bundle, spec.precision, out, most_weight_sum())


def write_packed(bundle: Bundle, precision: str | None, out: BinaryIO, most_sum: int) -> None:
    """Write the packed model into an empty file.

    Args:
        most_sum: what the integers of products keep to, `Kernels::most_weight_sum` of kernels.h.

    Raises:
        BundleError: the graphs do not have the weights of the manifest's model.
        OSError: there is no room.
    """
    try:
        packer = _Packer(bundle.manifest.config, _weights(bundle, bundle.variant(precision)), most_sum)
        packer.add_all()
    except KeyError as error:
        raise BundleError(f"{bundle.directory}: the graphs lack {error} of the manifest's model") from error
    except ValueError as error:
        raise BundleError(f"{bundle.directory}: the graphs are not of the manifest's model: {error}") from error
    packer.write(out)
    out.flush()


def _weights(bundle: Bundle, variant: Variant) -> dict[str, Array]:
    """Return the constants of the graphs by name; large ones are read when they are looked at."""
    found: dict[str, Array] = {}
    for name in (variant.encoder, variant.decoder_step):
        path = bundle.path(name)
        try:
            tensors = GraphFile.FromString(path.read_bytes()).graph.initializer
        except Exception as error:  # protobuf's own, which the engine knows nothing of
            raise ValueError(f"{name} is no graph") from error
        if not tensors:
            raise ValueError(f"{name} has no weights")
        for tensor in tensors:
            found[tensor.name] = _array(tensor, path.parent)
    return found


def _array(tensor: Tensor, directory: Path) -> Array:
    shape, dtype = tuple(tensor.dims), np.dtype(_TYPES[tensor.data_type])
    place = {entry.key: entry.value for entry in tensor.external_data}
    if not place:
        return np.frombuffer(tensor.raw_data, dtype).reshape(shape)
    if Path(place["location"]).name != place["location"]:
        raise ValueError(f"{tensor.name} lies in {place['location']!r}, outside the graph's directory")
    try:
        return np.memmap(directory / place["location"], dtype, "r", int(place.get("offset", 0)), shape)
    except ValueError as error:
        raise ValueError(f"{place['location']} ends before {tensor.name}") from error


@dataclass
class _Packer:
    """The tensors of a packed model in the order in which `read_model` takes them."""

    config: ModelConfig
    weights: dict[str, Array]
    most_sum: int
    # Those that are made together: how many, and how.
    groups: list[tuple[int, Callable[[], Sequence[Array]]]] = field(default_factory=list)

    @property
    def num_logits(self) -> int:
        return _padded(self.config.num_target_tokens, _BLOCK)

    def add_all(self) -> None:
        config = self.config
        width, heads = (1, config.d_model), (config.num_heads, config.d_head)
        self.table("embedding", config.vocab_size)
        if not config.shared_embeddings:
            self.table("target_embedding", config.num_target_tokens)
        positions = (config.max_positions, config.d_model)
        if config.relative_distance:
            self.add(_NOTHING)
        else:
            self.plain("positions", positions)
        if config.separate_positions:
            self.plain("target_positions", positions)
        if config.embedding_norm:
            self.norm("encoder.embedding_norm")
            self.norm("decoder.embedding_norm")
        for stack in ("encoder", "decoder") if config.relative_distance else ():
            self.plain(f"{stack}.relative_bias", (config.num_heads, 2 * config.relative_distance + 1))
        for layer in range(config.num_encoder_layers):
            name = f"encoder.layers.{layer}"
            self.norm(f"{name}.self_attention_norm")
            self.linear(f"{name}.self_attention.query_key_value", width, _times(3, heads))
            self.linear(f"{name}.self_attention.output", heads, width)
            self.feed_forward(name)
        if config.has_final_norm:
            self.norm("encoder.norm")
        self.linear("decoder.cross_attention.key_value", width, _times(2 * config.num_decoder_layers, heads))
        for layer in range(config.num_decoder_layers):
            name = f"decoder.layers.{layer}"
            self.norm(f"{name}.self_attention_norm")
            if config.architecture is Architecture.SSRU:
                self.linear(f"{name}.self_attention.input_forget", width, _times(2, width))
            else:
                self.linear(f"{name}.self_attention.query_key_value", width, _times(3, heads))
                self.linear(f"{name}.self_attention.output", heads, width)
            self.norm(f"{name}.cross_attention_norm")
            self.linear(f"{name}.cross_attention.query", width, heads)
            self.linear(f"{name}.cross_attention.output", heads, width)
            self.feed_forward(name)
        if config.has_final_norm:
            self.norm("decoder.norm")
        self.projection()

    def add(self, *arrays: Array) -> None:
        """Add tensors as they are."""
        self.groups.append((len(arrays), lambda: arrays))

    def plain(self, name: str, shape: Sequence[int]) -> None:
        """Add floats of a graph."""
        self.add(self.weight(name, shape).astype(np.float32))

    def weight(self, name: str, shape: Sequence[int]) -> Array:
        """Return a constant of a graph, which must have this shape."""
        array = self.weights[name]
        if array.shape != tuple(shape):
            raise ValueError(f"{name} has shape {array.shape}, {tuple(shape)} is needed")
        return array

    def norm(self, name: str) -> None:
        """Add `Norm`."""
        self.plain(f"{name}.weight", (self.config.d_model,))
        if self.config.rms_norm:
            self.add(_NOTHING)
        else:
            self.plain(f"{name}.bias", (self.config.d_model,))

    def table(self, name: str, num_tokens: int) -> None:
        """Add `Table`: the rows of an embedding, times sqrt(D) where the model has that."""
        width = self.config.d_model
        if (integers := self.weights.get(f"{name}.int8")) is not None:
            scales = self.weights[f"{name}.row_scales"].reshape(-1)[:num_tokens]
            self.add(integers[:num_tokens], _NOTHING, scales.astype(np.float32))
            shape = integers.shape
        else:
            rows, scale = self.weights[f"{name}.weight"], self.weights.get(f"{name}.sqrt_d_model", np.float32(1.0))
            shape = rows.shape
            make = lambda: [_NOTHING, rows[:num_tokens].astype(np.float32) * scale.reshape(()), _NOTHING]  # noqa: E731
            self.groups.append((3, make))
        if shape[0] < num_tokens or shape[1:] != (width,):
            raise ValueError(f"{name} has shape {shape}, {(num_tokens, width)} is needed")

    def feed_forward(self, layer: str) -> None:
        """Add `FeedForward` of a layer."""
        name, width, inner = f"{layer}.feed_forward", (1, self.config.d_model), (1, self.config.d_ff)
        self.norm(f"{name}_norm")
        if self.config.gated:
            self.linear(f"{name}.gate_inner", width, _times(2, inner))
        else:
            self.linear(f"{name}.inner", width, inner)
        self.linear(f"{name}.outer", inner, width)

    def linear(self, name: str, ins: _Parts, outs: _Parts) -> None:
        """Add `Linear`: weights [I, O] in integers or floats, each part of whose inputs and outputs is padded."""
        shape = ins[0] * ins[1], outs[0] * outs[1]
        bias = _pad_parts(self.weight(f"{name}.bias", shape[1:]).astype(np.float32), 0, outs)
        scales, kind = None, "weight"
        if f"{name}.int8" in self.weights:
            scales, kind = _pad_parts(self.weight(f"{name}.scales", shape[1:]), 0, outs), "int8"
        weights = _pad_parts(_pad_parts(self.weight(f"{name}.{kind}", shape), 0, ins), 1, outs)
        self.add_linear(weights, scales, bias)

    def add_linear(self, weights: Array, scales: Array | None, bias: Floats) -> None:
        """Add `Linear` of weights [I, O] whose sizes are multiples of 16."""
        if scales is None:
            self.groups.append((4, lambda: [_NOTHING, pack_floats(weights), _NOTHING, _NOTHING]))
        else:
            self.groups.append((4, lambda: _integers(weights, scales, self.most_sum)))
        self.add(bias)

    def projection(self) -> None:
        """Add `Linear` from states to logits, of which those behind the last token are minus infinity, and its bans."""
        name, num_tokens = self.config.projection_table, self.config.num_target_tokens
        is_integer = f"{name}.scales" in self.weights
        rows = self.weights[f"{name}.int8" if is_integer else f"{name}.weight"]
        if len(rows) < num_tokens or rows.shape[1:] != (self.config.d_model,):
            raise ValueError(f"{name} has shape {rows.shape}, {(num_tokens, self.config.d_model)} is needed")
        rest = (0, self.num_logits - num_tokens)
        bias = np.full(self.num_logits, -np.inf, np.float32)
        bias[:num_tokens] = self.weights.get("logits.bias", np.zeros(num_tokens, np.float32))[:num_tokens]
        weights = np.pad(rows[:num_tokens], (rest, (0, 0))).T
        scales = np.pad(self.weights[f"{name}.scales"].reshape(-1)[:num_tokens], rest) if is_integer else None
        self.add_linear(weights, scales, bias)
        if self.config.suppressed_keep_mass:
            bans = np.zeros(self.num_logits, np.float32)
            bans[list(self.config.suppressed_ids)] = -np.inf
            self.add(bans)

    def header(self, num_tensors: int) -> bytes:
        config, keeps_floats = self.config, not any(name.endswith(".int8") for name in self.weights)
        sizes = (config.d_model, config.num_heads, _padded(config.d_head))
        return _HEADER.pack(
            _MAGIC, _FORMAT, *sizes, config.d_head**-0.5, _padded(config.d_ff), config.vocab_size,
            config.num_target_tokens, self.num_logits, config.num_encoder_layers, config.num_decoder_layers,
            config.max_positions, config.relative_distance, config.architecture is Architecture.SSRU,
            config.norm_placement is NormPlacement.PRE, config.embedding_norm,
            config.has_final_norm, config.separate_positions, config.shared_embeddings, config.rms_norm,
            config.gated, _ACTIVATIONS.index(config.activation), keeps_floats, config.suppressed_keep_mass,
            self.most_sum, config.norm_epsilon, num_tensors,
        )  # fmt: skip

    def write(self, out: BinaryIO) -> None:
        """Write header, places of the tensors and tensors, each of which begins at a multiple of 64 bytes."""
        num_tensors = sum(number for number, _ in self.groups)
        begin, places = _padded(_HEADER.size, _ALIGNMENT), list[bytes]()
        out.write(b"\0" * (begin + num_tensors * _PLACE.size))  # until they are known
        for _, make in self.groups:
            for array in make():
                out.write(b"\0" * (-out.tell() % _ALIGNMENT))
                places.append(_PLACE.pack(out.tell(), array.nbytes))
                out.write(np.ascontiguousarray(array).data)
        out.seek(0)
        out.write(self.header(num_tensors).ljust(begin, b"\0") + b"".join(places))


def _integers(weights: Array, scales: Floats, most_sum: int) -> Sequence[Array]:
    """Return the tensors of `Linear` but for the bias: integers, no floats, scales and sums."""
    packed = pack_integers(weights)
    factors = fit_sums(packed, most_sum).reshape(-1)
    sums = packed.sum(axis=(1, 3), dtype=np.int32).reshape(-1)
    return packed, _NOTHING, (scales / factors).astype(np.float32), sums


def fit_sums(packed: Array, most_sum: int) -> Floats:
    """Make packed integers [O / 16, I / 4, 16, 4] smaller where sums of 16 bits could overflow.

    Returns:
        [O / 16, 16]: what the weights of each output were multiplied with.
    """
    factors = np.ones((len(packed), PANEL), np.float32)
    for first in range(0, len(packed), _PANELS):
        wanted = packed[first : first + _PANELS].copy()
        panels = np.arange(len(wanted))
        while len(panels):
            sums = _greatest_sums(packed[first + panels])
            panels, sums = panels[(sums > most_sum).any(axis=1)], sums[(sums > most_sum).any(axis=1)]
            factors[first + panels] /= np.maximum(sums / (most_sum - 2), 1.0)  # rounding can add to a sum
            smaller = wanted[panels] * factors[first + panels, None, :, None]
            packed[first + panels] = np.rint(smaller, out=smaller).astype(np.int8)
    return factors


def _greatest_sums(packed: Array) -> Array:
    """Return [O / 16, 16]: what weights of one sign sum to at most where products are summed in 16 bits."""
    first_of_each = np.arange(0, packed.shape[1], _SUMMED_DOTS)
    signs = []
    for part in (np.maximum(packed, 0), np.minimum(packed, 0)):
        pairs = np.add(part[..., 0::2], part[..., 1::2], dtype=np.int16)  # [O / 16, I / 4, 16, 2]
        signs.append(np.abs(np.add.reduceat(pairs, first_of_each, axis=1)))
    greatest: Array = np.maximum(*signs).max(axis=(1, 3))
    return greatest


def pack_integers(weights: Array) -> Array:
    """Return int8 [I, O] as [O / 16][I / 4][16][4]."""
    num_inputs, num_outputs = weights.shape
    parts = weights.reshape(num_inputs // 4, 4, num_outputs // PANEL, PANEL)
    return np.array(parts.transpose(2, 0, 3, 1), order="C")


def pack_floats(weights: Array) -> Array:
    """Return floats [I, O] as float32 [O / 16][I][16]."""
    num_inputs, num_outputs = weights.shape
    parts = weights.reshape(num_inputs, num_outputs // PANEL, PANEL)
    return np.ascontiguousarray(parts.transpose(1, 0, 2), np.float32)


def _padded(number: int, multiple: int = PANEL) -> int:
    return -(-number // multiple) * multiple


def _times(number: int, parts: _Parts) -> _Parts:
    return number * parts[0], parts[1]


def _pad_parts(array: Array, axis: int, parts: _Parts) -> Array:
    """Pad each part of an axis with zeros to a multiple of 16."""
    number, width = parts
    if width % PANEL == 0:
        return array
    shape = array.shape
    split = array.reshape(*shape[:axis], number, width, *shape[axis + 1 :])
    widths = [(0, 0)] * split.ndim
    widths[axis + 1] = (0, -width % PANEL)
    return np.pad(split, widths).reshape(*shape[:axis], -1, *shape[axis + 1 :])
