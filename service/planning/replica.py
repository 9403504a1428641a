"""One replica as the simulation sees it: how much work a text is, and how fast it goes on beside others.

The server decodes up to so many texts together, a step for all of them at a time; further ones wait in their order.
A step takes longer the more texts are in it, about linearly.  So with n texts inside, each of them goes on at
1 / (1 + growth * (n - 1)) of the speed it has alone.  With growth 0 this is a queue before `rows` servers, with
growth 1 and any number of rows plain processor sharing: batching lies between.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Distribution:
    """Of a text's seconds, by its quantiles; straight lines between them."""

    probabilities: tuple[float, ...]  # from 0.0 to 1.0
    seconds: tuple[float, ...]

    def __post_init__(self) -> None:
        assert len(self.probabilities) == len(self.seconds) >= 2
        assert (self.probabilities[0], self.probabilities[-1]) == (0.0, 1.0)

    @property
    def mean_s(self) -> float:
        """The area under the lines."""
        return float(np.trapezoid(self.seconds, self.probabilities))

    def at(self, probabilities: Floats) -> Floats:
        """The quantiles, of uniform numbers a sample."""
        return np.interp(probabilities, self.probabilities, self.seconds)

    def times(self, factors: Sequence[float]) -> "Distribution":
        """Each quantile times its factor, and still in order."""
        product = np.multiply(self.seconds, factors)
        return Distribution(self.probabilities, tuple(np.maximum.accumulate(product).tolist()))


@dataclass(frozen=True, slots=True)
class Replica:
    """A server whose load is only that of the simulation."""

    work: Distribution  # seconds that a text takes alone
    rows: int  # texts that go on at the same time; more wait
    growth: float  # of a step for each further text in it, as a part of a step with one

    @property
    def capacity(self) -> float:
        """Texts a second when it is full."""
        return self.rows * self.speed(self.rows) / self.work.mean_s

    def speed(self, texts: int) -> float:
        """Of each of so many texts that go on, as a part of its speed alone."""
        return 1.0 / (1.0 + self.growth * (texts - 1))


def replica_of(work: Distribution, capacity: float, sharing: float) -> Replica:
    """The replica with this capacity.

    Args:
        capacity: texts a second; at least one text after the other.
        sharing: how many times longer a text takes in a full replica than alone.  At 1 texts only wait for a free row;
            with more, there are more rows, which slow each other down.
    """
    together = max(1.0, capacity * work.mean_s)  # texts inside that are needed for this, were there no slowing down
    rows = int(np.ceil(together * max(1.0, sharing) - 1e-9))
    growth = (rows / together - 1.0) / (rows - 1) if rows > 1 else 0.0
    return Replica(work, rows, growth)
