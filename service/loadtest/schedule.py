"""When calls are due: open-loop arrivals at a rate, whatever the server does.

A caller that waits for answers before it sends slows down with the server and hides its queue.  These callers do not.
Pure.
"""

import numpy as np
import numpy.typing as npt

Seconds = npt.NDArray[np.float64]
ARRIVALS = ("poisson", "constant")


def due_times(rate: float, duration_s: float, rng: np.random.Generator | None) -> Seconds:
    """Return when each call is due, in seconds from the beginning, ascending.

    Args:
        rate: calls a second.
        rng: draws the times of a Poisson process; None stands for constant gaps.
    """
    num = round(rate * duration_s)
    if rng is None:
        return np.arange(num) / rate
    # Given their number, the points of a Poisson process are uniform.  The number is the rate's own and not drawn: a
    # draw for 30 s at 100 a second is off by 2 %, and a search would then find 2 % too much or too little.
    return np.sort(rng.uniform(0.0, duration_s, num))
