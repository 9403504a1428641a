"""The decoder step of each shape: bound to what it reads and writes, recorded when it comes up, replayed from then on.

A recording (CUDA graph) is one launch in place of a hundred.  It is good for as long as the session lives, for nothing
that it reads or writes moves: what changes from step to step is sent into one block, keys and values keep their
addresses (`kv_cache.py`).  Few shapes come up, since slots, columns and edits are counted in coarse numbers.

Knows neither sentences nor searches.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import onnxruntime as ort

from model.manifest import Manifest
from service.engine.cuda.kv_cache import CudaState
from service.engine.cuda.memory import Block, Device, Layout
from service.engine.cuda.session import on_device
from service.engine.cuda.slots import StepMemory
from service.engine.faults import explained
from service.engine.logits import NO_EDITS
from service.engine.runner import StepGraph, layer_names

_MAX_RECORDINGS = 512  # each keeps memory for as long as the session lives; further shapes are launched unrecorded
_MAX_SHAPES = 2 * _MAX_RECORDINGS  # that are bound
_BLOCK_BYTES = 16 << 20  # a step of 1,024 sentences needs 4 MB, its edits perhaps as much


class StepKey(NamedTuple):
    """What a step's shapes and addresses follow from; equal keys run the same recording."""

    num_slots: int  # B
    beam_size: int  # K
    num_candidates: int  # C
    num_edits: int  # E
    own: tuple[int, int]  # columns and address of self-attention's keys and values
    cross: tuple[int, int]


@dataclass(slots=True, kw_only=True)
class BoundStep(StepMemory):
    """The step graph with the addresses of what it reads and writes, which never change."""

    binding: Any
    num_candidates: ort.OrtValue  # kept: ONNX Runtime holds its address
    given_bytes: int
    found_bytes: int
    options: ort.RunOptions
    records: bool  # whether its first run is recorded
    is_recorded: bool = False


class Steps:
    """The steps of one session."""

    def __init__(self, graph: StepGraph, device: Device, manifest: Manifest, *, records: bool) -> None:
        """Take the open graph; `records`, which its session must allow, says whether steps are recorded."""
        self.num_unrecorded = 0  # runs that were not replayed
        self.num_recordings = 0
        self._graph, self._device, self._manifest = graph, device, manifest
        self._records = records
        # Behind columns: one for heads that are whole, two where a kernel writes a piece of one at a time.
        self._widths = {value.name: value.shape[3:] for value in graph.session.get_inputs()}
        self._sent, self._received = device.block(_BLOCK_BYTES), device.block(_BLOCK_BYTES)
        self._bound: dict[StepKey, BoundStep] = {}
        self._laid_out = 0, 0  # slots and beam size of the step that was sent last

    def step(self, state: CudaState, num_slots: int, num_candidates: int, num_edits: int) -> BoundStep:
        """Return the step over so many slots of a group, with room for more edits than that."""
        own, cross = state.own, state.cross
        addresses = (own.num_columns, own.address), (cross.num_columns, cross.address)
        key = StepKey(num_slots, state.beam_size, num_candidates, edit_bucket(num_edits), *addresses)
        bound = self._bound.get(key)
        if bound is None:
            if len(self._bound) == _MAX_SHAPES:
                self._bound = {key: step for key, step in self._bound.items() if step.records}
            bound = self._bound[key] = self._bind(state, key)
        if self._laid_out != key[:2]:
            state.slots.lay_out(bound.given["new_places"])
            self._laid_out = key[:2]
        return bound

    def run(self, step: BoundStep) -> None:
        """Send what a step is given, run it, and wait for what it finds."""
        self.num_unrecorded += not step.is_recorded
        with explained():
            self._device.send(self._sent, step.given_bytes)
            self._graph.session.run_with_iobinding(step.binding, step.options)
            self._device.fetch(self._received, step.found_bytes)
            self._device.wait()
        step.is_recorded = step.records

    @explained()
    def _bind(self, state: CudaState, key: StepKey) -> BoundStep:
        """Give the graph the addresses of what it reads and writes."""
        B, K, C = key.num_slots, key.beam_size, key.num_candidates
        # What `lay_out` writes comes first: where that lies follows from slots and beam size alone.
        inputs = {**state.step_inputs(B), "tokens": ((B, K), np.int64), "scores": ((B, K, 1), np.float32)}
        edits = self._graph.edit_inputs(NO_EDITS, self._manifest.num_logits)
        given = Layout(inputs | {name: ((key.num_edits,), array.dtype) for name, array in edits.items()})
        outputs = {"candidate_scores": ((B, C), np.float32), "candidate_ids": ((B, C), np.int64)}
        found = Layout({**outputs, "check": ((B,), np.float32)})
        self._sent, self._received = self._roomy(self._sent, given.size), self._roomy(self._received, found.size)
        binding, device = self._graph.session.io_binding(), self._device.name
        given.bind(binding.bind_input, self._sent, device)
        found.bind(binding.bind_output, self._received, device)
        num_candidates = on_device(np.array([C], np.int64), "cpu")  # TopK and Slice read it there
        binding.bind_ortvalue_input("num_candidates", num_candidates)
        dtype, config = given.places["self_mask"][2], self._manifest.config
        for kind, slots in (("cross", state.cross), ("self", state.own)):
            for name, address in zip(layer_names(kind, config.num_decoder_layers), slots.addresses(), strict=True):
                shape = [B, config.num_heads, slots.num_columns, *self._widths[name]]
                binding.bind_input(name, device, 0, dtype, shape, address)
                if kind == "self":
                    binding.bind_output(f"{name}_out", device, 0, dtype, shape, address)
        records = self._records and self.num_recordings < _MAX_RECORDINGS
        self.num_recordings += records
        return BoundStep(
            binding=binding,
            num_candidates=num_candidates,
            given=given.views(self._sent.host),
            given_bytes=given.size,
            found=found.views(self._received.host),
            found_bytes=found.size,
            options=run_options((self.num_recordings if records else -1) if self._records else None),
            records=records,
        )

    def _roomy(self, block: Block, size: int) -> Block:
        """Return a block of at least this size: where that is a new one, all steps must be bound to it."""
        if size <= block.device.size:
            return block
        self._bound.clear()
        self._laid_out = 0, 0
        return self._device.block(1 << (size - 1).bit_length())


def run_options(graph_id: int | None = None) -> ort.RunOptions:
    """Return how to run a graph: without waiting for it, and recorded under a number, or with -1 not recorded."""
    options = ort.RunOptions()
    options.add_run_config_entry("disable_synchronize_execution_providers", "1")
    if graph_id is not None:
        options.add_run_config_entry("gpu_graph_id", str(graph_id))
    return options


def edit_bucket(num_edits: int) -> int:
    """Return this number or more: 0, 256, 1,024, 4,096, ..., so that few shapes come up."""
    return 4 ** max(4, ((num_edits - 1).bit_length() + 1) // 2) if num_edits else 0
