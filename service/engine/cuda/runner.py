"""Runs the fp16 graphs on a GPU (`Runner`): keys and values stay there, and a step is one upload and one download.

A step runs over a few more slots than there are sentences (`cache.py`), so that few shapes come up; what it says of
the others is thrown away.  With `cuda_graphs`, the step of each shape is recorded when the shape comes up, and replayed
from then on: one launch in place of a hundred.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import onnxruntime as ort

from model.bundle import Bundle, BundleError
from model.config import ModelConfig
from model.manifest import GPU_PRECISION
from service.engine.beam import Candidates
from service.engine.cuda.cache import HALF_MASKED, Arrays, CudaEncoded, CudaState
from service.engine.cuda.memory import Block, CudaDevice, Device, Layout
from service.engine.cuda.session import free_memory, on_device, open_on_cuda, require_cuda
from service.engine.faults import explained
from service.engine.job import Forced, HeadWeights
from service.engine.key_value_cache import CacheShape
from service.engine.runner import (
    Floats,
    Ints,
    StepGraph,
    check_limits,
    layer_names,
    no_head_weights,
    no_scorer,
    pad,
    shortest_source,
)
from service.engine.scheduler import SchedulerConfig
from service.engine.spec import EngineSpec
from service.engine.steering import NO_EDITS, Edits

_MAX_SHAPES = 256  # that are bound and perhaps recorded; a recording keeps memory for as long as the session lives
_SOURCE_COLUMNS = 8  # sources are padded to multiples of it
_BLOCK_BYTES = 4 << 20  # of a new block; larger ones only for more than about 256 sentences
# How memory is shared out (`fitting_budgets`).
_USABLE = 0.8  # of the free memory; the rest is for workspaces of products and for what memory in pieces loses
_MEMORIES = 3  # keys and values have up to twice the memory that they need, and move there from one half as large
_LOGIT_BYTES = 2 + 3 * 4  # half precision as a product, float32 as logits, edited, log-probabilities
_ENCODER_FACTOR = 16  # activations of a token in the encoder, in widths of the model

Sessions = dict[str, ort.InferenceSession]  # by file name without suffix
GRAPHS = ("encoder", "decoder_step")


class StepKey(NamedTuple):
    """What a step's shapes and addresses follow from; equal keys run the same recording."""

    num_slots: int  # B
    beam_size: int  # K
    num_candidates: int
    own: tuple[int, int, int]  # columns, address and capacity of self-attention's keys and values
    cross: tuple[int, int, int]


class CudaRunner:
    """The fp16 graphs of one bundle on one device."""

    has_scorer = False

    def __init__(
        self,
        bundle: Bundle,
        sessions: Sessions,
        device: Device,
        *,
        records: bool = False,
        masked: np.floating[Any] = HALF_MASKED,
    ) -> None:
        """Take the open sessions of `GRAPHS`.

        Args:
            records: whether to record steps and replay them (CUDA graphs), which the session of the step must allow.
            masked: what masks a key, of the type of keys and values.
        """
        check_limits(bundle)
        self._bundle = bundle
        self._config = bundle.manifest.config
        self._num_logits = bundle.manifest.num_logits
        self.profile, self.warm_up_source = bundle.manifest.profile, shortest_source(self._config)
        self._max_target_tokens = bundle.manifest.decoding.max_target_tokens
        self.cache_shape = CacheShape.of(self._config)
        self._device, self._masked, self._records = device, masked, records
        self._encoder, self._decoder = sessions["encoder"], StepGraph.of(sessions["decoder_step"])
        if "new_columns" not in {value.name for value in self._decoder.session.get_inputs()}:
            raise BundleError(
                f"{bundle.directory} has {GPU_PRECISION} graphs of an older export; "
                f"`python -m export {bundle.directory} OTHER --precision {GPU_PRECISION}` draws them again"
            )
        self._blocks: dict[str, Block] = {}
        self._steps: dict[StepKey, _BoundStep] = {}  # least recently used first
        self._is_encoding = False  # whether the encoder's inputs may still be on their way

    @classmethod
    def open(cls, spec: EngineSpec) -> Self:
        """Return the runner of an engine process, or raise DeviceError or BundleError."""
        require_cuda()
        bundle = Bundle.load(spec.bundle_dir, manifest_sha256=spec.manifest_sha256)
        paths, device = graph_paths(bundle, spec.precision), CudaDevice()
        sessions = {
            name: open_on_cuda(path, device.stream, cuda_graphs=spec.cuda_graphs and name == "decoder_step")
            for name, path in paths.items()
        }
        return cls(bundle, sessions, device, records=spec.cuda_graphs)

    def score(self, encoded: Sequence[tuple[CudaEncoded, int]], translations: Sequence[Sequence[int]]) -> list[Forced]:
        """Raise BundleError: there is no scorer for a GPU."""
        raise no_scorer(self._bundle, "cuda")

    def head_weights(self, source: Sequence[int], translation: Sequence[int]) -> HeadWeights:
        """Raise BundleError: the graphs for a GPU do not give them."""
        raise no_head_weights(self._bundle)

    def budgets(self, wanted: SchedulerConfig) -> SchedulerConfig:
        """Return the budgets as far as the device has memory for them; weights are loaded already."""
        return fitting_budgets(wanted, free_memory(), self._config, self._max_target_tokens)

    def new_state(self, beam_size: int, *, use_shortlist: bool = False) -> CudaState:
        """Return a state whose sentences may use all tokens: a GPU's products are large enough for them."""
        return CudaState(self.cache_shape, beam_size, self._device, self._masked)

    def encode(self, sources: Sequence[Sequence[int]]) -> CudaEncoded:
        source_ids, lengths = pad(sources, _SOURCE_COLUMNS)
        starts = np.arange(len(sources) + 1) * source_ids.shape[1]
        bounds = np.concatenate([lengths, starts, starts]).astype(np.int32)
        given: Arrays = {"source_ids": source_ids, "source_lengths": lengths, "bounds": bounds}
        layout = Layout({name: (array.shape, array.dtype) for name, array in given.items()})
        with explained():
            if self._is_encoding:  # the last inputs must have arrived before they are written over
                self._device.wait()
            block = self._block("encoder", layout.size)
            for name, view in layout.views(block.host).items():
                view[:] = given[name]
            self._device.send(block, layout.size)
            self._is_encoding = True
            binding = self._encoder.io_binding()
            layout.bind(binding.bind_input, block, self._device.name)
            binding.bind_output("cross", self._device.name, 0)
            self._encoder.run_with_iobinding(binding, _options())
            return CudaEncoded(binding.get_outputs()[0], lengths, source_ids.shape[1])

    def decode_step(
        self, tokens: Ints, scores: Floats, state: CudaState, edits: Edits | None = None, *, num_candidates: int
    ) -> Candidates:
        width = min(num_candidates, state.beam_size * self._num_logits)
        with explained():
            state.prepare()
        try:
            with explained():
                step = self._run(tokens, scores, state, edits, width)
        except Exception as error:  # ONNX Runtime's exceptions have no public base class
            if isinstance(error, MemoryError) or not self._records:
                raise
            self._stop_recording(error)
            with explained():
                step = self._run(tokens, scores, state, edits, width)
        slots = state.slots
        best, ids, check = (step.found[name][slots] for name in ("candidate_scores", "candidate_ids", "check"))
        parents, found = np.divmod(ids, self._num_logits)
        return Candidates(best, found, parents, check)

    def _run(
        self, tokens: Ints, scores: Floats, state: CudaState, edits: Edits | None, num_candidates: int
    ) -> "_BoundStep":
        """Run one step and wait for what it finds."""
        step, slots, options = self._step(state, num_candidates), state.slots, None
        if edits is not None:
            self._edit(step, edits, slots)
            options = step.edited_options
        elif step.is_edited:
            self._edit(step, NO_EDITS, slots)
        state.write(step.given)
        for name, values in (("tokens", tokens), ("scores", scores[:, :, None])):
            step.given[name][:] = 0  # in slots without a sentence, too: steps of all shapes share the block
            step.given[name][slots] = values
        self._device.send(step.sent, step.sent_bytes)
        self._decoder.session.run_with_iobinding(step.binding, options or step.options)
        self._device.fetch(step.received, step.received_bytes)
        self._device.wait()
        self._is_encoding = False
        return step

    def _block(self, name: str, size: int) -> Block:
        """Return a block of at least this size, which keeps its address until it has to grow."""
        block = self._blocks.get(name)
        if block is None or block.device.size < size:
            if block is not None and name in ("sent", "received"):
                self._forget_steps()  # they are bound to it
            self._blocks.pop(name, None)
            block = self._device.block(max(_BLOCK_BYTES, 1 << (size - 1).bit_length()))
            self._blocks[name] = block
        return block

    def _step(self, state: CudaState, num_candidates: int) -> "_BoundStep":
        """Return the step of this shape, bound where keys and values lie now."""
        own, cross = ((slots.num_columns, slots.address, slots.capacity) for slots in (state.own, state.cross))
        key = StepKey(state.num_slots, state.beam_size, num_candidates, own, cross)
        step = self._steps.pop(key, None)
        if step is None:
            if len(self._steps) == _MAX_SHAPES:
                self._forget_steps()
            step = self._bind(state, key)
        self._steps[key] = step
        return step

    def _bind(self, state: CudaState, key: StepKey) -> "_BoundStep":
        """Give the step graph the addresses of what it reads and writes."""
        B, K, C = key.num_slots, key.beam_size, key.num_candidates
        given = Layout({"tokens": ((B, K), np.int64), "scores": ((B, K, 1), np.float32), **state.step_inputs()})
        found = Layout(
            {"candidate_scores": ((B, C), np.float32), "candidate_ids": ((B, C), np.int64), "check": ((B,), np.float32)}
        )
        sent, received = self._block("sent", given.size), self._block("received", found.size)
        binding, device = self._decoder.session.io_binding(), self._device.name
        given.bind(binding.bind_input, sent, device)
        found.bind(binding.bind_output, received, device)
        num_candidates = on_device(np.array([C], np.int64), "cpu")  # TopK and Slice read it there
        binding.bind_ortvalue_input("num_candidates", num_candidates)
        for kind, slots in (("cross", state.cross), ("self", state.own)):
            shape = [B, self.cache_shape.num_heads, slots.num_columns, self.cache_shape.d_head]
            for name, address in zip(layer_names(kind, self.cache_shape.num_layers), slots.addresses(), strict=True):
                binding.bind_input(name, device, 0, self._masked.dtype, shape, address)
                if kind == "self":
                    binding.bind_output(f"{name}_out", device, 0, self._masked.dtype, shape, address)
        step = _BoundStep(
            binding=binding,
            num_candidates=num_candidates,
            sent=sent,
            sent_bytes=given.size,
            given=given.views(sent.host),
            received=received,
            received_bytes=found.size,
            found=found.views(received.host),
            options=_options(len(self._steps) + 1) if self._records else _options(),
            # Other memory and sizes than those of the record: edited steps are run, not replayed.
            edited_options=_options(-1) if self._records else _options(),
        )
        self._edit(step, NO_EDITS, state.slots)
        return step

    def _edit(self, step: "_BoundStep", edits: Edits, slots: Ints) -> None:
        """Have a step change these logits, whose rows are those of sentences."""
        rows = slots[edits.rows // step.beam_size] * step.beam_size + edits.rows % step.beam_size
        given = self._decoder.edit_inputs(edits._replace(rows=rows), self._num_logits)
        layout = Layout({name: (array.shape, array.dtype) for name, array in given.items()})
        block = self._block("edits", layout.size)
        for name, view in layout.views(block.host).items():
            view[:] = given[name]
        self._device.send(block, layout.size)
        layout.bind(step.binding.bind_input, block, self._device.name)
        step.is_edited = len(edits.rows) > 0

    def _forget_steps(self) -> None:
        """Give up all shapes, and with them what is recorded, which only a session's end gives back."""
        self._steps.clear()
        if self._records:
            self._open_step_again(records=True)

    def _stop_recording(self, error: Exception) -> None:
        """Go on without recordings on a machine that refuses them."""
        warnings.warn(f"engine.cuda_graphs is off from now on: {error}", RuntimeWarning, stacklevel=2)
        self._records = False
        self._steps.clear()
        self._open_step_again(records=False)

    def _open_step_again(self, *, records: bool) -> None:
        assert isinstance(self._device, CudaDevice)
        del self._decoder  # before its successor is made
        path = graph_paths(self._bundle)["decoder_step"]
        self._decoder = StepGraph.of(open_on_cuda(path, self._device.stream, cuda_graphs=records))


@dataclass(slots=True, kw_only=True)
class _BoundStep:
    """The step graph with the addresses of what it reads and writes, which never change."""

    binding: Any
    num_candidates: ort.OrtValue  # kept: ONNX Runtime holds its address
    sent: Block
    sent_bytes: int
    given: Arrays  # what is sent, by name
    received: Block
    received_bytes: int
    found: Arrays  # likewise
    options: ort.RunOptions
    edited_options: ort.RunOptions
    is_edited: bool = False

    @property
    def beam_size(self) -> int:
        return int(self.given["tokens"].shape[1])


def _options(graph_id: int | None = None) -> ort.RunOptions:
    """Return how to run a graph: without waiting for it, and recorded under a number, or with -1 not recorded."""
    options = ort.RunOptions()
    options.add_run_config_entry("disable_synchronize_execution_providers", "1")
    if graph_id is not None:
        options.add_run_config_entry("gpu_graph_id", str(graph_id))
    return options


def graph_paths(bundle: Bundle, precision: str | None = None) -> dict[str, Path]:
    """Return where the graphs of `GRAPHS` lie, or raise BundleError."""
    if precision not in (None, GPU_PRECISION):
        raise BundleError(f"{precision} graphs are for CPUs; on a GPU, {GPU_PRECISION} ones run")
    if GPU_PRECISION not in bundle.manifest.variants:
        raise BundleError(
            f"{bundle.directory} has no {GPU_PRECISION!r} graphs; "
            f"`python -m export {bundle.directory} OTHER --precision {GPU_PRECISION}` makes a bundle with them"
        )
    variant = bundle.variant(GPU_PRECISION)
    return {name: bundle.path(getattr(variant, name)) for name in GRAPHS}


def fitting_budgets(
    wanted: SchedulerConfig, free_bytes: int, config: ModelConfig, max_target_tokens: int, bytes_each: int = 2
) -> SchedulerConfig:
    """Return the wanted budgets, cut down to what half, a quarter and a quarter of the usable memory hold."""
    usable = int(_USABLE * free_bytes)
    shape = CacheShape.of(config)
    column_bytes = 2 * shape.num_layers * shape.column_size * bytes_each  # keys and values of a position in all layers
    # A hypothesis has its own column of every step, the same beside it, and its logits.
    row_bytes = _MEMORIES * max_target_tokens * column_bytes + _LOGIT_BYTES * config.num_logits
    # A position takes this while the encoder runs, and its keys and values after that.
    encoded_bytes = max(shape.column_size * _ENCODER_FACTOR, 4 * config.d_ff) * bytes_each + column_bytes

    def at_most(budget: int, fits: int) -> int:
        return max(1, min(budget, fits))

    encoded = usable // 4 // encoded_bytes
    return replace(
        wanted,
        max_rows=at_most(wanted.max_rows, usable // 2 // row_bytes),
        max_source_tokens=at_most(wanted.max_source_tokens, usable // 4 // (_MEMORIES * column_bytes)),
        max_encode_tokens=at_most(wanted.max_encode_tokens, encoded),
        max_ahead_tokens=at_most(wanted.max_ahead_tokens, encoded),
        encoder_run_tokens=at_most(wanted.encoder_run_tokens, encoded),
    )
