"""A picture of a soak: memory, answers and waiting over its time."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from tests.fakes.books import Moment
from tests.fakes.load import Load

STRETCHES = 60


def draw(load: Load, moments: Sequence[Moment], began: float, reloads: Sequence[float], file: Path) -> None:
    """Write the picture.

    Args:
        began: time.monotonic() of the first call.
        reloads: times of the reloads on the same clock.
    """
    figure, (memory, waits, codes) = plt.subplots(3, sharex=True, figsize=(10, 8), constrained_layout=True)
    minutes = [(moment.at - began) / 60 for moment in moments]
    memory.plot(minutes, [moment.front_bytes / 2**20 for moment in moments], label="front process")
    memory.plot(minutes, [moment.engine_bytes / 2**20 for moment in moments], label="engine processes")
    memory.set_ylabel("resident MiB")
    memory.set_ylim(bottom=0)
    _draw_calls(load, began, waits, codes)
    for at in reloads:
        for axes in (memory, waits, codes):
            axes.axvline((at - began) / 60, color="grey", linewidth=0.5)
    codes.set_xlabel("minutes; grey: a reload")
    for axes in (memory, waits, codes):
        axes.legend(loc="upper left", fontsize="small")
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=120)
    plt.close(figure)


def _draw_calls(load: Load, began: float, waits: Axes, codes: Axes) -> None:
    times = np.array([(record.intended - began) / 60 for record in load.records])
    edges = np.linspace(0, times.max(), STRETCHES + 1)
    places = np.clip(np.digitize(times, edges) - 1, 0, STRETCHES - 1)
    width_s = (edges[1] - edges[0]) * 60
    is_ok = np.array([record.code == "OK" for record in load.records])
    seconds = np.array([record.done - record.intended for record in load.records])
    for quantile in (0.5, 0.99):
        stretches = [seconds[is_ok & (places == place)] for place in range(STRETCHES)]
        values = [np.quantile(waited, quantile) * 1e3 if len(waited) else np.nan for waited in stretches]
        waits.plot(edges[:-1], values, label=f"p{quantile * 100:.0f} of OK")
    waits.set_ylabel("ms")
    for code in load.codes:
        is_code = np.array([record.code == code for record in load.records])
        codes.plot(edges[:-1], np.bincount(places[is_code], minlength=STRETCHES) / width_s, label=code)
    codes.set_ylabel("calls/s")
