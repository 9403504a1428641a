"""Runs the fp16 graphs on a GPU (`Runner`): keys and values stay there, and a step is one upload and one download.

A step runs over a few more slots than there are sentences (`kv_cache.py`), so that few shapes come up; what it says of
the others is thrown away.  With `cuda_graphs`, the steps of all shapes that usual searches take are recorded at the
start and replayed from then on: one launch in place of a hundred.  Others are recorded when they come up.  What the
encoder does for a few sentences is recorded, too (`graphs.py`).
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self, cast

import numpy as np
import onnxruntime as ort

from model.bundle import Bundle, BundleError
from model.config import ModelConfig
from model.manifest import GPU_PRECISION
from service.engine.beam_search import num_candidates
from service.engine.beams import Candidates, Floats, Ints
from service.engine.choice import library_problem
from service.engine.cuda.graphs import NUM_LANES, BoundStep, CudaEncoder, CudaScorer, Steps
from service.engine.cuda.kv_cache import (
    HALF_MASKED,
    CachePool,
    CudaEncoded,
    CudaState,
    column_bucket,
    slot_bucket,
    source_bucket,
)
from service.engine.cuda.memory import CudaDevice, Device
from service.engine.cuda.session import free_memory, open_on_cuda, require_cuda
from service.engine.cuda.slots import NativeSlots, Slots
from service.engine.logits import NO_EDITS, Edits
from service.engine.runner import (
    NO_HEAD_WEIGHTS,
    NO_SCORER,
    BundleRunner,
    StepGraph,
    most_in_lane,
)
from service.engine.wire import EngineSpec, HeadWeights, SchedulerConfig, TokenScores

_USABLE = 0.8  # of the free memory; the rest is for workspaces of products and for what memory in pieces loses
_MEMORIES = 2  # slots and columns are a third more than sentences need each, and so is their memory
_LOGIT_BYTES = 2 + 3 * 4  # half precision as a product, float32 as logits, edited, log-probabilities
_ENCODER_FACTOR = 16  # activations of a token in the encoder, in widths of the model
_COLUMNS_A_TOKEN = 2.5  # of self-attention, for each source token: what most translations need, dead hypotheses counted

Sessions = dict[str, ort.InferenceSession]  # by file name without suffix
GRAPHS = ("encoder", "decoder_step")


class Launched(NamedTuple):
    """A step that is under way, and the group that it is of."""

    state: CudaState
    step: BoundStep


class CudaRunner(BundleRunner):
    """The fp16 graphs of one bundle on one device."""

    num_lanes = NUM_LANES

    def __init__(
        self,
        bundle: Bundle,
        sessions: Sessions,
        device: Device,
        *,
        records: bool = False,
        masked: np.floating[Any] = HALF_MASKED,
    ) -> None:
        """Take the open sessions of `GRAPHS`, and perhaps of the scorer.

        Args:
            records: whether to record and replay (CUDA graphs), which the sessions of `GRAPHS` must allow.
            masked: what masks a key, of the type of keys and values.
        """
        super().__init__(bundle)
        self._decoding, self._num_logits = bundle.manifest.decoding, bundle.manifest.num_logits
        self._device, self._records = device, records
        slots = Slots if library_problem() else NativeSlots
        self._pool = CachePool(self._config, device, masked, slots)
        self._encoder = self._encoder_of(sessions["encoder"])
        self._decoder = StepGraph.of(sessions["decoder_step"])
        if "new_places" not in {value.name for value in self._decoder.session.get_inputs()}:
            raise BundleError(
                f"{bundle.directory} has {GPU_PRECISION} graphs of an older export; "
                f"`python -m export {bundle.directory} OTHER --precision {GPU_PRECISION}` draws them again"
            )
        self._steps = Steps(self._decoder, device, bundle.manifest, records=records)
        self._scorer: CudaScorer | None = None
        if "scorer" in sessions:
            self._scorer = CudaScorer(sessions["scorer"], device, bundle.manifest, masked)
        self.has_scorer = self._scorer is not None

    @classmethod
    def open(cls, spec: EngineSpec) -> Self:
        """Return the runner of an engine process, or raise DeviceError or BundleError."""
        require_cuda()
        bundle = Bundle.load(spec.bundle_dir, manifest_sha256=spec.manifest_sha256)
        paths, device = graph_paths(bundle, spec.precision), CudaDevice()
        sessions = {
            name: open_on_cuda(path, device.stream, cuda_graphs=spec.cuda_graphs and name in GRAPHS)
            for name, path in paths.items()
        }
        return cls(bundle, sessions, device, records=spec.cuda_graphs)

    def score(
        self, encoded: Sequence[tuple[CudaEncoded, int]], translations: Sequence[Sequence[int]]
    ) -> list[TokenScores]:
        if self._scorer is None:
            raise self._refusal(NO_SCORER)
        return self._scorer.score(encoded, translations)

    def head_weights(self, source: Sequence[int], translation: Sequence[int]) -> HeadWeights:
        """Raise BundleError: the graphs for a GPU do not give them."""
        raise self._refusal(NO_HEAD_WEIGHTS)

    def budgets(self, wanted: SchedulerConfig) -> SchedulerConfig:
        """Return the budgets as far as the device has memory for them; weights are loaded already."""
        return fitting_budgets(wanted, free_memory(), self._config, self._decoding.max_target_tokens)

    def record(self, budgets: SchedulerConfig) -> None:
        """Record the encoder, and the steps that sentences of any length take with the model's own beam, many or few.

        Where memory ends, the rest is left out with a warning, and is recorded when it comes up.
        """
        widths = buckets(source_bucket, self._decoding.max_source_tokens)
        steps: list[Callable[[], None]] = [partial(self._record, budgets, width) for width in widths]
        for record in (self._encoder.record, *steps):
            if not self._records:
                break
            try:
                record()
            except MemoryError as error:
                warnings.warn(f"not all steps are recorded: {error}", RuntimeWarning, stacklevel=2)
            except Exception as error:  # noqa: BLE001 - ONNX Runtime's exceptions have no public base class
                self._stop_recording(error)
        self._steps.num_unrecorded = 0

    def _record(self, budgets: SchedulerConfig, source_columns: int) -> None:
        """Record a group's steps in each lane, the largest first: nothing that is recorded may have to move."""
        beam_size = self._decoding.beam_size
        max_sentences = max(1, min(budgets.max_rows // beam_size, budgets.max_source_tokens // source_columns))
        max_columns = min(int(_COLUMNS_A_TOKEN * source_columns), self._decoding.max_target_tokens + source_columns)
        width = num_candidates(beam_size)
        most = [most_in_lane(max_sentences, lane) for lane in range(self.num_lanes)]
        states = [self.new_state(beam_size, lane=lane) for lane, number in enumerate(most) if number]
        for num_columns in reversed(buckets(column_bucket, max_columns)):
            for state in states:
                for num_slots in reversed(buckets(slot_bucket, most[state.lane])):
                    state.reserve(num_slots, num_columns, source_columns)
                    step = self._steps.step(state, num_slots, width, 0)
                    state.slots.write(
                        step, np.zeros((0, state.beam_size), np.int64), np.zeros((0, state.beam_size), np.float32)
                    )
                    self._steps.launch(step)
                    self._steps.wait(step)

    def take_unrecorded(self) -> int:
        """Return how many steps were launched kernel by kernel since the last call."""
        number, self._steps.num_unrecorded = self._steps.num_unrecorded, 0
        return number

    def new_state(self, beam_size: int, *, use_shortlist: bool = False, lane: int = 0) -> CudaState:
        """Return a state whose sentences may use all tokens: a GPU's products are large enough for them."""
        return CudaState(self._pool, beam_size, lane)

    def encode(self, sources: Sequence[Sequence[int]]) -> CudaEncoded:
        return self._encoder.encode(sources)

    def decode_step(
        self, tokens: Ints, scores: Floats, state: CudaState, edits: Edits | None = None, *, num_candidates: int
    ) -> Candidates:
        return self.collect(self.launch(tokens, scores, state, edits, num_candidates=num_candidates))

    def launch(
        self, tokens: Ints, scores: Floats, state: CudaState, edits: Edits | None = None, *, num_candidates: int
    ) -> Launched:
        width = min(num_candidates, state.beam_size * self._num_logits)
        state.prepare()
        try:
            return self._launch(tokens, scores, state, edits or NO_EDITS, width)
        except Exception as error:  # ONNX Runtime's exceptions have no public base class
            if isinstance(error, MemoryError) or not self._records:
                raise
            self._stop_recording(error)
            return self._launch(tokens, scores, state, edits or NO_EDITS, width)

    def collect(self, launched: Launched) -> Candidates:
        state, step = launched
        self._steps.wait(step)
        return state.slots.candidates(step, state.num_sentences, self._num_logits)

    def _launch(self, tokens: Ints, scores: Floats, state: CudaState, edits: Edits, num_candidates: int) -> Launched:
        K = state.beam_size
        step = self._steps.step(state, state.num_slots, num_candidates, len(edits.rows))
        state.slots.write(step, tokens, scores)
        if len(edits.rows):
            edits = edits._replace(rows=state.slot_numbers[edits.rows // K] * K + edits.rows % K)
            for name, array in self._decoder.edit_inputs(edits, self._num_logits).items():
                step.given[name][: len(array)] = array
                step.given[name][len(array) :] = array[-1]  # one edit again and again, which changes nothing
        self._steps.launch(step)
        return Launched(state, step)

    def _stop_recording(self, error: Exception) -> None:
        """Go on without recordings on a machine that refuses them."""
        warnings.warn(f"engine.cuda_graphs is off from now on: {error}", RuntimeWarning, stacklevel=2)
        self._records = False
        self._device.wait()  # for the other lane's step, whose graph goes
        stream = cast(CudaDevice, self._device).stream  # no other device records
        del self._decoder, self._steps, self._encoder  # before their successors are made
        encoder, decoder = (open_on_cuda(graph_paths(self._bundle)[name], stream) for name in GRAPHS)
        self._encoder, self._decoder = self._encoder_of(encoder), StepGraph.of(decoder)
        self._steps = Steps(self._decoder, self._device, self._bundle.manifest, records=False)

    def _encoder_of(self, session: ort.InferenceSession) -> CudaEncoder:
        dtype = self._pool.masked.dtype
        return CudaEncoder(session, self._device, self._config, dtype, records=self._records)


def fitting_budgets(
    wanted: SchedulerConfig, free_bytes: int, config: ModelConfig, max_target_tokens: int, bytes_each: int = 2
) -> SchedulerConfig:
    """Return the wanted budgets, cut down to what half, a quarter and a quarter of the usable memory hold."""
    usable = int(_USABLE * free_bytes)
    width = config.attention_width
    column_bytes = 2 * config.num_decoder_layers * width * bytes_each  # keys and values of a position in all layers
    # A hypothesis has its own column of every step, the same beside it, and its logits.
    row_bytes = _MEMORIES * max_target_tokens * column_bytes + _LOGIT_BYTES * config.num_logits
    # A position takes this while the encoder runs, and its keys and values after that.
    encoded_bytes = max(width * _ENCODER_FACTOR, 4 * config.d_ff) * bytes_each + column_bytes

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


def buckets(bucket: Callable[[int], int], most: int) -> list[int]:
    """Return all numbers that `bucket` returns for 1 and so on up to `most`."""
    found = [bucket(1)]
    while found[-1] < most:
        found.append(bucket(found[-1] + 1))
    return found


def graph_paths(bundle: Bundle, precision: str | None = None) -> dict[str, Path]:
    """Return where the graphs of `GRAPHS`, and of the scorer if there is one, lie, or raise BundleError."""
    if precision not in (None, GPU_PRECISION):
        raise BundleError(f"{precision} graphs are for CPUs; on a GPU, {GPU_PRECISION} ones run")
    if GPU_PRECISION not in bundle.manifest.variants:
        raise BundleError(
            f"{bundle.directory} has no {GPU_PRECISION!r} graphs; "
            f"`python -m export {bundle.directory} OTHER --precision {GPU_PRECISION}` makes a bundle with them"
        )
    variant = bundle.variant(GPU_PRECISION)
    names = (*GRAPHS, "scorer") if variant.scorer else GRAPHS
    return {name: bundle.path(getattr(variant, name)) for name in names}
