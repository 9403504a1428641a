"""Reads given translations on a GPU, each in one pass: how likely their tokens are, and what they attend to.

Keys and values of the sources are copied side by side first: they may come from several runs of the encoder.  Knows
neither jobs nor texts.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from model.config import DecodingProfile
from service.engine.cuda.kv_cache import CudaEncoded, SlotMemory, source_bucket
from service.engine.cuda.memory import Device, Layout
from service.engine.cuda.slots import Arrays
from service.engine.cuda.steps import run_options
from service.engine.faults import explained
from service.engine.runner import CacheShape, layer_names, scored_shape
from service.engine.wire import Forced

_LOGIT_BYTES = 2 + 3 * 4  # half precision as a product, float32 before and behind the softmax, and one in between
_LOGITS_AT_ONCE = 1 << 30  # bytes
_INITIAL_BYTES = 1 << 20

Masked = np.floating[Any]


class CudaScorer:
    """The scorer's graph of one bundle."""

    def __init__(
        self,
        session: ort.InferenceSession,
        device: Device,
        shape: CacheShape,
        masked: Masked,
        profile: DecodingProfile,
        num_logits: int,
        max_positions: int,
    ) -> None:
        """Take the open graph; `masked` masks a key, and is of the type of keys and values."""
        self._session, self._device, self._shape, self._masked = session, device, shape, masked
        self._profile, self._num_logits, self._max_positions = profile, num_logits, max_positions
        self._memory = SlotMemory(shape, device, masked.dtype.itemsize, source_bucket(1))
        self._given, self._found = device.shared(_INITIAL_BYTES), device.block(_INITIAL_BYTES)

    def score(self, encoded: Sequence[tuple[CudaEncoded, int]], translations: Sequence[Sequence[int]]) -> list[Forced]:
        """Do as `Runner.score`."""
        longest = max(map(len, translations)) + 1
        num_steps = min(scored_shape(0, longest)[1], self._max_positions)
        at_once = max(1, _LOGITS_AT_ONCE // (_LOGIT_BYTES * self._num_logits * num_steps))
        found: list[Forced] = []
        for begin in range(0, len(encoded), at_once):
            part = slice(begin, begin + at_once)
            found += self._score(encoded[part], translations[part], num_steps)
        return found

    @explained()
    def _score(
        self, encoded: Sequence[tuple[CudaEncoded, int]], translations: Sequence[Sequence[int]], num_steps: int
    ) -> list[Forced]:
        """Score translations of at most so many tokens, end-of-sentence included, in one run."""
        lengths = [int(batch.lengths[index]) for batch, index in encoded]
        B, T, S = len(encoded), num_steps, source_bucket(max(lengths))
        self._memory.fit(B, S, 0)
        for slot, (batch, index) in enumerate(encoded):
            self._memory.fill([slot], batch, [index])
        ids = np.zeros((B, T + 1), np.int64)  # each decoder input, and the token after it
        for row, translation in zip(ids, translations, strict=True):
            row[: len(translation) + 2] = (self._profile.start, *translation, self._profile.end)
        is_hidden = np.arange(S) >= np.array(lengths)[:, None]
        mask: npt.NDArray[Any] = np.where(is_hidden, self._masked, 0).astype(self._masked.dtype)
        given: Arrays = {"tokens": ids[:, :-1], "next_tokens": ids[:, 1:], "source_mask": mask[:, None, None]}
        results = self._run(given, {"log_probs": (B, T), "attention": (B, T, S)}, S)
        if not np.isfinite(results["log_probs"]).all():
            self._memory.release()  # NaN would reach others through columns that only the mask keeps out
        return [
            Forced(
                tuple(results["log_probs"][row, : len(translation) + 1].tolist()),
                results["attention"][row, : len(translation) + 1, : lengths[row]].astype(np.float16).tobytes(),
            )
            for row, translation in enumerate(translations)
        ]

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
        names, shape = layer_names("cross", self._shape.num_layers), self._shape
        sizes = [len(given["tokens"]), shape.num_heads, num_columns, shape.d_head]
        for name, address in zip(names, self._memory.addresses(), strict=True):
            binding.bind_input(name, device, 0, self._masked.dtype, sizes, address)
        self._session.run_with_iobinding(binding, run_options())
        self._device.fetch(self._found, outputs.size)
        self._device.wait()
        return outputs.views(self._found.host)
