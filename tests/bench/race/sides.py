"""Both sides of the race for one model, precision and search: which settings they have, and how they are opened."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any, NamedTuple, Protocol, TypeVar

import ctranslate2

from tests.bench.race.contestants import Contestant, SearchOptions, Sentence, Streaming
from tests.bench.race.dragoman import EngineHere, EngineProcesses, EngineSetting, device_of
from tests.bench.race.models import RaceModel
from tests.bench.race.peer_ctranslate2 import (
    COMPUTE_TYPES,
    DynamicBatches,
    PeerSetting,
    Translations,
    effective_compute_type,
    open_translator,
)
from tests.bench.race.peer_huggingface import HuggingFace, HuggingFaceSetting, build_model
from tests.bench.race.regimes import took
from tests.bench.race.sweep import Changes, Sweep, descend

RUNS = 2  # of each setting with a closed batch; the faster one counts
ROWS = (32, 64, 128, 256)  # of an engine
BATCH_SIZES = {"examples": (4, 8, 16, 32, 64), "tokens": (128, 256, 512, 1_024)}  # CTranslate2's
BASELINE_BATCH_SIZES = (8, 16)  # Hugging Face's, beside the whole batch
GPU_ROWS = (256, 512, 1_024, 2_048)
GPU_BATCH_SIZES = {"examples": (32, 64, 128, 256, 512), "tokens": (1_024, 4_096, 16_384)}
STREAM_BATCH_SIZES = (8, 16, 32, 64)
STREAM_DELAYS_MS = (10.0, 40.0)
STREAM_ROWS = (16, 32, 64, 128)

Setting = TypeVar("Setting")
Closeable = TypeVar("Closeable", bound="SupportsClose")


class SupportsClose(Protocol):
    """What a setting opens."""

    def close(self) -> None:
        """Give back processes and threads."""
        ...


class LibrarySide(Protocol):
    """A peer for sentences that are there; each has settings of its own."""

    def open(self, setting: Any) -> Contestant:
        """A contestant with this setting."""
        ...

    def sweep_closed(self, batch: Sequence[Sentence]) -> Sweep[Any]:
        """Seconds for a closed batch."""
        ...

    def sweep_single(self, sentences: Sequence[Sentence]) -> Sweep[Any]:
        """Median seconds for one sentence at a time."""
        ...


class Layout(NamedTuple):
    """A way to use the CPUs; both sides have the same ones."""

    parts: int  # engines, or batches at a time
    threads: int  # of each


def layouts(cpus: int, threads: int | None = None) -> list[Layout]:
    """All ways to cut the CPUs into equal parts, or only those with so many threads for each part.

    Raises:
        ValueError: the CPUs cannot be cut like this.
    """
    found = [Layout(cpus // each, each) for each in range(1, cpus + 1) if cpus % each == 0]
    found = [layout for layout in found if threads in (None, layout.threads)]
    if not found:
        raise ValueError(f"{cpus} CPUs cannot be cut into parts of {threads} threads each")
    return found


@dataclass(slots=True)
class OurSide:
    """Dragoman."""

    model: RaceModel
    precision: str
    options: SearchOptions
    layouts: Sequence[Layout]

    @property
    def usual(self) -> EngineSetting:
        """Where sweeps begin."""
        if self.is_on_gpu:
            return EngineSetting(max_rows=GPU_ROWS[0])
        engines, threads = self.layouts[0]
        return EngineSetting(engines=engines, threads=threads)

    @property
    def is_on_gpu(self) -> bool:
        """One engine is enough for a GPU."""
        return device_of(self.precision) == "cuda"

    def open(self, setting: EngineSetting) -> Contestant:
        """One engine works here, several in processes."""
        where = EngineHere if setting.engines == 1 else EngineProcesses
        return where(self.model.bundles[self.precision], self.precision, setting, self.options)

    def open_streaming(self, setting: EngineSetting) -> Streaming:
        """Always in processes: the loop steps while this process waits for the next arrival."""
        return EngineProcesses(self.model.bundles[self.precision], self.precision, setting, self.options)

    def sweep_closed(self, batch: Sequence[Sentence]) -> Sweep[EngineSetting]:
        """Seconds for a closed batch."""
        sizes = GPU_ROWS if self.is_on_gpu else ROWS
        rows = [{"max_rows": rows} for rows in sizes if rows >= self.options.beam_size]
        return descend(self.usual, [self._layouts(), rows], cost_of(self.open, lambda it: fastest(it, batch)))

    def sweep_single(self, sentences: Sequence[Sentence]) -> Sweep[EngineSetting]:
        """Median seconds for one sentence at a time; a second engine would have nothing to do."""
        threads = [{"threads": layout.threads} for layout in ([] if self.is_on_gpu else self.layouts)]
        start = self.usual if self.is_on_gpu else EngineSetting(threads=self.layouts[0].threads)
        return descend(start, [threads], cost_of(self.open, lambda it: median_latency(it, sentences)))

    def sweep_stream(self, cost: Callable[[Streaming], float]) -> Sweep[EngineSetting]:
        """Seconds of latency in a stream."""
        sizes = GPU_ROWS if self.is_on_gpu else STREAM_ROWS
        rows = [{"max_rows": rows} for rows in sizes if rows >= self.options.beam_size]
        return descend(self.usual, [rows, self._layouts()], cost_of(self.open_streaming, cost))

    def _layouts(self) -> list[Changes]:
        if self.is_on_gpu:
            return []
        return [{"engines": engines, "threads": threads} for engines, threads in self.layouts]


@dataclass(slots=True)
class TheirSide:
    """CTranslate2."""

    model: RaceModel
    precision: str
    options: SearchOptions
    layouts: Sequence[Layout]
    compute_types: list[str] = field(init=False)  # different ones; two names may mean the same
    _translators: dict[tuple[str, int, int], ctranslate2.Translator] = field(default_factory=dict)

    def __post_init__(self) -> None:
        directory = self.model.ctranslate2_dir
        names, device = COMPUTE_TYPES[self.precision], device_of(self.precision)
        found = (effective_compute_type(directory, name, device) for name in names)
        self.compute_types = list(dict.fromkeys(found))

    @property
    def usual(self) -> PeerSetting:
        """Where sweeps begin."""
        parts, threads = self.layouts[0]
        kind, device = self.compute_types[0], device_of(self.precision)
        if device == "cuda":
            return PeerSetting(compute_type=kind, device=device)
        return PeerSetting(compute_type=kind, inter_threads=parts, intra_threads=threads, max_batch_size=16)

    def open(self, setting: PeerSetting) -> Contestant:
        """A translator that batches by itself."""
        return Translations(self._translator(setting), self.model.ids, setting, self.options)

    def open_streaming(self, setting: PeerSetting) -> Streaming:
        """A translator behind dynamic batching."""
        return DynamicBatches(self._translator(setting), setting, self.options)

    def sweep_closed(self, batch: Sequence[Sentence]) -> Sweep[PeerSetting]:
        """Seconds for a closed batch; threads are tried again with the best batch size."""
        sizes = _batch_sizes(batch, GPU_BATCH_SIZES if device_of(self.precision) == "cuda" else BATCH_SIZES)
        choices = [self._layouts(), sizes, self._layouts()]
        return descend(self.usual, choices, cost_of(self.open, lambda it: fastest(it, batch)))

    def sweep_single(self, sentences: Sequence[Sentence]) -> Sweep[PeerSetting]:
        """Median seconds for one sentence at a time; a second batch would have nothing to do."""
        layouts_of_one = [{**change, "inter_threads": 1} for change in self._layouts()]
        start = replace(self.usual, inter_threads=1)
        return descend(start, [layouts_of_one], cost_of(self.open, lambda it: median_latency(it, sentences)))

    def sweep_stream(self, cost: Callable[[Streaming], float]) -> Sweep[PeerSetting]:
        """Seconds of latency in a stream."""
        sizes = [{"max_batch_size": size} for size in STREAM_BATCH_SIZES]
        delays = [{"max_delay_ms": delay} for delay in STREAM_DELAYS_MS]
        return descend(self.usual, [sizes, delays, self._layouts()], cost_of(self.open_streaming, cost))

    def _layouts(self) -> list[Changes]:
        """inter_threads x intra_threads x compute types; on a GPU, batches at a time."""
        if device_of(self.precision) == "cuda":
            return [{"inter_threads": parts} for parts in (1, 2)]
        return [
            {"inter_threads": parts, "intra_threads": threads, "compute_type": kind}
            for kind in self.compute_types
            for parts, threads in self.layouts
        ]

    def _translator(self, setting: PeerSetting) -> ctranslate2.Translator:
        key = (setting.compute_type, setting.inter_threads, setting.intra_threads)  # the device is the precision's
        if key not in self._translators:
            self._translators[key] = open_translator(self.model.ctranslate2_dir, setting)
        return self._translators[key]


@dataclass(slots=True)
class HuggingFaceSide:
    """`generate`; has only the sizes of its batches to choose."""

    model: RaceModel
    options: SearchOptions
    cpus: int
    device: str = "cpu"
    _built: Any = None

    def open(self, setting: HuggingFaceSetting) -> Contestant:
        """The model, built once."""
        self._built = self._built or build_model(self.model.shape, self.device)
        return HuggingFace(self._built, setting, self.options)

    def sweep_closed(self, batch: Sequence[Sentence]) -> Sweep[HuggingFaceSetting]:
        """Seconds for a closed batch."""
        sizes = [{"max_batch_size": size} for size in BASELINE_BATCH_SIZES if size <= len(batch)]
        start = HuggingFaceSetting(threads=self.cpus, max_batch_size=len(batch))
        return descend(start, [sizes], cost_of(self.open, lambda it: fastest(it, batch, runs=1)))

    def sweep_single(self, sentences: Sequence[Sentence]) -> Sweep[HuggingFaceSetting]:
        """Median seconds for one sentence at a time."""
        threads = [{"threads": threads} for threads in {1, self.cpus}]
        start = HuggingFaceSetting(threads=self.cpus)
        return descend(start, [threads], cost_of(self.open, lambda it: median_latency(it, sentences)))


def _batch_sizes(batch: Sequence[Sentence], candidates: Mapping[str, Sequence[int]]) -> list[Changes]:
    """None larger than the whole."""
    whole = {"examples": len(batch), "tokens": sum(len(sentence.ids) for sentence in batch)}
    return [
        {"batch_type": kind, "max_batch_size": size}
        for kind, sizes in candidates.items()
        for size in sizes
        if size <= whole[kind]
    ]


def cost_of(opened: Callable[[Setting], Closeable], cost: Callable[[Closeable], float]) -> Callable[[Setting], float]:
    """What a setting costs, given what its contestant costs."""

    def of_setting(setting: Setting) -> float:
        with closing(opened(setting)) as contestant:
            return cost(contestant)

    return of_setting


def fastest(contestant: Contestant, batch: Sequence[Sentence], runs: int = RUNS) -> float:
    """Seconds of the fastest run over a batch, after one over a part of it that is not timed."""
    seconds: list[float] = []
    contestant.translate(batch[: max(1, len(batch) // 4)])
    for _ in range(runs):
        took(contestant, batch, seconds)
    return min(seconds)


def median_latency(contestant: Contestant, sentences: Sequence[Sentence]) -> float:
    """Median seconds of one sentence at a time, after one that is not timed."""
    seconds: list[float] = []
    contestant.translate(sentences[:1])
    for sentence in sentences:
        took(contestant, [sentence], seconds)
    return median(seconds)
