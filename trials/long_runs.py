"""How a long program of tests ends: growth of memory, a table of figures, what did not hold, an exit status."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from tests.fakes.books import Moment, Watch

# Student's t, 97.5 %, by degrees of freedom; further ones are as good as the normal distribution's.
_T = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13, 2.12, 2.11, 2.10, 2.09)


@dataclass(frozen=True, slots=True)
class Trend:
    """value = start + slope x time."""

    start: float
    slope: float
    half_width: float  # of the slope's 95 % confidence interval

    @property
    def low(self) -> float:
        return self.slope - self.half_width

    @property
    def high(self) -> float:
        return self.slope + self.half_width


def trend(times: Sequence[float], values: Sequence[float], *, blocks: int = 20) -> Trend:
    """The least-squares line through the means of `blocks` stretches of time.

    Neighbouring measurements of memory are alike, and would make a slope look surer than it is; means of stretches are
    nearly independent.
    """
    x, y = np.asarray(times, float), np.asarray(values, float)
    parts = [part for part in np.array_split(np.arange(len(x)), min(blocks, len(x))) if len(part)]
    x = np.array([x[part].mean() for part in parts])
    y = np.array([y[part].mean() for part in parts])
    if len(x) < 3:
        raise ValueError(f"{len(times)} measurements are too few for a trend, at least 3 are needed")
    centred = x - x.mean()
    slope = float(centred @ y / (centred @ centred))
    start = float(y.mean() - slope * x.mean())
    residual = y - start - slope * x
    freedom = len(x) - 2
    error = float(np.sqrt(residual @ residual / freedom / (centred @ centred)))
    return Trend(start, slope, error * (_T[freedom - 1] if freedom <= len(_T) else 1.96))


def after_warm_up(watch: Watch, share: float = 0.2) -> list[Moment]:
    """The moments in which memory counts: those after the first `share` of the time."""
    return watch.moments[int(share * len(watch.moments)) :]


def memory_figures(moments: Sequence[Moment], read: Callable[[Moment], int]) -> dict[str, float]:
    """MiB at both ends of the time, and the slope in MiB an hour with its 95 % interval."""
    line = trend([moment.at / 3_600 for moment in moments], [read(moment) / 2**20 for moment in moments])
    names = {"slope": line.slope, "slope_low": line.low, "slope_high": line.high}
    ends = {"first_mib": read(moments[0]) / 2**20, "last_mib": read(moments[-1]) / 2**20}
    return {name: round(value, 2) for name, value in {**ends, **names}.items()}


def verdict(title: str, figures: Mapping[str, Any], facts: Mapping[str, bool]) -> int:
    """Print everything.

    Args:
        facts: what would be wrong, and whether it is so.

    Returns:
        0 if everything held, else 1.
    """
    table = Table("figure", "seen", title=title)
    for name, value in figures.items():
        table.add_row(name.replace("_", " "), str(value))
    Console(width=120).print(table)
    wrong = [what for what, is_so in facts.items() if is_so]
    print("\n".join(f"NOT HELD: {what}" for what in wrong) or "all held")
    print(json.dumps({**figures, "not_held": wrong}))
    return 1 if wrong else 0
