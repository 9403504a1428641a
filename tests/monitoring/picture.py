"""The dashboard's data as a picture, in the grid that Grafana would give it."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from tests.monitoring.expressions import Panel

PER_COLUMN, PER_ROW = 0.62, 0.31  # inches of a cell of the grid
DPI = 80
BACK, CARD, INK, FAINT = "#111217", "#181b1f", "#ccccdc", "#33363d"
COLORS = ("#73bf69", "#f2cc0c", "#5794f2", "#ff9830", "#f2495c", "#b877d9", "#8ab8ff", "#ffa6b0", "#c8f2c2", "#96d98d")
MOST_NAMES = 6  # in a legend; those of the largest lines


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
    _reduce_colors(file)


def _draw_title(figure: Figure, panel: Panel, rows: int) -> None:
    figure.text(0.012, 1 - (panel.place["y"] + 2.6) / rows, panel.title, color=INK, fontsize=11, weight="bold", va="center")


def _draw_panel(figure: Figure, panel: Panel, began: float, rows: int) -> None:
    place = panel.place
    left, top = place["x"] / 24, 1 - (place["y"] + 2) / rows
    width, height = place["w"] / 24, place["h"] / rows
    card = (left + 0.004, top - height + 0.15 / rows, width - 0.008, height - 0.3 / rows)
    figure.add_artist(plt.Rectangle(card[:2], card[2], card[3], facecolor=CARD, edgecolor=FAINT, linewidth=0.8, zorder=-1))
    figure.text(left + 0.01, top - 0.8 / rows, panel.title, color=INK, fontsize=9.5, va="center")
    axes = figure.add_axes((left + 0.038, top - height + 2.3 / rows, width - 0.05, height - 3.9 / rows), facecolor=CARD)
    largest = _draw_lines(axes, panel, began)
    _dress(axes, panel.unit, largest)
    axes.legend(
        *_legend(axes),
        **dict(loc="upper left", bbox_to_anchor=(-0.09, -0.17), ncols=3, fontsize=7, frameon=False, labelcolor=INK),
        **dict(handlelength=1.2, columnspacing=1.0, borderpad=0.0, labelspacing=0.25),
    )


def _draw_lines(axes: Axes, panel: Panel, began: float) -> float:
    """The largest value."""
    largest = 0.0
    lines = [(target.name_of(series), series) for target in panel.targets for series in target.series]
    for number, (name, series) in enumerate(lines):
        color = COLORS[number % len(COLORS)]
        axes.plot(series.times - began, series.values, color=color, linewidth=1.1, label=_short(name))
        axes.fill_between(series.times - began, series.values, color=color, alpha=0.08, linewidth=0)
        largest = max([largest, *series.values[np.isfinite(series.values)].tolist()])
    return largest


def _dress(axes: Axes, unit: str, largest: float) -> None:
    axes.set_ylim(0, largest * 1.1 or 1.0)
    axes.margins(x=0)
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.yaxis.set_major_formatter(FuncFormatter(formatter(unit, largest)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda seconds, _: f"{int(seconds) // 60}:{int(seconds) % 60:02d}"))
    axes.tick_params(colors=INK, labelsize=7, length=0)
    axes.grid(color=FAINT, linewidth=0.6)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _legend(axes: Axes) -> tuple[list[object], list[str]]:
    handles, names = axes.get_legend_handles_labels()
    peaks = [np.nanmax(np.nan_to_num(np.asarray(handle.get_ydata(), float))) for handle in handles]  # type: ignore[union-attr]
    kept = sorted(np.argsort(peaks)[::-1][:MOST_NAMES].tolist())
    left_out = len(names) - len(kept)
    more = f" (+{left_out} more)" if left_out else ""
    labels = [names[place] for place in kept]
    return [handles[place] for place in kept], [*labels[:-1], labels[-1] + more] if labels else labels


def _short(name: str) -> str:
    return name.rsplit("/", maxsplit=1)[-1]  # of a gRPC method the last part


def formatter(unit: str, largest: float) -> Callable[[float, int], str]:
    """Numbers as Grafana writes them in this unit, on an axis that reaches so far."""
    if unit == "s" and largest < 1:
        scale, digits = (1e3, "ms") if largest >= 1e-3 else (1e6, "µs")
        return lambda value, _: f"{value * scale:.3g} {digits}"
    suffix = {"s": " s", "reqps": " req/s"}.get(unit, "")
    if unit == "percentunit":
        return lambda value, _: f"{value * 100:.3g}%"
    if unit == "bytes":
        return lambda value, _: f"{value / 2**20:.3g} MiB"
    return lambda value, _: f"{value:.4g}{suffix}"


def _reduce_colors(file: Path) -> None:
    """To a palette: a third of the bytes."""
    from PIL import Image

    with Image.open(file) as picture:
        reduced = picture.convert("RGB").quantize(128)
    reduced.save(file, optimize=True)


def caption(seconds: float) -> str:
    """What the picture is of."""
    today = datetime.now(UTC).date()
    return f"Dragoman: {seconds:.0f} s of load on one replica with a fake engine of 100 texts a second ({today:%B %Y})"
