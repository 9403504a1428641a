"""CTranslate2 in the race: as a library call on all sentences, and behind dynamic batching for a stream.

CTranslate2 has no queue for sentences that come one by one, so the best that a caller can build on it stands here: as
many threads as it translates batches at a time, of which each takes what waits when it becomes free.
"""

import ctypes
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import ctranslate2

from bench.race.regimes import Finished
from bench.race.text import Sentence
from service.engine.wire import SearchParams

# precision -> what CTranslate2 has for it
COMPUTE_TYPES = {"int8": ("int8", "int8_float32"), "fp32": ("float32",), "fp16": ("float16",)}
BATCH_SIZES = {"examples": (4, 8, 16, 32, 64), "tokens": (128, 256, 512, 1_024)}
GPU_BATCH_SIZES = {"examples": (32, 64, 128, 256, 512), "tokens": (1_024, 4_096, 16_384)}
STREAM_BATCH_SIZES = (8, 16, 32, 64)
STREAM_DELAYS_MS = (10.0, 40.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerSetting:
    """What can be chosen for a machine."""

    compute_type: str
    device: str = "cpu"
    inter_threads: int = 1  # batches at a time
    intra_threads: int = 1  # for each
    max_batch_size: int = 16
    batch_type: str = "examples"  # or "tokens"
    max_delay_ms: float = 0.0  # of a stream: how long a batch that is not full waits for more

    def __str__(self) -> str:
        delay = f", {self.max_delay_ms:g} ms" if self.max_delay_ms else ""
        threads = f"{self.inter_threads} x {self.intra_threads} threads"
        return f"{threads}, {self.compute_type}, {self.max_batch_size} {self.batch_type}{delay}"


def load_cublas() -> None:
    """Load the cuBLAS of CUDA 12, which CTranslate2's wheel asks for by name and does not bring.

    Raises:
        RuntimeError: it is neither installed as a package nor found by the system.
    """
    packages = [Path(entry) / "nvidia" / "cublas" / "lib" for entry in sys.path]
    # cuBLASLt first, as cuBLAS asks for it.
    for name in ("libcublasLt.so.12", "libcublas.so.12"):
        found = next((str(directory / name) for directory in packages if (directory / name).is_file()), name)
        try:
            ctypes.CDLL(found, mode=ctypes.RTLD_GLOBAL)
        except OSError as error:
            raise RuntimeError(f"CTranslate2 needs {name} on a GPU: pip install nvidia-cublas-cu12") from error


def open_translator(directory: Path, setting: PeerSetting) -> ctranslate2.Translator:
    """Load the model; it quantises the weights itself."""
    if setting.device == "cuda":
        load_cublas()
    return ctranslate2.Translator(
        str(directory),
        device=setting.device,
        compute_type=setting.compute_type,
        inter_threads=setting.inter_threads,
        intra_threads=setting.intra_threads,
        max_queued_batches=-1,
    )


class TheirSide:
    """CTranslate2's model, precision and search, and the settings that it can have."""

    def __init__(
        self,
        directory: Path,
        ids: Mapping[str, int],
        precision: str,
        params: SearchParams,
        layouts: Sequence[tuple[int, int]],
    ) -> None:
        self._directory = directory
        self._ids = ids
        self._params = params
        self._device = "cuda" if precision == "fp16" else "cpu"
        self._translators: dict[PeerSetting, ctranslate2.Translator] = {}
        found = (
            self._translator(PeerSetting(compute_type=name, device=self._device)) for name in COMPUTE_TYPES[precision]
        )
        kinds = list(dict.fromkeys(str(translator.compute_type) for translator in found))  # two names may mean the same
        self._layouts: list[dict[str, Any]] = [
            {"inter_threads": parts, "intra_threads": threads, "compute_type": kind}
            for kind in kinds
            for parts, threads in layouts
        ]
        if self._device == "cuda":
            self._layouts = [{"inter_threads": parts} for parts in (1, 2)]
        self.usual = replace(PeerSetting(compute_type=kinds[0], device=self._device), **self._layouts[0])

    def choices(self, regime: str, batch: Sequence[Sentence]) -> list[list[dict[str, Any]]]:
        """Return for each choice its values; threads are tried again with the best batch size."""
        if regime == "single":  # a second batch would have nothing to do
            return [[{**layout, "inter_threads": 1} for layout in self._layouts]]
        if regime == "stream":
            delays = [{"max_delay_ms": delay} for delay in STREAM_DELAYS_MS]
            return [self._layouts, [{"max_batch_size": size} for size in STREAM_BATCH_SIZES], delays]
        whole = {"examples": len(batch), "tokens": sum(len(sentence.ids) for sentence in batch)}
        candidates = GPU_BATCH_SIZES if self._device == "cuda" else BATCH_SIZES
        sizes = [
            {"batch_type": kind, "max_batch_size": size}
            for kind, of_kind in candidates.items()
            for size in of_kind
            if size <= whole[kind]
        ]
        return [self._layouts, sizes, self._layouts]

    def open(self, setting: PeerSetting) -> "Translations":
        """Return a translator that batches by itself."""
        return Translations(self._translator(setting), self._ids, setting, self._params)

    def open_streaming(self, setting: PeerSetting) -> "DynamicBatches":
        """Return a translator behind dynamic batching."""
        return DynamicBatches(self._translator(setting), setting, self._params)

    def _translator(self, setting: PeerSetting) -> ctranslate2.Translator:
        key = replace(setting, max_batch_size=1, batch_type="examples", max_delay_ms=0.0)
        if key not in self._translators:
            self._translators[key] = open_translator(self._directory, setting)
        return self._translators[key]


def call_options(params: SearchParams) -> dict[str, Any]:
    """Return the search in the words of `translate_batch`.

    CTranslate2 forbids an empty translation unless told otherwise; here, as in Dragoman, it may be empty.
    """
    return {
        "beam_size": params.beam_size,
        "max_decoding_length": params.max_target_tokens,
        "min_decoding_length": params.min_target_tokens,
        "max_input_length": 0,
        "use_vmap": params.use_shortlist,
    }


class Translations:
    """All sentences in one call; CTranslate2 sorts them by length and cuts them into batches itself."""

    def __init__(
        self, translator: ctranslate2.Translator, ids: Mapping[str, int], setting: PeerSetting, params: SearchParams
    ) -> None:
        self._translator = translator
        self._ids = ids
        batches = {"max_batch_size": setting.max_batch_size, "batch_type": setting.batch_type}
        self._options = call_options(params) | batches

    def translate(self, sentences: Sequence[Sentence]) -> list[Any]:
        sources = [sentence.pieces for sentence in sentences]
        results: list[Any] = self._translator.translate_batch(sources, **self._options)
        return results

    def tokens(self, answer: Any) -> list[int]:
        return [self._ids[piece] for piece in answer.hypotheses[0]]

    def close(self) -> None:
        pass  # others may use the translator


class DynamicBatches:
    """What waits becomes a batch as soon as CTranslate2 can take one: `Streaming`.

    A thread for each batch that CTranslate2 runs at a time, so that none is formed before it can start: until then more
    sentences may come.  A batch that is not full waits `max_delay_ms` for more.
    """

    def __init__(self, translator: ctranslate2.Translator, setting: PeerSetting, params: SearchParams) -> None:
        self._translator = translator
        self._options = call_options(params)
        self._setting = setting
        self._waiting: SimpleQueue[tuple[int, Sentence] | None] = SimpleQueue()  # None: stop
        self._finished: SimpleQueue[list[Finished] | Exception] = SimpleQueue()
        self._collecting = threading.Lock()
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(setting.inter_threads)]
        for thread in self._threads:
            thread.start()

    def submit(self, number: int, sentence: Sentence) -> None:
        self._waiting.put((number, sentence))

    def finished(self, timeout_s: float) -> list[Finished]:
        finished: list[Finished] = []
        while True:
            try:
                batch = self._finished.get(timeout=0.0 if finished else max(0.0, timeout_s))
            except Empty:
                return finished
            if isinstance(batch, Exception):
                raise batch
            finished += batch

    def close(self) -> None:
        """End the threads, once what they do is done."""
        for _ in self._threads:
            self._waiting.put(None)
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while batch := self._collect():
            try:
                self._translator.translate_batch([sentence.pieces for _, sentence in batch], **self._options)
            except Exception as error:  # noqa: BLE001 - the caller's thread raises it
                self._finished.put(error)
                return
            now = time.perf_counter()
            self._finished.put([Finished(number, now) for number, _ in batch])

    def _collect(self) -> list[tuple[int, Sentence]]:
        """Return the next batch; an empty one when there is to be none."""
        batch: list[tuple[int, Sentence]] = []
        with self._collecting:
            if (first := self._waiting.get()) is None:
                return batch
            batch.append(first)
            until = time.perf_counter() + self._setting.max_delay_ms / 1e3
            while len(batch) < self._setting.max_batch_size and (entry := self._next(until)) is not None:
                batch.append(entry)
        return batch

    def _next(self, until: float) -> tuple[int, Sentence] | None:
        """Return what waits, or comes before this moment."""
        try:
            entry = self._waiting.get(timeout=max(0.0, until - time.perf_counter()))
        except Empty:
            return None
        if entry is None:
            self._waiting.put(None)  # for the thread that it was meant for
        return entry
