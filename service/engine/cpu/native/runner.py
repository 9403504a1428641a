"""Runs the encoder and the decoder step with the native library (`Runner`).

What runs, and for whom, is decided by the loop, the scheduler and the search; only `decode_ahead` also ends the
hypotheses of plain sentences, by the rule of `beam_search.py`.

Axes: B sentences, K hypotheses of a sentence, S source, T target, C candidates, L decoder layers, H heads.
"""

import ctypes
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from model.bundle import Bundle, BundleError
from model.shortlist import Shortlist
from service.engine.beams import Beams, Candidates, Floats, Ints, StepOutcome
from service.engine.choice import unsupported
from service.engine.cpu.native.library import (
    F32,
    HANDLES,
    I32,
    I64,
    Handle,
    LibraryError,
    StepArrays,
    address,
    address_of,
    load,
    most_weight_sum,
)
from service.engine.cpu.native.library import instruction_set as find_instruction_set
from service.engine.cpu.native.pack import write_packed
from service.engine.logits import Edits
from service.engine.runner import NO_SCORER, BundleRunner
from service.engine.wire import HeadWeights, TokenScores

_MAX_LAYOUTS = 128  # whose arrays a state keeps


class NativeSource(Handle):
    """A sentence that the encoder has read."""

    def __init__(self, handle: int, ids: Sequence[int]) -> None:
        super().__init__("dg_forget", handle)
        self.ids = ids


class NativeEncoded(NamedTuple):
    """What the encoder returns for some sentences."""

    sources: Sequence[NativeSource]

    @property
    def num_columns(self) -> int:
        """S of the longest."""
        return max(len(source.ids) for source in self.sources)


class NativeState(Handle):
    """What the library remembers of the sentences of a group."""

    has_grown = False  # an empty state has no memory of sentences
    _arrays: StepArrays  # of the newest step

    def __init__(self, model: Handle, beam_size: int, shortlist: Shortlist | None) -> None:
        self._library, self._model = load(), model  # which has to outlive this
        self._beam_size, self._shortlist = beam_size, shortlist
        self._num_sentences = 0
        self._layouts: dict[tuple[int, int], StepArrays] = {}  # by B and C, least recently used first
        handle, common = ctypes.c_void_p(), np.array([] if shortlist is None else shortlist.always, np.int32)
        self._library.dg_new_state(model.value, beam_size, len(common), address(common, I32), ctypes.byref(handle))
        super().__init__("dg_close_state", handle)

    def append(self, encoded: NativeEncoded, indices: Sequence[int]) -> None:
        """Do as `DecoderState.append`."""
        sources = [encoded.sources[index] for index in indices]
        handles = np.array([source.value for source in sources], np.uintp)
        tokens, starts = np.zeros(0, np.int32), np.zeros(1 + len(sources), np.int64)
        if self._shortlist is not None:
            lists = [self._shortlist.own_candidates(source.ids) for source in sources]
            tokens, starts[1:] = np.concatenate(lists).astype(np.int32), np.cumsum([*map(len, lists)])
        given = address(handles, HANDLES), address(tokens, I32), address(starts, I64)
        self._library.dg_append(self.value, len(sources), *given)
        self._num_sentences += len(sources)

    def remove(self, index: int, *, is_finite: bool = True) -> None:
        """Do as `DecoderState.remove`."""
        self._library.dg_remove(self.value, index)
        self._num_sentences -= 1

    def advance(self, parents: Ints) -> None:
        """Do as `DecoderState.advance`."""
        self._library.dg_advance(self.value, len(parents), self._arrays.address_of_parents(parents))

    def arrays(self, num_candidates: int) -> StepArrays:
        """Return the arrays of a step of all sentences."""
        layout = self._num_sentences, num_candidates
        arrays = self._layouts.pop(layout, None) or StepArrays(self._num_sentences, self._beam_size, num_candidates)
        self._layouts[layout] = self._arrays = arrays
        if len(self._layouts) > _MAX_LAYOUTS:
            del self._layouts[next(iter(self._layouts))]
        return arrays


class NativeRunner(BundleRunner):
    """One bundle in the native library, on one core."""

    def __init__(
        self,
        bundle: Bundle,
        *,
        precision: str | None = None,
        packed_weights: Path | None = None,
        instruction_set: str = "",
    ) -> None:
        """Open the packed weights that engines share, or pack those of the bundle where there are none.

        Raises:
            BundleError: the library does not know such a model, or its graphs are damaged.
            LibraryError: there is no library that this process can use.
        """
        super().__init__(bundle)
        if reason := unsupported(bundle, precision):
            raise BundleError(f"{bundle.directory}: the native engine does not know {reason}")
        self.has_scorer = bool(bundle.variant(precision).scorer)
        self._library = load()
        if not find_instruction_set(instruction_set):
            raise LibraryError(f"this CPU has no {instruction_set or 'AVX2'} instructions")
        most = most_weight_sum(instruction_set)
        with _file(packed_weights) as file:
            if not os.fstat(file.fileno()).st_size:
                write_packed(bundle, precision, file, most)
            self._model = open_model(file, instruction_set)
        self._shortlist = _shortlist(bundle)

    def new_state(self, beam_size: int, *, use_shortlist: bool = False) -> NativeState:
        return NativeState(self._model, beam_size, self._shortlist if use_shortlist else None)

    def encode(self, sources: Sequence[Sequence[int]]) -> NativeEncoded:
        return NativeEncoded(self._encode(sources, None))

    def _encode(self, sources: Sequence[Sequence[int]], head_weights: Floats | None) -> list[NativeSource]:
        """Encode sentences; `head_weights` [L, H, S, S] gets those of the encoder, of one sentence alone."""
        ids = np.concatenate([np.asarray(source, np.int32) for source in sources])
        starts = np.cumsum([0, *map(len, sources)], dtype=np.int64)
        handles = np.zeros(len(sources), np.uintp)
        where = None if head_weights is None else address(head_weights, F32)
        given = address(ids, I32), address(starts, I64), address(handles, HANDLES)
        self._library.dg_encode(self._model.value, len(sources), *given, where)
        return [NativeSource(handle, source) for handle, source in zip(handles.tolist(), sources, strict=True)]

    def decode_step(
        self, tokens: Ints, scores: Floats, state: NativeState, edits: Edits | None = None, *, num_candidates: int
    ) -> Candidates:
        arrays = state.arrays(num_candidates)
        arrays.tokens[:], arrays.scores[:] = tokens, scores
        arrays.edit(edits)
        self._library.dg_step(state.value, len(tokens), arrays.step_address)
        return arrays.candidates

    def decode_ahead(
        self, beams: Beams, state: NativeState, end: int, most: int, *, num_candidates: int
    ) -> tuple[Candidates, StepOutcome, int]:
        """Do as `AheadRunner.decode_ahead`."""
        arrays, num_steps = state.arrays(num_candidates), ctypes.c_int32()
        outputs = arrays.next_parents_address, arrays.marks_address, arrays.endings_address, num_steps
        where = state.value, len(arrays.check), arrays.step_address, address_of(beams)
        self._library.dg_run_ahead(*where, end, most, *outputs)
        return arrays.candidates, arrays.outcome, num_steps.value

    def score(
        self, encoded: Sequence[tuple[NativeEncoded, int]], translations: Sequence[Sequence[int]]
    ) -> list[TokenScores]:
        if not self.has_scorer:
            raise self._refusal(NO_SCORER)
        pairs = zip(encoded, translations, strict=True)
        return [self._score(batch.sources[index], translation)[0] for (batch, index), translation in pairs]

    def _score(self, source: NativeSource, translation: Sequence[int]) -> tuple[TokenScores, Floats]:
        """Return what the model says of a translation, and what each head attends to: [L, H, T, S]."""
        config, alignment = self._config, self._bundle.manifest.alignment
        inputs = np.array([self.profile.start, *translation], np.int32)
        following = np.array([*translation, self.profile.end], np.int32)
        log_probs = np.zeros(inputs.size, np.float32)
        head_weights = np.zeros((config.num_decoder_layers, config.num_heads, inputs.size, len(source.ids)), np.float32)
        given = address(inputs, I32), address(following, I32), address(log_probs, F32), address(head_weights, F32)
        self._library.dg_score(self._model.value, source.value, inputs.size, *given)
        assert alignment is not None, "`unsupported` has looked"
        attention = np.stack([head_weights[layer, head] for layer, head in alignment.heads]).mean(axis=0)  # [T, S]
        if alignment.is_shifted:  # a token is written one step before the decoder reads it
            attention = np.concatenate([attention[1:], attention[-1:]])
        return TokenScores(tuple(log_probs.tolist()), attention.astype(np.float16).tobytes()), head_weights

    def head_weights(self, source: Sequence[int], translation: Sequence[int]) -> HeadWeights:
        if not self.has_scorer:
            raise self._refusal(NO_SCORER)
        config, length = self._config, len(source)
        encoder = np.zeros((config.num_encoder_layers, config.num_heads, length, length), np.float32)
        (encoded,) = self._encode([source], encoder)
        _, cross = self._score(encoded, translation)
        shares = (np.rint(weights * 255).astype(np.uint8).tobytes() for weights in (encoder, cross))
        return HeadWeights(config.num_heads, *shares)


def open_model(packed: BinaryIO, instruction_set: str = "") -> Handle:
    """Return the model in a packed file, which may be closed then; raise BundleError if it is none."""
    handle = ctypes.c_void_p()
    try:
        load().dg_open(packed.fileno(), instruction_set.encode(), ctypes.byref(handle))
    except ValueError as error:
        raise BundleError("the packed weights do not have the sizes that they say") from error
    return Handle("dg_close", handle)


def _file(shared: Path | None) -> BinaryIO:
    """Return the file with the packed weights that the engines of a model share, or an empty one in memory."""
    if shared is not None:
        try:
            file = shared.open("rb")
        except OSError as error:
            warnings.warn(f"weights are not shared with other engines: {error}", RuntimeWarning, stacklevel=2)
        else:
            if os.fstat(file.fileno()).st_size:
                return file
            file.close()  # they could not be written, which the log says
    return os.fdopen(os.memfd_create("dragoman-weights", os.MFD_CLOEXEC), "w+b")


def _shortlist(bundle: Bundle) -> Shortlist | None:
    """Return the bundle's shortlist, or None where it has none."""
    name, config = bundle.manifest.shortlist, bundle.manifest.config
    if not name:
        return None
    try:
        shortlist = Shortlist.load(bundle.path(name), config.largest_vocabulary, config.eos_id)
        shortlist.check_targets(config.num_target_tokens)
        return shortlist
    except ValueError as error:
        raise BundleError(f"{error}; export the model again") from error
