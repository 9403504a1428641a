"""The race as a picture: how many times as fast each cell was, and what streams do to latency."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from tests.bench.race.cells import Record

OURS, THEIRS = "#1b6ca8", "#d98032"


def draw(rows: Sequence[Record], title: str, path: Path) -> Path:
    """Write the PNG and return its path."""
    streams = [row for row in rows if row["regime"] == "stream"]
    height = 1.6 + 0.34 * len(rows)
    figure, axes = plt.subplots(
        1 + len(streams),
        1,
        figsize=(11, height + 3.2 * len(streams)),
        height_ratios=[height, *[3.2] * len(streams)],
        squeeze=False,
    )
    _draw_speedups(axes[0, 0], rows)
    for axis, row in zip(axes[1:, 0], streams, strict=True):
        _draw_stream(axis, row)
    figure.suptitle(title, fontsize=10)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return path


def _draw_speedups(axis: Axes, rows: Sequence[Record]) -> None:
    names = [row["title"] for row in rows]
    speedups = [row["speedup"] for row in rows]
    bars = axis.barh(names, speedups, color=[OURS if speedup >= 1 else THEIRS for speedup in speedups])
    axis.bar_label(bars, labels=[f"{speedup:.2f}" for speedup in speedups], padding=3, fontsize=8)
    axis.axvline(1.0, color="black", linewidth=0.8)
    axis.invert_yaxis()
    axis.margins(x=0.1)
    axis.tick_params(labelsize=8)
    axis.set_xlabel("times as fast as the other: throughput, 1 / latency, or highest rate of a stream")


def _draw_stream(axis: Axes, row: Record) -> None:
    equal = [(side, pair[side]) for pair in row["equal_rates"] for side in ("dragoman", "peer")]
    ladder = [("dragoman" if run["side"] == "ours" else "peer", run) for run in row["ladder"]]
    for side, label, color in (("dragoman", "Dragoman", OURS), ("peer", row["peer"], THEIRS)):
        of_side = [run for owner, run in equal + ladder if owner == side and not run["given_up"]]
        seen = sorted((run["rate"], run["p95_ms"]) for run in of_side)
        axis.plot(*zip(*seen, strict=True), marker="o", markersize=3, label=label, color=color)
    axis.axhline(row["bound_ms"], color="black", linewidth=0.8, linestyle="--", label="bound")
    axis.set(yscale="log", xlabel="sentences per second", ylabel="p95 latency, ms")
    axis.set_title(row["title"], fontsize=9)
    axis.legend(fontsize=8)
