"""How long a decoder step takes with how many rows, learnt from what engines report.

A step costs something whatever it holds, and something for each row: c (1 + g rows).  The shape g is a property of
model and machine and learnt over half a minute of work; the scale c follows what else the machine does.  Pure and
synchronous.
"""

from dataclasses import dataclass

_SHAPE_MEMORY_S = 30.0  # of an engine's working time
_SCALE_MEMORY_S = 0.5
_ENOUGH_S = 0.5  # of working time before there is an answer
_LEAST_SPREAD = 0.1  # of the rows around their mean, as a share of it: from less no shape can be told
_MOST = 3.0  # times what was expected: an engine that was held up once is not slow from now on
_STEEPEST = 1.0  # g: a row costs at most as much as all that does not depend on rows


@dataclass(slots=True)
class _Means:
    """Weighted moving means of rows, seconds a step and their products."""

    memory_s: float
    weight_s: float = 0.0
    rows: float = 0.0
    step_s: float = 0.0
    rows_squared: float = 0.0
    rows_step_s: float = 0.0

    def add(self, rows: float, step_s: float, busy_s: float) -> None:
        self.weight_s = min(self.memory_s, self.weight_s + busy_s)
        share = busy_s / max(self.weight_s, busy_s)
        self.rows += share * (rows - self.rows)
        self.step_s += share * (step_s - self.step_s)
        self.rows_squared += share * (rows * rows - self.rows_squared)
        self.rows_step_s += share * (rows * step_s - self.rows_step_s)


class StepTime:
    """Of one model's engines."""

    def __init__(self) -> None:
        self._long = _Means(_SHAPE_MEMORY_S)
        self._short = _Means(_SCALE_MEMORY_S)
        self._growth = 0.0  # g

    @property
    def is_measured(self) -> bool:
        """Whether there was enough work to tell."""
        return self._long.weight_s >= _ENOUGH_S

    def worked(self, num_steps: int, rows: int, busy_s: float) -> None:
        """Learn from a report.

        Args:
            num_steps: of the engine's loop.
            rows: summed over them.
            busy_s: that they took, encoding what started included.
        """
        if num_steps < 1 or rows < 1 or busy_s <= 0.0:
            return
        mean_rows, step_s = rows / num_steps, busy_s / num_steps
        if self.is_measured:
            step_s = min(step_s, _MOST * self.at(mean_rows))
        for means in (self._long, self._short):
            means.add(mean_rows, step_s, num_steps * step_s)
        self._learn_growth()

    def at(self, rows: float) -> float:
        """Seconds of a step with so many rows; 0 before that can be told."""
        return self._scale * (1.0 + self._growth * rows) if self.is_measured else 0.0

    @property
    def _scale(self) -> float:
        return self._short.step_s / (1.0 + self._growth * self._short.rows)

    def _learn_growth(self) -> None:
        long = self._long
        variance = long.rows_squared - long.rows**2
        if variance < (_LEAST_SPREAD * long.rows) ** 2:
            return
        per_row_s = (long.rows_step_s - long.rows * long.step_s) / variance
        fixed_s = long.step_s - per_row_s * long.rows
        if per_row_s <= 0.0:
            self._growth = 0.0
        else:
            self._growth = min(_STEEPEST, per_row_s / fixed_s) if fixed_s > 0.0 else _STEEPEST
