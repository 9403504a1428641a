"""CTranslate2 in the race: as a library call on all sentences, and behind dynamic batching for a stream.

CTranslate2 has no queue for sentences that come one by one, so the best that a caller can build on it stands here: as
many threads as it translates batches at a time, of which each takes what waits when it becomes free.
"""

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import ctranslate2

from tests.bench.race.contestants import Finished, SearchOptions, Sentence, Tokens

# precision -> what CTranslate2 has for it
COMPUTE_TYPES = {"int8": ("int8", "int8_float32"), "fp32": ("float32",), "fp16": ("float16",)}


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerSetting:
    """What can be chosen for a machine."""

    compute_type: str
    device: str = "cpu"
    inter_threads: int = 1  # batches at a time
    intra_threads: int = 1  # for each
    max_batch_size: int = 32
    batch_type: str = "examples"  # or "tokens"
    max_delay_ms: float = 0.0  # of a stream: how long a batch that is not full waits for more

    def __str__(self) -> str:
        delay = f", {self.max_delay_ms:g} ms" if self.max_delay_ms else ""
        threads = f"{self.inter_threads} x {self.intra_threads} threads"
        return f"{threads}, {self.compute_type}, {self.max_batch_size} {self.batch_type}{delay}"


def open_translator(directory: Path, setting: PeerSetting) -> ctranslate2.Translator:
    """The model, loaded; it quantises the weights itself."""
    return ctranslate2.Translator(
        str(directory),
        device=setting.device,
        compute_type=setting.compute_type,
        inter_threads=setting.inter_threads,
        intra_threads=setting.intra_threads,
        max_queued_batches=-1,
    )


def effective_compute_type(directory: Path, compute_type: str, device: str = "cpu") -> str:
    """What CTranslate2 makes of a compute type on this machine: two names may mean the same."""
    return str(open_translator(directory, PeerSetting(compute_type=compute_type, device=device)).compute_type)


def call_options(options: SearchOptions) -> dict[str, Any]:
    """The race's options in the words of `translate_batch`.

    CTranslate2 forbids an empty translation unless told otherwise; here, as in Dragoman, it may be empty.
    """
    return {
        "beam_size": options.beam_size,
        "max_decoding_length": options.max_target_tokens,
        "min_decoding_length": 0,
        "max_input_length": 0,
        "use_vmap": options.shortlist,
    }


class Translations:
    """All sentences in one call; CTranslate2 sorts them by length and cuts them into batches itself."""

    def __init__(
        self, translator: ctranslate2.Translator, ids: dict[str, int], setting: PeerSetting, options: SearchOptions
    ) -> None:
        self._translator = translator
        self._ids = ids
        batches = {"max_batch_size": setting.max_batch_size, "batch_type": setting.batch_type}
        self._options = call_options(options) | batches

    def translate(self, sentences: Sequence[Sentence]) -> list[Any]:
        """See `Contestant`."""
        sources = [sentence.pieces for sentence in sentences]
        results: list[Any] = self._translator.translate_batch(sources, **self._options)
        return results

    def tokens(self, answer: Any) -> Tokens:
        """See `Contestant`."""
        return [self._ids[piece] for piece in answer.hypotheses[0]]

    def close(self) -> None:
        """Nothing to do: others may use the translator."""


class DynamicBatches:
    """What waits becomes a batch as soon as CTranslate2 can take one: `Streaming`.

    A thread for each batch that CTranslate2 runs at a time, so that none is formed before it can start: until then more
    sentences may come.  A batch that is not full waits `max_delay_ms` for more.
    """

    def __init__(self, translator: ctranslate2.Translator, setting: PeerSetting, options: SearchOptions) -> None:
        self._translator = translator
        self._options = call_options(options)
        self._setting = setting
        self._waiting: SimpleQueue[tuple[int, Sentence] | None] = SimpleQueue()  # None: stop
        self._finished: SimpleQueue[list[Finished] | Exception] = SimpleQueue()
        self._collecting = threading.Lock()
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(setting.inter_threads)]
        for thread in self._threads:
            thread.start()

    def submit(self, number: int, sentence: Sentence) -> None:
        """See `Streaming`."""
        self._waiting.put((number, sentence))

    def finished(self, timeout_s: float) -> list[Finished]:
        """See `Streaming`."""
        batches: list[list[Finished] | Exception] = []
        try:
            batches.append(self._finished.get(timeout=timeout_s) if timeout_s > 0 else self._finished.get_nowait())
            while True:
                batches.append(self._finished.get_nowait())
        except Empty:
            pass
        finished: list[Finished] = []
        for batch in batches:
            if isinstance(batch, Exception):
                raise batch
            finished += batch
        return finished

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
        """The next batch; empty when there is to be none."""
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
        """What waits, or comes before this moment."""
        wait_s = until - time.perf_counter()
        try:
            entry = self._waiting.get(timeout=wait_s) if wait_s > 0 else self._waiting.get_nowait()
        except Empty:
            return None
        if entry is None:
            self._waiting.put(None)  # for the thread that it was meant for
        return entry
