"""The cells of the race: one model, text, precision, beam and regime each, from the sweep to the figures.

A cell's record is what the report, the chart and the JSON line are made of.  Its ratios: `speedup` is how many times
faster Dragoman was, by throughput or by latency; `latency_ratio` is Dragoman's latency over the other's.
"""

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from tests.bench.race import stream
from tests.bench.race.ceiling import Ceiling, measure, operations
from tests.bench.race.contestants import SearchOptions
from tests.bench.race.dragoman import EngineSetting, device_of
from tests.bench.race.models import RaceModel
from tests.bench.race.regimes import Turns, closed, one_at_a_time, percentile_ms
from tests.bench.race.sides import HuggingFaceSide, Layout, LibrarySide, OurSide, TheirSide, cost_of, fastest
from tests.bench.race.sweep import Sweep
from tests.bench.race.texts import Text, batches

Record = dict[str, Any]

CTRANSLATE2, HUGGING_FACE = PEERS = ("CTranslate2", "Hugging Face")
SHORTLISTS = {"none": (False, False), "ours": (True, False), "both": (True, True)}  # (Dragoman's, CTranslate2's vmap)
LENGTH_TOLERANCE = 0.001  # fp32: all output tokens of one side over the other's
SWEEP_SINGLES = 8
GUESS_SENTENCES = 64  # of the closed batch that says which rates of a stream to try
BOUND_OF_P50 = 10.0  # a stream's p95 latency may be so many times that of a sentence alone (CTranslate2's p50)
BOUNDS_OF_DURATION = 5.0  # arrivals go on for so many bounds: a queue that grows must have the time to show
# Of each side's throughput of that batch: where its settings for a stream are compared.  A stream sustains less than a
# batch that is there at once, and beyond what is sustained settings differ by chance.
TUNING_LOAD = 0.7


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """What is raced."""

    shape: str
    text: str
    precision: str = "int8"
    beam_size: int = 4
    regime: str = "closed"  # a key of REGIMES
    size: int = 32  # sentences of a closed batch
    shortlist: str = "none"
    peer: str = CTRANSLATE2

    @property
    def title(self) -> str:
        """For the chart and the progress."""
        regime = f"closed {self.size}" if self.regime == "closed" else self.regime
        shortlist = "" if self.shortlist == "none" else f", shortlist {self.shortlist}"
        against = "" if self.peer == CTRANSLATE2 else f", against {self.peer}"
        return f"{self.shape} {self.precision} beam {self.beam_size}, {regime}{shortlist}, {self.text}{against}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How long a cell takes."""

    turns: int = 7  # of a closed batch, each with other sentences
    singles: int = 30
    stream_s: float = 4.0  # of arrivals at each rate, at least
    seeds: tuple[int, ...] = (1,)  # of arrivals; a ladder is climbed with each


BASELINE_PRECISIONS = ("fp32", "fp16")
BASELINE_TURNS, BASELINE_SINGLES = 2, 10  # against Hugging Face, which is many times slower


@dataclass(slots=True)
class Track:
    """What cells share."""

    models: dict[str, RaceModel]  # by shape
    texts: dict[str, Text]  # by name
    layouts: Sequence[Layout]
    effort: Effort
    show: Callable[[str, Sweep[Any]], None]
    ceilings: dict[tuple[str, str], Ceiling] = field(default_factory=dict)  # by shape and precision

    @property
    def cpus(self) -> int:
        """Threads of each side."""
        return self.layouts[0].parts * self.layouts[0].threads

    def model(self, cell: Cell) -> RaceModel:
        """The model of a cell."""
        return self.models[cell.shape]

    def ceiling(self, cell: Cell) -> Ceiling:
        """Measured once in a run."""
        key = (cell.shape, cell.precision)
        if key not in self.ceilings:
            self.ceilings[key] = measure(self.model(cell).config, cell.precision, self.cpus)
        return self.ceilings[key]

    def record(self) -> Record:
        """Texts and ceilings as JSON."""
        texts = {
            name: {
                "tuning": len(text.tuning),
                "timed": len(text.timed),
                "mean_source_tokens": round(text.mean_tokens, 1),
            }
            for name, text in self.texts.items()
        }
        ceilings = {" ".join(key): ceiling.record() for key, ceiling in self.ceilings.items()}
        return {"texts": texts, "product_gop_per_s": ceilings}


def run_cell(cell: Cell, track: Track) -> Record:
    """Choose both sides' settings on the tuning text, then race on the other."""
    model = track.model(cell)
    if any(SHORTLISTS[cell.shortlist]) and not model.has_shortlist:
        raise ValueError("the bundle has no shortlist; name one with --shortlist-file")
    options = [
        SearchOptions(beam_size=cell.beam_size, max_target_tokens=model.max_target_tokens, shortlist=has_shortlist)
        for has_shortlist in SHORTLISTS[cell.shortlist]
    ]
    ours = OurSide(model, cell.precision, options[0], track.layouts)
    if cell.peer == HUGGING_FACE:
        return _record(
            cell,
            race_baseline(cell, track, ours, HuggingFaceSide(model, options[1], track.cpus, device_of(cell.precision))),
        )
    theirs = TheirSide(model, cell.precision, options[1], track.layouts)
    return _record(cell, REGIMES[cell.regime](cell, track, ours, theirs))


def _record(cell: Cell, found: Record) -> Record:
    return {"title": cell.title, **asdict(cell), **found}


def race_baseline(cell: Cell, track: Track, ours: OurSide, theirs: HuggingFaceSide) -> Record:
    """Fewer turns against a baseline.

    Raises:
        ValueError: in a stream or another precision, which the baseline does not have.
    """
    if cell.precision not in BASELINE_PRECISIONS or cell.regime not in _LIBRARY_REGIMES:
        raise ValueError(f"{cell.title}: {cell.peer} takes part in fp32 and fp16, single and closed only")
    effort = replace(track.effort, turns=BASELINE_TURNS, singles=BASELINE_SINGLES)
    return _LIBRARY_REGIMES[cell.regime](cell, replace(track, effort=effort), ours, theirs)


def race_single(cell: Cell, track: Track, ours: OurSide, theirs: LibrarySide) -> Record:
    """One sentence at a time: latencies."""
    text = track.texts[cell.text]
    tuning = text.tuning[:SWEEP_SINGLES]
    sweeps = ours.sweep_single(tuning), theirs.sweep_single(tuning)
    shown = _shown(cell, track, sweeps)
    with closing(ours.open(sweeps[0].best)) as our_engine, closing(theirs.open(sweeps[1].best)) as their_engine:
        one_at_a_time(our_engine, their_engine, tuning)
        turns = one_at_a_time(our_engine, their_engine, text.timed[: track.effort.singles])
    latencies = {
        f"{name}_p{percent}_ms": round(percentile_ms(seconds, percent), 2)
        for name, seconds in (("dragoman", turns.ours_s), ("peer", turns.theirs_s))
        for percent in (50, 95)
    }
    return {**latencies, "latency_ratio": round(1.0 / turns.speedup, 3), **_found(cell, turns), **shown}


def race_closed(cell: Cell, track: Track, ours: OurSide, theirs: LibrarySide) -> Record:
    """All sentences at once: throughput, and how near it comes to bare matrix products."""
    text = track.texts[cell.text]
    tuning = batches(text.tuning, cell.size, 1)
    sweeps = ours.sweep_closed(tuning[0]), theirs.sweep_closed(tuning[0])
    shown = _shown(cell, track, sweeps)
    with closing(ours.open(sweeps[0].best)) as our_engine, closing(theirs.open(sweeps[1].best)) as their_engine:
        closed(our_engine, their_engine, tuning)
        turns = closed(our_engine, their_engine, batches(text.timed, cell.size, track.effort.turns))
    speeds = {
        f"{name}_per_s": round(turns.per_s(seconds), 2)
        for name, seconds in (("dragoman", turns.ours_s), ("peer", turns.theirs_s))
    }
    return {**speeds, **_found(cell, turns), **_shares(cell, track, turns), **shown}


def race_stream(cell: Cell, track: Track, ours: OurSide, theirs: TheirSide) -> Record:
    """Sentences at random times: the highest rates sustained, and latencies at equal rates."""
    text, effort = track.texts[cell.text], track.effort
    batch = batches(text.tuning, GUESS_SENTENCES, 1)[0]
    seconds = {
        "ours": cost_of(ours.open, lambda it: fastest(it, batch))(ours.usual),
        "theirs": cost_of(theirs.open, lambda it: fastest(it, batch))(theirs.usual),
    }
    loads = {side: TUNING_LOAD * len(batch) / taken for side, taken in seconds.items()}
    bound_s = BOUND_OF_P50 * theirs.sweep_single(text.tuning[:SWEEP_SINGLES]).lowest_cost
    duration_s = max(effort.stream_s, BOUNDS_OF_DURATION * bound_s)
    tuning = stream.Conditions(sentences=text.tuning, duration_s=duration_s, bound_s=bound_s)
    sweeps = (
        ours.sweep_stream(lambda server: tuning.try_rate(server, loads["ours"], effort.seeds[0]).cost),
        theirs.sweep_stream(lambda server: tuning.try_rate(server, loads["theirs"], effort.seeds[0]).cost),
    )
    shown = _shown(cell, track, sweeps)
    conditions = stream.Conditions(sentences=text.timed, duration_s=duration_s, bound_s=bound_s)
    with (
        closing(ours.open_streaming(sweeps[0].best)) as our_server,
        closing(theirs.open_streaming(sweeps[1].best)) as their_server,
    ):
        found = stream.race({"ours": our_server, "theirs": their_server}, loads, conditions, effort.seeds)
    return {**found.record(), **shown}


_LIBRARY_REGIMES: dict[str, Callable[[Cell, Track, OurSide, LibrarySide], Record]] = {
    "single": race_single,
    "closed": race_closed,
}
REGIMES: dict[str, Callable[[Cell, Track, OurSide, TheirSide], Record]] = {**_LIBRARY_REGIMES, "stream": race_stream}


def _shown(cell: Cell, track: Track, sweeps: tuple[Sweep[EngineSetting], Sweep[Any]]) -> Record:
    """Both sweeps, printed whole, as part of the record."""
    named: dict[str, Sweep[Any]] = dict(zip(("dragoman", "peer"), sweeps, strict=True))
    for name, sweep in zip(("Dragoman", cell.peer), sweeps, strict=True):
        track.show(name, sweep)
    return {"sweep": {name: sweep.record() for name, sweep in named.items()}}


def _found(cell: Cell, turns: Turns) -> Record:
    """Ratios, agreement and raw times."""
    low, high = turns.speedup_range
    agreement = turns.agreement
    lengths = {"dragoman_tokens": agreement.our_tokens, "peer_tokens": agreement.their_tokens}
    if cell.precision == "fp32":
        lengths["same_length"] = abs(agreement.length_difference) <= LENGTH_TOLERANCE
    return {
        "speedup": round(turns.speedup, 3),
        "speedup_min": round(low, 3),
        "speedup_max": round(high, 3),
        "sentences": agreement.sentences,
        "identical": round(agreement.identical_share, 4),
        **lengths,
        "dragoman_s": [round(seconds, 5) for seconds in turns.ours_s],
        "peer_s": [round(seconds, 5) for seconds in turns.theirs_s],
    }


def _shares(cell: Cell, track: Track, turns: Turns) -> Record:
    """The time that bare matrix products would take, over the time it took."""
    if cell.shortlist != "none" or device_of(cell.precision) == "cuda":
        return {}  # widths depend on the text then; a GPU's limit is its memory, see bench_gpu.py
    config, ceiling = track.model(cell).config, track.ceiling(cell)
    least_s = ceiling.seconds(config, turns.work, cell.beam_size)
    work = operations(config, turns.work, cell.beam_size)
    return {
        "gop_per_sentence": round(work / turns.agreement.sentences / 1e9, 3),
        "ceiling_gop_per_s": round(work / least_s / 1e9, 1),
        "ceiling_per_s": round(turns.agreement.sentences / least_s, 1),
        "dragoman_share": round(least_s / sum(turns.ours_s), 3),
        "peer_share": round(least_s / sum(turns.theirs_s), 3),
    }
