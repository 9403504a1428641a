"""When a bulk run is killed: at moments that a seed draws, and once inside a write.  Pure."""

import random
from dataclasses import dataclass
from itertools import pairwise

# The last kill comes when this part of the undisturbed run's time has been worked: starts and what is done twice take
# time of their own, so there is still something to do then.
LAST = 0.85
MOST_WRITES = 3  # a process that is killed in a write is killed in one of its first


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """One of a process; exactly one of both is given."""

    after_s: float | None = None  # from the start of the process
    in_write: int | None = None  # of which of the parts that the process writes, from 1

    def __post_init__(self) -> None:
        assert (self.after_s is None) != (self.in_write is None)

    def __str__(self) -> str:
        return f"after {self.after_s:.2f} s" if self.after_s is not None else f"in write {self.in_write} of a part"


def planned(seed: int, number: int, undisturbed_s: float) -> list[Kill]:
    """So many kills, one of them inside a write; the others cut the undisturbed run's time at random points."""
    draw = random.Random(seed)
    moments = sorted(draw.uniform(0.0, LAST * undisturbed_s) for _ in range(number - 1))
    kills = [Kill(after_s=later - earlier) for earlier, later in pairwise([0.0, *moments])]
    kills.insert(draw.randrange(number), Kill(in_write=draw.randint(1, MOST_WRITES)))
    return kills
