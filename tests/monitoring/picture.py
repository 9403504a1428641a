"""The dashboard's data as a picture, in the grid that Grafana would give it."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, MaxNLocator, MultipleLocator

from tests.monitoring.expressions import Panel

PER_COLUMN, PER_ROW = 0.62, 0.31  # inches of a cell of the grid
DPI = 76  # of a picture below 300 kB
BACK, CARD, INK, FAINT = "#111217", "#181b1f", "#ccccdc", "#33363d"
COLORS = ("#73bf69", "#f2cc0c", "#5794f2", "#ff9830", "#f2495c", "#b877d9", "#8ab8ff", "#ffa6b0", "#c8f2c2", "#96d98d")
MOST_NAMES = 6  # in a legend; of more, those at 0 are left out


def draw(panels: Sequence[Panel], began: float, title: str, file: Path) -> None:
    """Write the picture.

    Args:
        began: Unix time of the left edge.
        title: above everything.
    """
    rows = max(panel.place["y"] + panel.place["h"] for panel in panels) + 2
    figure = plt.figure(figsize=(24 * PER_COLUMN, rows * PER_ROW), facecolor=BACK)
    figure.text(0.012, 1 - 0.9 / rows, title, color=INK, fontsize=13, va="center")
    for panel in panels:
        _draw_panel(figure, panel, began, rows) if panel.unit else _draw_title(figure, panel, rows)
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=DPI, facecolor=BACK)
    plt.close(figure)


def _draw_title(figure: Figure, panel: Panel, rows: int) -> None:
    figure.text(
        0.012, 1 - (panel.place["y"] + 2.6) / rows, panel.title, color=INK, fontsize=11, weight="bold", va="center"
    )


def _draw_panel(figure: Figure, panel: Panel, began: float, rows: int) -> None:
    place = panel.place
    left, top = place["x"] / 24, 1 - (place["y"] + 2) / rows
    width, height = place["w"] / 24, place["h"] / rows
    card = (left + 0.004, top - height + 0.15 / rows, width - 0.008, height - 0.3 / rows)
    figure.add_artist(Rectangle(card[:2], card[2], card[3], facecolor=CARD, edgecolor=FAINT, linewidth=0.8, zorder=-1))
    figure.text(left + 0.01, top - 0.8 / rows, panel.title, color=INK, fontsize=9.5, va="center")
    axes = figure.add_axes((left + 0.038, top - height + 2.3 / rows, width - 0.05, height - 3.9 / rows), facecolor=CARD)
    scale, unit = scale_of(panel.unit, _largest(panel))
    figure.text(left + width - 0.012, top - 0.8 / rows, unit, color=INK, fontsize=8, va="center", ha="right")
    names = _draw_lines(axes, panel, began, scale)
    _dress(axes, _largest(panel) * scale)
    axes.legend(
        **_legend(axes, names),
        loc="upper left",
        bbox_to_anchor=(-0.09, -0.15),
        ncols=3,
        fontsize=7.5,
        labelcolor=INK,
        frameon=False,
        handlelength=1.2,
        columnspacing=1.0,
        borderpad=0.0,
        labelspacing=0.25,
    )


def _largest(panel: Panel) -> float:
    every = [series.finite for target in panel.targets for series in target.series]
    return max((float(finite.max()) for finite in every if len(finite)), default=0.0)


def _draw_lines(axes: Axes, panel: Panel, began: float, scale: float) -> list[str]:
    """Their names."""
    lines = [(target.name_of(series), series) for target in panel.targets for series in target.series]
    for number, (_, series) in enumerate(lines):
        color, values = COLORS[number % len(COLORS)], series.values * scale
        axes.plot(series.times - began, values, color=color, linewidth=1.2)
        axes.fill_between(series.times - began, values, color=color, alpha=0.08, linewidth=0)
    if lines:
        axes.set_xlim(0, max(float(series.times[-1]) for _, series in lines) - began)
    return [_short(name) for name, _ in lines]


def _dress(axes: Axes, largest: float) -> None:
    axes.set_ylim(0, largest * 1.12 or 1.0)
    axes.yaxis.set_major_locator(MaxNLocator(4, integer=float(largest).is_integer()))
    axes.xaxis.set_major_locator(MultipleLocator(15))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.4g}"))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda seconds, _: f"{int(seconds) // 60}:{int(seconds) % 60:02d}"))
    axes.tick_params(colors=INK, labelsize=7.5, length=0)
    axes.grid(color=FAINT, linewidth=0.6)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _legend(axes: Axes, names: Sequence[str]) -> dict[str, Any]:
    """The lines, where there are many only those with something above 0."""
    peaks = [float(np.nan_to_num(np.asarray(line.get_ydata(), float)).max()) for line in axes.get_lines()]
    kept = [place for place, peak in enumerate(peaks) if peak > 0 or len(peaks) <= MOST_NAMES]
    labels = [names[place] for place in kept]
    if len(kept) < len(names):
        labels[-1] += f" ({len(names) - len(kept)} others at 0)"
    return {"handles": [axes.get_lines()[place] for place in kept], "labels": labels}


def _short(name: str) -> str:
    return name.rsplit("/", maxsplit=1)[-1]  # of a gRPC method the last part


def scale_of(unit: str, largest: float) -> tuple[float, str]:
    """What to multiply values of Grafana's unit by so that an axis up to the largest reads well, and the unit then."""
    if unit == "s" and largest < 1:
        return (1e3, "ms") if largest >= 1e-3 else (1e6, "µs")
    return {"s": (1.0, "s"), "reqps": (1.0, "req/s"), "percentunit": (100.0, "%"), "bytes": (2.0**-20, "MiB")}.get(
        unit, (1.0, "")
    )


def caption(seconds: float) -> str:
    """What the picture is of."""
    today = datetime.now(UTC).date()
    return f"Dragoman: {seconds:.0f} s of load on one replica with a fake engine of 100 texts a second ({today:%B %Y})"
