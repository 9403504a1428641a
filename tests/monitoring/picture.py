"""The dashboard's data as a picture, in the grid that Grafana would give it."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from tests.monitoring.expressions import Panel

PER_COLUMN, PER_ROW = 0.62, 0.31  # inches of a cell of the grid
DPI = 76  # of a picture below 300 kB
MOST_NAMES = 6  # in a legend; of more, those at 0 are left out
STYLE = {
    "axes.titlesize": 9.5,
    "axes.titlelocation": "left",
    "axes.grid": True,
    "grid.color": "#33363d",
    "font.size": 7.5,
}


def draw(panels: Sequence[Panel], began: float, title: str, file: Path) -> None:
    """Write the picture.

    Args:
        began: Unix time of the left edge.
        title: above everything.
    """
    rows = max(panel.place["y"] + panel.place["h"] for panel in panels) + 2
    with plt.style.context(["dark_background", STYLE]):
        figure = plt.figure(figsize=(24 * PER_COLUMN, rows * PER_ROW))
        figure.text(0.012, 1 - 0.9 / rows, title, fontsize=13, va="center")
        for panel in panels:
            place = panel.place
            left, top = place["x"] / 24, 1 - (place["y"] + 2) / rows
            if not panel.unit:
                figure.text(0.012, top - 0.6 / rows, panel.title, fontsize=11, weight="bold", va="center")
                continue
            width, height = place["w"] / 24 - 0.05, (place["h"] - 3.9) / rows
            _draw_lines(figure.add_axes((left + 0.038, top - height - 1.6 / rows, width, height)), panel, began)
        file.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(file, dpi=DPI)
        plt.close(figure)


def _draw_lines(axes: Axes, panel: Panel, began: float) -> None:
    axes.set_title(f"{panel.title} [{panel.unit}]")
    lines = [(target.name_of(series), series) for target in panel.targets for series in target.series]
    for name, series in lines:
        is_drawn = len(lines) <= MOST_NAMES or (len(series.finite) > 0 and series.finite.max() > 0)
        label = name.rsplit("/", maxsplit=1)[-1]  # of a gRPC method the last part
        axes.plot(series.times - began, series.values, linewidth=1.2, label=label if is_drawn else None)
    axes.set_ylim(bottom=0)
    if lines:
        axes.legend(loc="upper left", bbox_to_anchor=(-0.09, -0.15), ncols=3, frameon=False, fontsize=7.5)
