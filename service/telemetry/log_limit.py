"""How often a line that somebody outside can cause may enter the log."""

import time
from collections.abc import Callable


class LogLimit:
    """Lets `max_lines` through in each period and counts the others.  Only for one thread."""

    def __init__(self, *, max_lines: int, period_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._max_lines = max_lines
        self._period_s = period_s
        self._clock = clock
        self._period_began = clock()
        self._num_lines = 0
        self._num_left_out = 0

    def take(self) -> int | None:
        """How many lines were left out before this one; None: leave this one out too."""
        now = self._clock()
        if now - self._period_began >= self._period_s:
            self._period_began, self._num_lines = now, 0
        if self._num_lines >= self._max_lines:
            self._num_left_out += 1
            return None
        self._num_lines += 1
        left_out, self._num_left_out = self._num_left_out, 0
        return left_out
