"""When calls are due: open-loop arrivals at a rate, whatever the server does.

A caller that waits for answers before it sends slows down with the server and hides its queue; these do not.  Pure.
"""

from dataclasses import dataclass

import numpy as np

import service.arrivals
from service.arrivals import Seconds

ARRIVALS = ("poisson", "constant")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A stretch of one rate."""

    rate: float  # calls a second
    duration_s: float

    def __post_init__(self) -> None:
        for name in ("rate", "duration_s"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)}, more than 0 is needed")


def due_times(stage: Stage, arrivals: str, seed: int) -> Seconds:
    """When each call of the stage is due, in seconds from its start, ascending."""
    rng = None if arrivals == "constant" else np.random.default_rng(seed)
    return service.arrivals.due_times(stage.rate, stage.duration_s, rng)


def share(times: Seconds, worker: int, num_workers: int) -> Seconds:
    """The times that fall to one of several workers; together they have each exactly once."""
    return times[worker::num_workers]
