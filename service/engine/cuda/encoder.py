"""Runs the encoder on a GPU; for the few sentences that join a stream at a time, its recordings.

A recording (CUDA graph) is one launch in place of a hundred.  It reads and writes where it did when it was made, so
that what it finds is copied to memory of the sentences' own.  Larger batches are launched kernel by kernel: each kernel
takes longer than its launch.

Knows neither slots nor searches.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from service.engine.cuda.kv_cache import CudaEncoded
from service.engine.cuda.memory import Device, Layout, Rows
from service.engine.cuda.slots import Arrays
from service.engine.cuda.steps import run_options
from service.engine.faults import explained
from service.engine.runner import CacheShape

_SOURCE_COLUMNS = 8  # sources are padded to multiples of it
_GIVEN_BYTES = 1 << 20  # of what the encoder is given: 100,000 tokens
# Batches that are recorded: a smaller one is filled up, which costs a GPU little.
_RECORDED_SENTENCES, _RECORDED_COLUMNS = (4, 8, 16), (16, 32, 48, 64)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Recording:
    """The encoder's graph over a batch of some shape, with the addresses of what it reads and writes."""

    binding: Any
    given: Arrays
    options: ort.RunOptions


class CudaEncoder:
    """The encoder's graph of one bundle."""

    is_running = False  # whether it may still read what it was given; the caller, who waits for the stream, resets it

    def __init__(
        self,
        session: ort.InferenceSession,
        device: Device,
        shape: CacheShape,
        dtype: npt.DTypeLike,
        max_positions: int,
        *,
        records: bool,
    ) -> None:
        """Take the open graph; `dtype` is that of keys and values, `records` whether its session allows recordings."""
        self._session, self._device, self._shape, self._dtype = session, device, shape, np.dtype(dtype)
        self._columns = [columns for columns in _RECORDED_COLUMNS if columns <= max_positions]
        self._options = run_options(-1 if records else None)
        self._given = device.shared(_GIVEN_BYTES)
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
            recording = _Recording(binding=binding, given=layout.views(self._read.host), options=run_options(number))
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
        self._wait()
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
        self._wait()
        source_ids, lengths, bounds = (batch.given[name] for name in ("source_ids", "source_lengths", "bounds"))
        B, S = source_ids.shape
        source_ids[:], lengths[:] = 0, 1
        lengths[: len(sources)] = [len(source) for source in sources]
        for row, source in zip(source_ids, sources, strict=False):
            row[: len(source)] = source
        starts = np.arange(B + 1) * S
        bounds[:] = np.concatenate([lengths, starts, starts])
        self.is_running = True
        self._session.run_with_iobinding(batch.binding, batch.options)
        return lengths.copy()

    def _wait(self) -> None:
        """Wait until nothing reads what the encoder was given before."""
        if self.is_running:
            self._device.wait()
            self.is_running = False

    def _output_shape(self, num_sentences: int, num_columns: int) -> list[int]:
        """[A, B, H, S, d]."""
        shape = self._shape
        return [2 * shape.num_layers, num_sentences, shape.num_heads, num_columns, shape.d_head]

    def _num_bytes(self, num_sentences: int, num_columns: int) -> int:
        return math.prod(self._output_shape(num_sentences, num_columns)) * self._dtype.itemsize


def _layout(num_sentences: int, num_columns: int) -> Layout:
    """Return how the graph's inputs lie in memory."""
    B, S = num_sentences, num_columns
    shapes = {"source_ids": (B, S), "source_lengths": (B,), "bounds": (B + 2 * (B + 1),)}
    return Layout({name: (shape, np.int64 if name == "source_ids" else np.int32) for name, shape in shapes.items()})
