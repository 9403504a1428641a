"""What became of the calls of a stage, its figures, and the report of a load test: HTML with charts, JSON and CSV.

Also when the calls of a stage are due, and the search for the highest rate that holds a target.

Arrivals are open-loop: calls are due at a rate, whatever the server does.  A caller that waits for answers before it
sends slows down with the server and hides its queue.  Latency counts from when a call was due, not from when it was
sent: one that a slow sender held up was late for its user all the same (no coordinated omission).  Knows no gRPC.
"""

import csv
import io
import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from html import escape
from importlib.util import find_spec
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Self

import numpy as np
import numpy.typing as npt

from model.files import require_writable, write_whole
from service.extras import how_to_install

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Seconds = npt.NDArray[np.float64]
ARRIVALS = ("poisson", "constant")
PERCENTILES = (10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.9)
OK = "OK"
_BY_OVERLOAD = {"RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED"}
_MAX_FAILED_RATIO = 0.001


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """One entry a call in each array; times in seconds from the start of the stage."""

    due: Seconds
    sent: Seconds
    done: Seconds
    codes: npt.NDArray[np.str_]
    texts: npt.NDArray[np.int64]

    @classmethod
    def joined(cls, parts: Iterable["Records"]) -> Self:
        """Return the calls of several workers in the order in which they were due."""
        every = list(parts)
        columns = {name: np.concatenate([getattr(part, name) for part in every]) for name in cls.__slots__}
        order = np.argsort(columns["due"], kind="stable")
        return cls(**{name: column[order] for name, column in columns.items()})

    def __len__(self) -> int:
        return len(self.due)

    @property
    def latency_s(self) -> Seconds:
        """From due to done."""
        return self.done - self.due

    @property
    def is_ok(self) -> npt.NDArray[np.bool_]:
        """Which calls were answered."""
        return np.asarray(self.codes == OK)

    def where(self, is_wanted: npt.NDArray[np.bool_]) -> "Records":
        """Return some of the calls."""
        return Records(**{name: getattr(self, name)[is_wanted] for name in self.__slots__})


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The figures of one stage, warm-up left out."""

    offered_rate: float  # calls due a second
    done_rate: float  # calls answered a second while the stage lasted: under overload, what the server can do
    done_texts_rate: float  # texts of those
    ok_rate: float  # of the calls due, those that were answered at some time, also long after the stage
    texts_rate: float  # texts of those
    goodput_rate: float  # of the calls due, those answered within the target, a second; done_rate without a target
    calls: int
    codes: dict[str, int]
    latency_ms: dict[str, float]  # of answered calls, by percentile ("p50"); empty without any
    refusal_ms_p99: float | None  # how long a refusal took; None without any
    send_delay_ms_p99: float  # how late the load generator itself was
    duration_s: float


def summarize(records: Records, duration_s: float, *, warm_up_s: float = 0.0, target_s: float | None = None) -> Summary:
    """Return the figures of a stage's calls.

    Args:
        records: of all calls: what was due in the warm-up may be answered after it.
        duration_s: of the stretch in which they were due, warm-up included.
        target_s: a call that takes longer is no goodput.
    """
    counted, counted_s = records.where(records.due >= warm_up_s), duration_s - warm_up_s
    answered = counted.where(counted.is_ok)
    refused = counted.where(counted.codes == "RESOURCE_EXHAUSTED")
    done = records.where(records.is_ok & (records.done >= warm_up_s) & (records.done < duration_s))
    in_time = len(done) if target_s is None else int((answered.latency_s <= target_s).sum())
    names, counts = np.unique(counted.codes, return_counts=True)
    return Summary(
        offered_rate=len(counted) / counted_s,
        done_rate=len(done) / counted_s,
        done_texts_rate=float(done.texts.sum()) / counted_s,
        ok_rate=len(answered) / counted_s,
        texts_rate=float(answered.texts.sum()) / counted_s,
        goodput_rate=in_time / counted_s,
        calls=len(counted),
        codes={str(name): int(count) for name, count in zip(names, counts, strict=True)},
        latency_ms=percentiles_ms(answered.latency_s),
        refusal_ms_p99=percentiles_ms(refused.done - refused.sent, [99.0]).get("p99"),
        send_delay_ms_p99=percentiles_ms(counted.sent - counted.due, [99.0]).get("p99", 0.0),
        duration_s=counted_s,
    )


def percentiles_ms(seconds: Seconds, wanted: Sequence[float] = PERCENTILES) -> dict[str, float]:
    """Return `{"p50": ...}` in milliseconds; nothing without calls."""
    return {f"p{name:g}": float(np.percentile(seconds, name) * 1e3) for name in wanted} if len(seconds) else {}


def due_times(rate: float, duration_s: float, rng: np.random.Generator | None) -> Seconds:
    """Return when each call is due, in seconds from the beginning, ascending.

    Args:
        rate: calls a second.
        rng: draws the times of a Poisson process; None stands for constant gaps.
    """
    num = round(rate * duration_s)
    if rng is None:
        return np.arange(num) / rate
    # Given their number, the points of a Poisson process are uniform.  The number is the rate's own and not drawn: a
    # draw for 30 s at 100 a second is off by 2 %, and a search would then find 2 % too much or too little.
    return np.sort(rng.uniform(0.0, duration_s, num))


def highest_rate(
    try_rate: Callable[[float], Summary], *, p99_ms: float, first: float, precision: float = 0.03
) -> tuple[float, list[tuple[float, Summary]]]:
    """Return the highest rate tried that held, 0.0 if none did, and every stage in the order of trying.

    The rate doubles until it breaks, then the gap is halved.  A moment without a CPU breaks any rate, also one far
    below the capacity: the break that ends a search is tried again.  A stage without a single answer ends the search at
    once, unless overload is why: at a lower rate there may be one.

    Args:
        try_rate: runs a stage at this many calls a second.
        p99_ms: a rate holds if its p99 is within this and next to no call failed.
        first: the rate of the first stage.
        precision: the search ends when the next rate to try differs by less than this part.
    """
    tried: list[tuple[float, Summary]] = []
    held, broken = 0.0, Counter[float]()
    rate: float | None = first
    while rate is not None:
        summary = try_rate(rate)
        tried.append((rate, summary))
        answered = summary.codes.get(OK, 0)
        is_answered = answered > 0 and summary.calls - answered <= _MAX_FAILED_RATIO * summary.calls
        if is_answered and summary.latency_ms["p99"] <= p99_ms:
            held = max(held, rate)
        else:
            broken[rate] += 1
        is_overload = bool(summary.codes) and summary.codes.keys() <= _BY_OVERLOAD
        lowest = min((other for other in broken if other > held), default=None)
        if not (OK in summary.codes or is_overload):
            rate = None
        elif lowest is None:
            rate = 2 * held
        elif lowest - held > max(precision * held, precision * precision * first):
            rate = (held + lowest) / 2
        else:
            rate = lowest if broken[lowest] == 1 else None
    return held, tried


_PAGE = Template("""<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Load test of $target</title>
<style>
body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222}
table{border-collapse:collapse;margin:1rem 0}td,th{padding:.3rem .8rem;border-bottom:1px solid #ddd;text-align:right}
th:first-child,td:first-child{text-align:left}svg{width:100%;height:auto}p.warn{background:#fff3cd;padding:.5rem 1rem}
</style>
<h1>Load test of $target</h1><p>$headline</p>$warnings<h2>Stages</h2>$table
<h2>Latency against rate</h2>$by_rate<h2>Latency over time</h2>$over_time
<p>Latency counts from when a call was due, not from when it was sent. Made with <code>$command</code>.</p></html>
""")
SUFFIXES = (".html", ".json", ".csv")
_SHOWN = ("p50", "p95", "p99", "p99.9")
COLUMNS = ("offered/s", "answered/s", "texts/s", *(f"{name} ms" for name in _SHOWN), "other codes")


@dataclass(frozen=True, slots=True, kw_only=True)
class StageResult:
    """One stage of the test."""

    name: str  # "40 calls/s"
    summary: Summary
    records: Records  # warm-up included


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadTestReport:
    """The whole test."""

    target: str
    command: str
    headline: str
    stages: Sequence[StageResult]
    warnings: Sequence[str] = ()
    arrivals: str = "poisson"
    texts_per_call: int = 1
    warm_up_s: float = 0.0  # that each summary leaves out
    callers: int | None = None  # of a closed loop

    def to_json(self) -> str:
        """Return all figures, without single calls."""
        head = {item.name: getattr(self, item.name) for item in fields(self) if item.name != "stages"}
        stages = [{"name": stage.name, **asdict(stage.summary)} for stage in self.stages]
        return json.dumps({**head, "stages": stages}, indent=2)

    def to_csv(self) -> str:
        """Return every call: stage, due, sent and done in seconds, code, texts."""
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["stage", "due_s", "sent_s", "done_s", "code", "texts"])
        for stage in self.stages:
            calls = stage.records
            columns = zip(calls.due, calls.sent, calls.done, calls.codes, calls.texts, strict=True)
            writer.writerows(
                [stage.name, f"{due:.6f}", f"{sent:.6f}", f"{done:.6f}", code, texts]
                for due, sent, done, code, texts in columns
            )
        return file.getvalue()

    def to_html(self) -> str:
        """Return the page, charts inside."""
        return _PAGE.substitute(
            target=escape(self.target),
            command=escape(self.command),
            headline=escape(self.headline),
            warnings="".join(f'<p class="warn">{escape(line)}</p>' for line in self.warnings),
            table=_table(self.stages),
            by_rate=_latency_by_rate(self.stages),
            over_time=_latency_over_time(self.stages),
        )

    def write(self, file: Path) -> None:
        """Write the format that the suffix names: .html, .json or .csv."""
        check_file(file)
        formats = {".html": self.to_html, ".json": self.to_json, ".csv": self.to_csv}
        write_whole(file, formats[file.suffix]().encode())


def check_file(file: Path) -> None:
    """Raise ValueError or OSError for a file that `LoadTestReport.write` could not write, before the load is made."""
    if file.suffix not in SUFFIXES:
        raise ValueError(f"{file} has the suffix {file.suffix!r}, there are {', '.join(SUFFIXES)}")
    if file.suffix == ".html" and find_spec("matplotlib") is None:
        raise ValueError(f"{file} needs matplotlib: {how_to_install('loadtest')}")
    require_writable(file)


def figures(summary: Summary) -> list[str]:
    """Return the cells of one stage, one for each of COLUMNS."""
    latency = [f"{summary.latency_ms[name]:.1f}" if summary.latency_ms else "-" for name in _SHOWN]
    others = ", ".join(f"{name} {count}" for name, count in summary.codes.items() if name != "OK")
    rates = (summary.offered_rate, summary.done_rate, summary.done_texts_rate)
    return [*(f"{rate:.1f}" for rate in rates), *latency, others or "-"]


def _table(stages: Sequence[StageResult]) -> str:
    head = "".join(f"<th>{name}</th>" for name in ("stage", *COLUMNS))
    rows = [(stage.name, *figures(stage.summary)) for stage in stages]
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>" for cells in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def _latency_by_rate(stages: Sequence[StageResult]) -> str:
    figure, axes = _figure()
    answered = (stage.summary for stage in stages if stage.summary.latency_ms)
    ordered = sorted(answered, key=lambda summary: summary.offered_rate)
    rates = [summary.offered_rate for summary in ordered]
    for name in ("p50", "p95", "p99"):
        axes.plot(rates, [summary.latency_ms[name] for summary in ordered], "o-", label=name)
    axes.set(xlabel="calls a second offered", ylabel="latency, ms", yscale="log")
    axes.legend()
    return _svg(figure, axes)


def _latency_over_time(stages: Sequence[StageResult]) -> str:
    figure, axes = _figure()
    began = 0.0
    for stage in stages:
        answered = stage.records.where(stage.records.is_ok)
        seconds = np.floor(answered.due)
        marks = [(second, answered.latency_s[seconds == second] * 1e3) for second in np.unique(seconds)]
        for wanted, color in ((50, "tab:blue"), (99, "tab:red")):
            latency_ms = [np.percentile(ms, wanted) for _, ms in marks]
            axes.plot([began + second for second, _ in marks], latency_ms, color=color)
        failed = stage.records.where(~stage.records.is_ok)
        axes.plot(began + failed.due, np.full(len(failed), 1.0), "|", color="black", alpha=0.3)
        began += float(stage.records.due[-1]) + 1 if len(stage.records) else 0.0
        axes.axvline(began - 0.5, color="grey", linewidth=0.5)
    axes.set(xlabel="seconds, stage after stage", ylabel="ms: p50 blue, p99 red; failed black", yscale="log")
    return _svg(figure, axes)


def _figure() -> "tuple[Figure, Axes]":
    from matplotlib.figure import Figure  # noqa: PLC0415 - of the extra `loadtest`; JSON and CSV go without

    figure = Figure(figsize=(9, 4), layout="constrained")
    return figure, figure.subplots()


def _svg(figure: "Figure", axes: "Axes") -> str:
    from matplotlib.ticker import ScalarFormatter  # noqa: PLC0415 - of an extra

    axes.grid(visible=True, which="both", alpha=0.3)
    for axis_formatter in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
        axis_formatter(ScalarFormatter())  # numbers as people write them, not powers of ten
    file = io.StringIO()
    figure.savefig(file, format="svg")
    text = file.getvalue()
    return text[text.index("<svg") :]
