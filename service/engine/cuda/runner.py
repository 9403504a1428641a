"""Runs the fp16 graphs on a GPU (`Runner`): keys and values stay there.

A step runs over a few more sentences than there are (`bucket`), so that few sizes of batches come up; what it says of
the others is thrown away.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from model.bundle import Bundle, BundleError
from model.config import ModelConfig
from model.manifest import GPU_PRECISION
from service.engine.beam import Candidates
from service.engine.cuda.cache import CudaEncoded, CudaSlots, CudaStorage, SlotAddress
from service.engine.cuda.session import free_memory, on_device, open_on_cuda, require_cuda
from service.engine.faults import explained
from service.engine.job import Forced, HeadWeights
from service.engine.key_value_cache import CacheShape, KeyValueCache
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
from service.engine.spec import Device, EngineSpec
from service.engine.steering import NO_EDITS, Edits

_MAX_BINDINGS = 64  # of one state
_MAX_RECORDED = 128  # steps that are recorded; each keeps memory for as long as the session lives
_SOURCE_COLUMNS = 8  # sources are padded to multiples of it
_STEPS_BETWEEN_COMPACTIONS = 12  # each costs a pass over all keys and values; columns are cheap where rows are many
# How memory is shared out (`fitting_budgets`).
_USABLE = 0.8  # of the free memory; the rest is for workspaces of products and for what memory in pieces loses
_MEMORIES = 3  # keys and values are moved from one memory to another, and a larger one is made beside both
_LOGIT_BYTES = 2 + 3 * 4  # half precision as a product, float32 as logits, edited, log-probabilities
_ENCODER_FACTOR = 16  # activations of a token in the encoder, in widths of the model

Sessions = dict[str, ort.InferenceSession]  # by file name without suffix
GRAPHS = ("encoder", "decoder_step", "arrange", "extend")


class CudaState(KeyValueCache[CudaSlots]):
    """The caches of a group of sentences on the device, and the bindings of the step graph to them."""

    def __init__(self, shape: CacheShape, beam_size: int, storage: CudaStorage) -> None:
        super().__init__(
            partial(CudaSlots, shape, storage),
            beam_size,
            masked=storage.masked,
            steps_between_compactions=_STEPS_BETWEEN_COMPACTIONS,
        )
        # By number of sentences, where self-attention and cross-attention lie, and C; least recently used first.
        self.bindings: dict[tuple[int, SlotAddress, SlotAddress, int], _CudaBinding] = {}


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
        storage: CudaStorage | None = None,
    ) -> None:
        """Take the open sessions of `GRAPHS`, which with `records` can record steps and replay them (CUDA graphs)."""
        check_limits(bundle)
        self._bundle = bundle
        self._config = bundle.manifest.config
        self._num_logits = bundle.manifest.num_logits
        self.profile, self.warm_up_source = bundle.manifest.profile, shortest_source(self._config)
        self._max_target_tokens = bundle.manifest.decoding.max_target_tokens
        self.cache_shape = CacheShape.of(self._config)
        self._encoder, self._decoder = sessions["encoder"], StepGraph.of(sessions["decoder_step"])
        self.storage = storage or CudaStorage(device, sessions["arrange"], sessions["extend"])
        self._device = device
        self._records = records
        self._num_recorded = 0

    @classmethod
    def open(cls, spec: EngineSpec) -> Self:
        """Return the runner of an engine process, or raise DeviceError or BundleError."""
        require_cuda()
        bundle = Bundle.load(spec.bundle_dir, manifest_sha256=spec.manifest_sha256)
        paths = graph_paths(bundle, spec.precision)
        sessions = {
            name: open_on_cuda(path, cuda_graphs=spec.cuda_graphs and name == "decoder_step")
            for name, path in paths.items()
        }
        return cls(bundle, sessions, "cuda", records=spec.cuda_graphs)

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
        return CudaState(self.cache_shape, beam_size, self.storage)

    def encode(self, sources: Sequence[Sequence[int]]) -> CudaEncoded:
        source_ids, lengths = pad(sources, _SOURCE_COLUMNS)
        binding = self._encoder.io_binding()
        with explained():
            binding.bind_cpu_input("source_ids", source_ids)
            binding.bind_cpu_input("source_lengths", lengths)
            binding.bind_output("cross", self._device, 0)
            self._encoder.run_with_iobinding(binding)
            return CudaEncoded(binding.get_outputs()[0], lengths, source_ids.shape[1])

    def decode_step(
        self, tokens: Ints, scores: Floats, state: CudaState, edits: Edits | None = None, *, num_candidates: int
    ) -> Candidates:
        state.prepare()
        width = min(num_candidates, state.beam_size * self._num_logits)
        with explained():
            binding = self._binding(state, width)
            if edits is not None or binding.is_edited:
                binding.edit(edits, self._num_logits)
            best, ids, check = binding.run(tokens, scores, state)
        parents, found = np.divmod(ids, self._num_logits)
        return Candidates(best, found, parents, check)

    def _binding(self, state: CudaState, width: int) -> "_CudaBinding":
        """Return the binding for where the keys and values lie, after they are brought into order."""
        own, cross, bindings = state.own, state.cross, state.bindings
        num_slots = max(own.settle(state.num_sentences), cross.settle(state.num_sentences))
        key = (num_slots, own.address, cross.address, width)
        binding = bindings.pop(key, None)
        if binding is None:
            # Memories of other generations may be freed, and no key asks for them again.
            generations = own.generation, cross.generation
            for old in [old for old in bindings if (old[1].generation, old[2].generation) != generations]:
                del bindings[old]
            options = None
            if self._records:  # each binding's step is recorded under a number of its own; -1 when there are too many
                self._num_recorded += 1
                number = self._num_recorded if self._num_recorded <= _MAX_RECORDED else -1
                options = _recorded_as(number)
            binding = _CudaBinding(self._decoder, state, (num_slots, width), self.storage, options)
        bindings[key] = binding
        if len(bindings) > _MAX_BINDINGS:
            del bindings[next(iter(bindings))]
        return binding


class _CudaBinding:
    """The memory that the step graph reads and writes; its addresses never change, as a recorded step demands."""

    def __init__(
        self,
        decoder: StepGraph,
        state: CudaState,
        sizes: tuple[int, int],
        storage: CudaStorage,
        options: ort.RunOptions | None,
    ) -> None:
        (B, width), K = sizes, state.beam_size
        device, dtype = storage.device, storage.dtype
        self._decoder, self._options = decoder, options
        self._io = decoder.session.io_binding()
        self._host: dict[str, npt.NDArray[Any]] = {  # what is sent, by name
            "tokens": np.zeros((B, K), np.int64),
            "scores": np.zeros((B, K, 1), np.float32),
            "past_lengths": np.zeros((B, 1), np.int64),
            "columns": np.zeros(B, np.int64),
            "source_lengths": np.ones(B, np.int32),
            "self_mask": np.zeros((B, 1, K, state.own.address.num_columns), dtype),
        }
        self._sent = {name: on_device(array, device) for name, array in self._host.items()}
        self._constants = {
            "num_candidates": on_device(np.array([width], np.int64), "cpu"),  # TopK reads it on the host
        }
        for name, value in (*self._sent.items(), *self._constants.items()):
            self._io.bind_ortvalue_input(name, value)
        for kind, slots in (("cross", state.cross), ("self", state.own)):
            shape = [B, slots.shape.num_heads, slots.address.num_columns, slots.shape.d_head]
            for name, address in zip(layer_names(kind, slots.shape.num_layers), slots.addresses(), strict=True):
                self._io.bind_input(name, device, 0, dtype, shape, address)
                if kind == "self":
                    self._io.bind_output(f"{name}_out", device, 0, dtype, shape, address)
        self.is_edited = False
        self._device = device
        self._bind_edits(NO_EDITS, 0)
        self._received = {
            "candidate_scores": on_device(np.zeros((B, width), np.float32), device),
            "candidate_ids": on_device(np.zeros((B, width), np.int64), device),
            "check": on_device(np.zeros(B, np.float32), device),
        }
        for name, value in self._received.items():
            self._io.bind_ortvalue_output(name, value)

    def edit(self, edits: Edits | None, num_logits: int) -> None:
        """Have the next steps change these logits, until other ones are given."""
        self.is_edited = edits is not None
        self._bind_edits(edits or NO_EDITS, num_logits)

    def _bind_edits(self, edits: Edits, num_logits: int) -> None:
        arrays = self._decoder.edit_inputs(edits, num_logits)
        self._edits = {name: on_device(array, self._device) for name, array in arrays.items()}
        for name, value in self._edits.items():
            self._io.bind_ortvalue_input(name, value)

    def run(self, tokens: Ints, scores: Floats, state: CudaState) -> list[npt.NDArray[Any]]:
        """Run one step and return scores, ids and check of the sentences that there are."""
        values = {
            "tokens": tokens,
            "scores": scores[:, :, None],
            "past_lengths": state.past_lengths,
            "columns": state.columns,
            "source_lengths": state.source_lengths,
            "self_mask": state.mask,
        }
        for name, value in values.items():
            array = self._host[name]
            array[: state.num_sentences] = value
            # Slots without a sentence begin again and again at their first column.
            array[state.num_sentences :] = 1 if name == "source_lengths" else 0
            self._sent[name].update_inplace(array)
        # Other memory and sizes than those of the record: edited steps are run, not replayed.
        options = _recorded_as(-1) if self.is_edited and self._options is not None else self._options
        self._decoder.session.run_with_iobinding(self._io, options)
        return [value.numpy()[: state.num_sentences] for value in self._received.values()]


def _recorded_as(number: int) -> ort.RunOptions:
    """Return how to run a step that is recorded under this number, or with -1 not recorded."""
    options = ort.RunOptions()
    options.add_run_config_entry("gpu_graph_id", str(number))
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
