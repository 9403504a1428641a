"""Whether a process grows: its memory after the warm-up, as a line with a confidence interval."""

from collections.abc import Callable, Sequence

from tests.fakes.books import Moment, Watch
from tests.fakes.trend import trend

WARM_UP = 0.2  # of the time, before memory counts


def after_warm_up(watch: Watch) -> list[Moment]:
    """The looks that count."""
    return watch.moments[int(WARM_UP * len(watch.moments)) :]


def memory_figures(moments: Sequence[Moment], read: Callable[[Moment], int]) -> dict[str, float]:
    """MiB at both ends of the time, and the slope in MiB an hour with its 95 % interval."""
    line = trend([moment.at / 3_600 for moment in moments], [read(moment) / 2**20 for moment in moments])
    names = {"slope": line.slope, "slope_low": line.low, "slope_high": line.high}
    ends = {"first_mib": read(moments[0]) / 2**20, "last_mib": read(moments[-1]) / 2**20}
    return {name: round(value, 2) for name, value in {**ends, **names}.items()}
