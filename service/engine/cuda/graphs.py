"""The graphs of a bundle on a GPU, bound to what they read and write: encoder, decoder step and scorer.

A recording (CUDA graph) is one launch in place of a hundred.  It is good for as long as the session lives, for nothing
that it reads or writes moves.  The step of each shape is recorded when it comes up: what changes from step to step is
sent into one block, keys and values keep their addresses (`kv_cache.py`), and few shapes come up, since slots, columns
and edits are counted in coarse numbers.  The encoder's recordings are for the few sentences that join a stream at a
time; what they find is copied to memory of the sentences' own.  Larger batches are launched kernel by kernel: each
kernel takes longer than its launch.  The scorer reads given translations in one pass; its sources, which may come from
several runs of the encoder, are copied side by side first.

Knows neither jobs nor searches.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, product
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from model.config import ModelConfig
from model.manifest import Manifest
from service.engine.cuda.kv_cache import CudaEncoded, CudaState, SlotMemory, source_bucket
from service.engine.cuda.memory import Device, Layout, Rows
from service.engine.cuda.session import on_device
from service.engine.cuda.slots import Arrays, StepMemory
from service.engine.device_errors import explained
from service.engine.logits import NO_EDITS
from service.engine.runner import StepGraph, layer_names, teacher_forced, token_scores
from service.engine.wire import TokenScores, scored_shape

_SOURCE_COLUMNS = 8  # sources are padded to multiples of it
_GIVEN_BYTES = 1 << 20  # of what the encoder is given: 100,000 tokens
# Batches that are recorded: a smaller one is filled up, which costs a GPU little.
_RECORDED_SENTENCES, _RECORDED_COLUMNS = (4, 8, 16), (16, 32, 48, 64)
_LOGIT_BYTES = 2 + 3 * 4  # half precision as a product, float32 before and behind the softmax, and one in between
_LOGITS_AT_ONCE = 1 << 30  # bytes
_INITIAL_BYTES = 1 << 20
_MAX_RECORDINGS = 512  # each keeps memory for as long as the session lives; further shapes are launched unrecorded
_MAX_SHAPES = 2 * _MAX_RECORDINGS  # that are bound
NUM_LANES = 2
_BLOCK_BYTES = 16 << 20  # a step of 1,024 sentences needs 4 MB, its edits perhaps as much


def _run_options(graph_id: int | None = None) -> ort.RunOptions:
    """Return how to run a graph: without waiting for it, and recorded under a number, or with -1 not recorded."""
    options = ort.RunOptions()
    options.add_run_config_entry("disable_synchronize_execution_providers", "1")
    if graph_id is not None:
        options.add_run_config_entry("gpu_graph_id", str(graph_id))
    return options


@dataclass(frozen=True, slots=True, kw_only=True)
class _Recording:
    """The encoder's graph over a batch of some shape, with the addresses of what it reads and writes."""

    binding: Any
    given: Arrays
    options: ort.RunOptions


class CudaEncoder:
    """The encoder's graph of one bundle."""

    def __init__(
        self,
        session: ort.InferenceSession,
        device: Device,
        config: ModelConfig,
        dtype: npt.DTypeLike,
        *,
        records: bool,
    ) -> None:
        """Take the open graph; `dtype` is that of keys and values, `records` whether its session allows recordings."""
        self._session, self._device, self._config, self._dtype = session, device, config, np.dtype(dtype)
        self._columns = [columns for columns in _RECORDED_COLUMNS if columns <= config.max_positions]
        self._options = _run_options(-1 if records else None)
        self._given = device.shared(_GIVEN_BYTES)
        self._done = device.event()  # from then on, the last run reads no more of what it was given
        self._recorded: dict[tuple[int, int], _Recording] = {}  # by sentences and columns

    @explained()
    def record(self) -> None:
        """Record the batches that usually join, the largest first."""
        if not self._columns:
            return
        most, widest = _RECORDED_SENTENCES[-1], self._columns[-1]
        self._read = self._device.shared(_layout(most, widest).size)
        self._found = self._device.allocate(self._num_bytes(most, widest))
        for number, (B, S) in enumerate(product(reversed(_RECORDED_SENTENCES), reversed(self._columns)), start=1):
            layout, binding = _layout(B, S), self._session.io_binding()
            layout.bind(binding.bind_input, self._read, self._device.name)
            shape, address = self._output_shape(B, S), self._found.address
            binding.bind_output("cross", self._device.name, 0, self._dtype, shape, address)
            recording = _Recording(binding=binding, given=layout.views(self._read.host), options=_run_options(number))
            self._run(recording, [[0] * S] * B)
            self._recorded[B, S] = recording

    @explained()
    def encode(self, sources: Sequence[Sequence[int]]) -> CudaEncoded:
        """Return keys and values of these sources, which may still be on their way."""
        num_columns = -(-max(map(len, sources)) // _SOURCE_COLUMNS) * _SOURCE_COLUMNS
        for (B, S), recording in reversed(self._recorded.items()):  # the smallest first
            if len(sources) <= B and num_columns <= S:
                return self._replay(recording, sources)
        layout = _layout(len(sources), num_columns)
        self._done.wait()
        if layout.size > self._given.device.size:
            self._given = self._device.shared(layout.size)
        binding = self._session.io_binding()
        layout.bind(binding.bind_input, self._given, self._device.name)
        binding.bind_output("cross", self._device.name, 0)
        lengths = self._run(
            _Recording(binding=binding, given=layout.views(self._given.host), options=self._options), sources
        )
        return CudaEncoded(binding.get_outputs()[0], lengths, num_columns)

    def _replay(self, recording: _Recording, sources: Sequence[Sequence[int]]) -> CudaEncoded:
        """Run what was recorded and copy what it finds."""
        lengths = self._run(recording, sources)
        B, S = recording.given["source_ids"].shape
        A, _, H, _, d = shape = self._output_shape(B, S)
        memory = ort.OrtValue.ortvalue_from_shape_and_type(shape, self._dtype, self._device.name, 0)
        row = S * d * self._dtype.itemsize
        found, kept = (Rows(address, row, H * row, B * H * row) for address in (self._found.address, memory.data_ptr()))
        self._device.copy(found, kept, (A, H), [(sentence, sentence, row) for sentence in range(len(sources))])
        return CudaEncoded(memory, lengths, S)

    def _run(self, batch: _Recording, sources: Sequence[Sequence[int]]) -> npt.NDArray[np.int32]:
        """Run the graph over these sources and return the length of each row: 1 of those that fill the batch up."""
        self._done.wait()
        source_ids, lengths, bounds = (batch.given[name] for name in ("source_ids", "source_lengths", "bounds"))
        B, S = source_ids.shape
        source_ids[:], lengths[:] = 0, 1
        own = lengths[: len(sources)]
        own[:] = [len(source) for source in sources]
        # All at once: NumPy takes as long for each row.
        source_ids[: len(sources)][np.arange(S) < own[:, None]] = np.fromiter(chain.from_iterable(sources), np.int64)
        starts = np.arange(B + 1) * S
        bounds[:] = np.concatenate([lengths, starts, starts])
        self._session.run_with_iobinding(batch.binding, batch.options)
        self._done.record()
        return lengths.copy()

    def _output_shape(self, num_sentences: int, num_columns: int) -> list[int]:
        """[A, B, H, S, d]."""
        config = self._config
        return [2 * config.num_decoder_layers, num_sentences, config.num_heads, num_columns, config.d_head]

    def _num_bytes(self, num_sentences: int, num_columns: int) -> int:
        return math.prod(self._output_shape(num_sentences, num_columns)) * self._dtype.itemsize


def _layout(num_sentences: int, num_columns: int) -> Layout:
    """Return how the graph's inputs lie in memory."""
    B, S = num_sentences, num_columns
    shapes = {"source_ids": (B, S), "source_lengths": (B,), "bounds": (B + 2 * (B + 1),)}
    return Layout({name: (shape, np.int64 if name == "source_ids" else np.int32) for name, shape in shapes.items()})


class StepKey(NamedTuple):
    """What a step's shapes and addresses follow from; equal keys run the same recording."""

    lane: int
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
    lane: "_Lane"
    given_bytes: int
    found_bytes: int
    options: ort.RunOptions
    records: bool  # whether its first run is recorded
    is_recorded: bool = False


class _Lane:
    """What a step is sent in and found in.  Of two lanes, each can have a step under way."""

    def __init__(self, device: Device) -> None:
        self.sent, self.received = device.block(_BLOCK_BYTES), device.block(_BLOCK_BYTES)
        self.done = device.event()  # of the step that was launched last
        self.is_free = True  # whether that was waited for
        self.laid_out = 0, 0  # slots and beam size of that step


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
        self._lanes = [_Lane(device) for _ in range(NUM_LANES)]
        self._bound: dict[StepKey, BoundStep] = {}

    def step(self, state: CudaState, num_slots: int, num_candidates: int, num_edits: int) -> BoundStep:
        """Return the step over so many slots of a group, with room for more edits than that, once its lane is free."""
        self._wait(self._lanes[state.lane])  # an error may have left a step under way
        own, cross = state.own, state.cross
        addresses = (own.num_columns, own.address), (cross.num_columns, cross.address)
        key = StepKey(state.lane, num_slots, state.beam_size, num_candidates, edit_bucket(num_edits), *addresses)
        bound = self._bound.get(key)
        if bound is None:
            if len(self._bound) == _MAX_SHAPES:
                self._bound = {key: step for key, step in self._bound.items() if step.records}
            bound = self._bound[key] = self._bind(state, key)
        if bound.lane.laid_out != key[1:3]:
            state.slots.lay_out(bound.given["new_places"])
            bound.lane.laid_out = key[1:3]
        return bound

    def launch(self, step: BoundStep) -> None:
        """Send what a step is given, and have it run."""
        self.num_unrecorded += not step.is_recorded
        with explained():
            try:
                self._device.send(step.lane.sent, step.given_bytes)
                self._graph.session.run_with_iobinding(step.binding, step.options)
                self._device.fetch(step.lane.received, step.found_bytes)
            finally:
                step.lane.is_free = False
                step.lane.done.record()
        step.is_recorded = step.records

    def wait(self, step: BoundStep) -> None:
        """Return when everything that a step finds is there."""
        self._wait(step.lane)

    @staticmethod
    def _wait(lane: _Lane) -> None:
        if not lane.is_free:
            with explained():
                lane.done.wait()
            lane.is_free = True

    @explained()
    def _bind(self, state: CudaState, key: StepKey) -> BoundStep:
        """Give the graph the addresses of what it reads and writes."""
        B, K, C = key.num_slots, key.beam_size, key.num_candidates
        lane = self._lanes[key.lane]
        # What `lay_out` writes comes first: where that lies follows from slots and beam size alone.
        inputs = {**state.step_inputs(B), "tokens": ((B, K), np.int64), "scores": ((B, K, 1), np.float32)}
        edits = self._graph.edit_inputs(NO_EDITS, self._manifest.num_logits)
        given = Layout(inputs | {name: ((key.num_edits,), array.dtype) for name, array in edits.items()})
        outputs = {"candidate_scores": ((B, C), np.float32), "candidate_ids": ((B, C), np.int64)}
        found = Layout({**outputs, "check": ((B,), np.float32)})
        if given.size > lane.sent.device.size or found.size > lane.received.device.size:
            self._widen(key.lane, max(given.size, found.size))
        binding, device = self._graph.session.io_binding(), self._device.name
        given.bind(binding.bind_input, lane.sent, device)
        found.bind(binding.bind_output, lane.received, device)
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
            lane=lane,
            given=given.views(lane.sent.host),
            given_bytes=given.size,
            found=found.views(lane.received.host),
            found_bytes=found.size,
            options=_run_options((self.num_recordings if records else -1) if self._records else None),
            records=records,
        )

    def _widen(self, number: int, size: int) -> None:
        """Give a lane blocks of at least this size, to which all of its steps must be bound anew."""
        lane, size = self._lanes[number], 1 << (size - 1).bit_length()
        lane.sent, lane.received, lane.laid_out = self._device.block(size), self._device.block(size), (0, 0)
        self._bound = {key: step for key, step in self._bound.items() if key.lane != number}


def edit_bucket(num_edits: int) -> int:
    """Return this number or more: 0, 256, 1,024, 4,096, ..., so that few shapes come up."""
    return 4 ** max(4, ((num_edits - 1).bit_length() + 1) // 2) if num_edits else 0


class CudaScorer:
    """The scorer's graph of one bundle."""

    def __init__(
        self,
        session: ort.InferenceSession,
        device: Device,
        manifest: Manifest,
        masked: np.floating[Any],
    ) -> None:
        """Take the open graph; `masked` masks a key, and is of the type of keys and values."""
        self._session, self._device, self._masked = session, device, masked
        self._manifest, self._config = manifest, manifest.config
        self._memory = SlotMemory(self._config, device, masked.dtype.itemsize, source_bucket(1))
        self._given, self._found = device.shared(_INITIAL_BYTES), device.block(_INITIAL_BYTES)

    def score(
        self, encoded: Sequence[tuple[CudaEncoded, int]], translations: Sequence[Sequence[int]]
    ) -> list[TokenScores]:
        """Do as `Runner.score`."""
        longest = max(map(len, translations)) + 1
        num_steps = min(scored_shape(0, longest)[1], self._config.max_positions)
        at_once = max(1, _LOGITS_AT_ONCE // (_LOGIT_BYTES * self._manifest.num_logits * num_steps))
        found: list[TokenScores] = []
        for begin in range(0, len(encoded), at_once):
            part = slice(begin, begin + at_once)
            found += self._score(encoded[part], translations[part], num_steps)
        return found

    @explained()
    def _score(
        self, encoded: Sequence[tuple[CudaEncoded, int]], translations: Sequence[Sequence[int]], num_steps: int
    ) -> list[TokenScores]:
        """Score translations of at most so many tokens, end-of-sentence included, in one run."""
        lengths = [int(batch.lengths[index]) for batch, index in encoded]
        B, T, S = len(encoded), num_steps, source_bucket(max(lengths))
        self._memory.fit(B, S, 0)
        for slot, (batch, index) in enumerate(encoded):
            self._memory.fill([slot], batch, [index])
        tokens, next_tokens = teacher_forced(self._manifest.profile, translations, T)
        is_hidden = np.arange(S) >= np.array(lengths)[:, None]
        mask: npt.NDArray[Any] = np.where(is_hidden, self._masked, 0).astype(self._masked.dtype)
        given: Arrays = {"tokens": tokens, "next_tokens": next_tokens, "source_mask": mask[:, None, None]}
        results = self._run(given, {"log_probs": (B, T), "attention": (B, T, S)}, S)
        if not np.isfinite(results["log_probs"]).all():
            self._memory.release()  # NaN would reach others through columns that only the mask keeps out
        return token_scores(results["log_probs"], results["attention"], lengths, translations)

    def _run(self, given: Arrays, found: dict[str, tuple[int, ...]], num_columns: int) -> Arrays:
        """Run the graph over the first slots, and return what comes out."""
        inputs = Layout({name: (array.shape, array.dtype) for name, array in given.items()})
        outputs = Layout({name: (shape, np.float32) for name, shape in found.items()})
        if inputs.size > self._given.device.size:
            self._given = self._device.shared(2 * inputs.size)
        if outputs.size > self._found.device.size:
            self._found = self._device.block(2 * outputs.size)
        for name, view in inputs.views(self._given.host).items():
            view[:] = given[name]
        binding, device = self._session.io_binding(), self._device.name
        inputs.bind(binding.bind_input, self._given, device)
        outputs.bind(binding.bind_output, self._found, device)
        config = self._config
        names = layer_names("cross", config.num_decoder_layers)
        sizes = [len(given["tokens"]), config.num_heads, num_columns, config.d_head]
        for name, address in zip(names, self._memory.addresses(), strict=True):
            binding.bind_input(name, device, 0, self._masked.dtype, sizes, address)
        self._session.run_with_iobinding(binding, _run_options())
        self._device.fetch(self._found, outputs.size)
        self._device.wait()
        return outputs.views(self._found.host)
