"""Calls of the native library with right and wrong lengths and ids: `python -m trials.native.border --calls 1000000`.

Whatever is given, a call returns or raises; under the address sanitizer (`make check-native`) nothing beyond its bounds
is read or written.
"""

import argparse
import ctypes
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from model.config import EOS_ID, Architecture
from model.shortlist import Shortlist
from service.engine.cpu.native.library import (
    F32,
    HANDLES,
    I32,
    I64,
    U8,
    BeamsOf,
    Endings,
    Handle,
    SlotsOf,
    SlotStep,
    Step,
    StepArrays,
    address,
    load,
)
from service.engine.cpu.native.runner import NativeRunner, NativeSource, NativeState
from tests.fakes.tiny_model import VOCABULARY, tiny_config, tiny_model, write_tiny_bundle

_USUAL = tiny_config(vocab_size=VOCABULARY)
MODELS = {
    "Transformer, int8": _USUAL,
    "T5, fp32": replace(_USUAL, relative_distance=6, rms_norm=True, gated=True),
    "SSRU, int8": replace(_USUAL, architecture=Architecture.SSRU),
}
_ODD = (-(2**31), -1, 0, 1, 2, 3, 2**15, 2**31 - 1)
_MOST_STATES = 4


class _Caller:
    """A model, some states of it, and the sources that it has read."""

    def __init__(self, runner: NativeRunner, rng: np.random.Generator) -> None:
        self.runner, self.rng, self.library = runner, rng, load()
        self.states = [self.new_state() for _ in range(_MOST_STATES)]
        self.sources: list[NativeSource] = []

    def new_state(self) -> NativeState:
        shortlist = None
        if self.rng.random() < 0.5:
            vocab_size = self.runner._bundle.manifest.config.vocab_size
            always = np.unique(np.append(self.rng.integers(0, vocab_size, 9), EOS_ID))
            shortlist = Shortlist(vocab_size, always, np.zeros(vocab_size + 1, np.int64), np.zeros(0, np.int64))
        return NativeState(self.runner._model, int(self.rng.integers(1, 6)), shortlist)

    def number(self, least: int, most: int) -> int:
        """Return a number from that range, or now and then any other."""
        return int(self.rng.choice(_ODD)) if self.rng.random() < 0.05 else int(self.rng.integers(least, most + 1))

    def ids(self, count: int, most: int, dtype: type[np.integer]) -> "np.ndarray":
        found = self.rng.integers(0, max(1, most), max(1, count)).astype(dtype)
        if self.rng.random() < 0.05:
            found[self.rng.integers(0, found.size)] = self.rng.choice(_ODD)
        return found

    def encode(self) -> None:
        lengths = self.rng.integers(1, 9, self.rng.integers(1, 5))
        starts = np.cumsum([0, *lengths], dtype=np.int64)
        ids = self.ids(int(starts[-1]), self.runner._bundle.manifest.config.vocab_size, np.int32)
        if self.rng.random() < 0.05:
            starts[self.rng.integers(0, starts.size)] += self.rng.choice((-5, -1, 1, 2**40))
        handles = np.zeros(lengths.size, np.uintp)
        count = lengths.size if self.rng.random() > 0.05 else int(self.rng.choice((-1, 0)))
        # Only what fits the arrays is within the contract of addresses.
        starts = np.minimum(starts, ids.size) if starts[-1] > ids.size else starts
        given = address(ids, I32), address(starts, I64), address(handles, HANDLES)
        self.library.dg_encode(self.runner._model.value, count, *given, None)
        self.sources += [NativeSource(handle, ()) for handle in handles.tolist() if handle]
        del self.sources[:-8]

    def append(self) -> None:
        if not self.sources:
            return
        state, count = self.any_state(), min(len(self.sources), int(self.rng.integers(1, 4)))
        handles = np.array([source.value for source in self.sources[:count]], np.uintp)
        tokens, starts = np.zeros(0, np.int32), np.zeros(1 + count, np.int64)
        if self.rng.random() < 0.3:
            lists = [np.unique(self.ids(20, self.runner._bundle.manifest.config.vocab_size, np.int32)) for _ in handles]
            tokens, starts = np.concatenate(lists), np.cumsum([0, *map(len, lists)], dtype=np.int64)
        given = address(handles, HANDLES), address(tokens, I32), address(starts, I64)
        self.library.dg_append(state.value, count, *given)
        state._num_sentences += count

    def any_state(self) -> NativeState:
        place = int(self.rng.integers(0, _MOST_STATES))
        if self.rng.random() < 0.02 or self.states[place]._num_sentences > 6:
            self.states[place] = self.new_state()
        return self.states[place]

    def step(self) -> None:
        state = self.any_state()
        rows, num_edits = (state._num_sentences, state._beam_size), int(self.rng.integers(0, 6))
        num_candidates = self.number(1, 20)
        num_ranks = max(1, rows[0]) * min(max(1, num_candidates), 1 << 16)
        vocabulary = self.runner._bundle.manifest.config.num_target_tokens
        scores = np.zeros(max(1, rows[0] * rows[1]), np.float32)
        scores[self.rng.random(scores.size) < 0.2] = self.rng.choice((-np.inf, np.nan, 1e30))
        arrays = {
            "tokens": self.ids(rows[0] * rows[1], vocabulary, np.int64),
            "scores": scores,
            "edit_rows": np.sort(self.ids(num_edits, rows[0] * rows[1], np.int64)),
            "edit_tokens": self.ids(num_edits, vocabulary, np.int64),
            "edit_values": np.zeros(max(1, num_edits), np.float32),
            "edit_factors": np.full(max(1, num_edits), self.rng.choice((0.0, 1.0, 2.0, np.nan)), np.float32),
            "best": np.zeros(num_ranks, np.float32),
            "best_tokens": np.zeros(num_ranks, np.int64),
            "parents": np.zeros(num_ranks, np.int64),
            "check": np.zeros(max(1, rows[0]), np.float32),
        }
        step = Step(num_edits=num_edits, num_candidates=num_candidates, **arrays)
        num_sentences = rows[0] if self.rng.random() > 0.05 else int(self.rng.choice(_ODD))
        self.library.dg_step(state.value, num_sentences, ctypes.addressof(step))

    def run_ahead(self) -> None:
        state, rooms, columns = self.any_state(), int(self.rng.integers(1, 9)), int(self.rng.integers(1, 9))
        beam_size, num_candidates = state._beam_size, int(self.rng.integers(1, 12))
        vocabulary = self.runner._bundle.manifest.config.num_target_tokens
        ranks, history = rooms * num_candidates, rooms * columns * beam_size
        outputs = {"scores": np.zeros(rooms * beam_size, np.float32), "best": np.zeros(ranks, np.float32)}
        outputs |= {name: np.zeros(ranks, np.int64) for name in ("best_tokens", "parents")}
        outputs |= {"check": np.zeros(rooms, np.float32)}
        step = Step(num_candidates=num_candidates, **outputs)
        arrays = {
            "scores": np.zeros(rooms * beam_size, np.float32),
            "newest": self.ids(rooms * beam_size, vocabulary, np.int64),
        }
        arrays |= {"tokens": np.zeros(history, np.int64), "parents": self.ids(history, beam_size, np.int64)}
        counts = ("num_steps", "max_steps", "still_wanted", "waits_for_best")
        arrays |= {name: self.ids(rooms, columns + 2, np.int64) for name in counts}
        arrays |= {"penalties": np.zeros(rooms, np.float32)}
        beams = BeamsOf(beam_size, rooms, columns, **arrays)
        parents, marks, count = np.zeros(rooms * beam_size, np.int64), np.zeros(rooms, np.uint8), ctypes.c_int32()
        at, there = ctypes.addressof(step), ctypes.addressof(beams)
        end, most = self.number(0, vocabulary), int(self.rng.integers(-1, 5))
        num_rooms = 2 * rooms * beam_size
        ended = np.zeros((4, num_rooms), np.int64), np.zeros(num_rooms, np.float32)
        num_rooms = num_rooms if self.rng.random() > 0.1 else int(self.rng.choice((-1, 0, 1)))
        names = "sentences", "lengths", "parents", "tokens"
        endings = Endings(0, num_rooms, **dict(zip(names, ended[0], strict=True)), scores=ended[1])
        out, where = (address(parents, I64), address(marks, U8)), ctypes.addressof(endings)
        if self.rng.random() < 0.2:
            traced, place = np.zeros(columns, np.int64), self.number(0, beam_size)
            self.library.dg_trace(there, self.number(0, rooms), self.number(1, columns), place, address(traced, I64))
        elif self.rng.random() < 0.5:
            given = where if self.rng.random() < 0.7 else None
            self.library.dg_extend(at, self.number(0, rooms), there, end, *out, given)
        else:
            self.library.dg_run_ahead(state.value, state._num_sentences, at, there, end, most, *out, where, count)

    def advance(self) -> None:
        state = self.any_state()
        parents = self.ids(state._num_sentences * state._beam_size, state._beam_size, np.int64)
        self.library.dg_advance(state.value, state._num_sentences, address(parents, I64))

    def remove(self) -> None:
        state = self.any_state()
        self.library.dg_remove(state.value, self.number(0, max(0, state._num_sentences - 1)))
        state._num_sentences -= 1

    def score(self) -> None:
        if not self.sources:
            return
        config, count = self.runner._bundle.manifest.config, int(self.rng.integers(1, 9))
        inputs, following = (self.ids(count, config.num_target_tokens, np.int32) for _ in range(2))
        log_probs = np.zeros(count, np.float32)
        head_weights = np.zeros((config.num_decoder_layers, config.num_heads, count, 16), np.float32)
        count = count if self.rng.random() > 0.1 else int(self.rng.choice((-1, 0, 2**31 - 1)))
        arrays = address(inputs, I32), address(following, I32), address(log_probs, F32), address(head_weights, F32)
        self.library.dg_score(self.runner._model.value, self.sources[-1].value, count, *arrays)

    def slots(self) -> None:
        num_slots, beam_size, num_words = self.rng.integers(1, 6, 3).tolist()
        words, mask_bytes = (num_slots, beam_size, num_words), int(self.rng.choice((16, 32)))
        past = self.rng.integers(0, 2**64, words, np.uint64) & self.rng.integers(0, 2**64, words, np.uint64)
        numbers, lengths = self.ids(num_slots, num_slots, np.int64), np.zeros(num_slots, np.int64)
        held = past, past.copy(), numbers, lengths, lengths.astype(np.int32), np.zeros((256, mask_bytes), np.uint8)
        mask_bytes = mask_bytes if self.rng.random() > 0.05 else int(self.rng.choice((-16, 0, 8)))
        names = "past", "seen", "numbers", "past_lengths", "source_lengths", "masks"
        slots = SlotsOf(*words, mask_bytes, **dict(zip(names, held, strict=True)))
        over, num_candidates = int(self.rng.integers(1, num_slots + 1)), int(self.rng.integers(1, 12))
        rows, ranks = (over, beam_size), (over, num_candidates)
        arrays = [np.zeros((*rows, 4), np.int64), np.zeros(over, np.int64)]
        arrays += [np.zeros(over, np.int32), np.zeros((*rows, 8 * num_words, 32), np.uint8)]
        arrays += [np.zeros(rows, np.int64), np.zeros(rows, np.float32), np.zeros(ranks, np.float32)]
        arrays += [self.ids(over * num_candidates, 10 * beam_size, np.int64), np.zeros(over, np.float32)]
        given = "new_places", "past_lengths", "source_lengths", "self_mask", "tokens", "scores"
        named = dict(zip((*given, "best", "ids", "check"), arrays, strict=True))
        step = SlotStep(over, num_words, num_candidates, **named)
        if self.rng.random() < 0.1:
            setattr(step, str(self.rng.choice(("num_slots", "num_words"))), int(self.rng.choice((-1, 0, 2**31 - 1))))
        own = StepArrays(num_slots, beam_size, num_candidates)
        count = self.number(0, over)
        at, there, mine = ctypes.addressof(slots), ctypes.addressof(step), own.step_address
        match int(self.rng.integers(0, 4)):
            case 0:
                self.library.dg_count_columns(at, self.number(0, num_slots), ctypes.c_int32(), ctypes.c_int32())
            case 1:
                self.library.dg_write_step(at, count, there, mine)
            case 2:
                self.library.dg_read_step(at, count, there, self.number(1, 10), mine)
            case _:
                parents = self.ids(num_slots * beam_size, beam_size, np.int64)
                self.library.dg_advance_slots(at, self.number(0, num_slots), address(parents, I64))

    def open(self) -> None:
        handle = ctypes.c_void_p()
        with tempfile.TemporaryFile() as file:
            file.write(self.rng.bytes(int(self.rng.integers(0, 4_000))))
            file.flush()
            self.library.dg_open(self.number(file.fileno(), file.fileno()), b"", ctypes.byref(handle))
        Handle("dg_close", handle)


def call_at_random(runner: NativeRunner, number: int, seed: int) -> tuple[int, int]:
    """Make so many calls; return how many were refused and how many were not."""
    caller = _Caller(runner, np.random.default_rng(seed))
    calls: list[Callable[[], None]] = [caller.encode, caller.append, caller.step, caller.step, caller.advance]
    calls += [caller.advance, caller.remove, caller.score, caller.open, caller.run_ahead]
    calls += [caller.slots, caller.slots]
    num_refused = 0
    for which in caller.rng.integers(0, len(calls), number).tolist():
        try:
            calls[which]()
        except ValueError:
            num_refused += 1
    return num_refused, number - num_refused


def run(num_calls: int, seed: int = 1) -> None:
    """Make so many calls of each model."""
    for name, config in MODELS.items():
        precision = name.partition(", ")[2]
        with tempfile.TemporaryDirectory() as directory:
            bundle = write_tiny_bundle(tiny_model(config), Path(directory) / "tiny", (precision,))
            runner = NativeRunner(bundle, precision=precision)
        refused, done = call_at_random(runner, num_calls, seed)
        print(f"{name}: {num_calls} calls, {refused} refused, {done} done", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m trials.native.border", description=__doc__)
    parser.add_argument("--calls", type=int, default=30_000, help="of each of three models")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    run(given.calls, given.seed)


if __name__ == "__main__":
    main()
