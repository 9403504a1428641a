"""A straight line through measurements over time, and how sure its slope is."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

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
        """The slope is hardly less than this."""
        return self.slope - self.half_width

    @property
    def high(self) -> float:
        """The slope is hardly more than this."""
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
