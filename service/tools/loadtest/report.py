"""A load test as a page of HTML with charts, and as JSON and CSV."""

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from html import escape
from importlib.util import find_spec
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

import numpy as np

from model.files import require_writable, write_whole
from service.extras import how_to_install
from service.tools.loadtest.records import Records, Summary

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
