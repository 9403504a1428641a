"""Estimates the work for a sentence and the time that engines need for it, and learns from what engines report.

The unit of work is the row-step: one hypothesis in one decoder step.  Estimates are 0 until enough was measured:
requests are refused by them, and a guess must refuse nobody.  Pure and synchronous.
"""

from dataclasses import dataclass

from service.engine.wire import Job, JobResult, SearchParams, StepStats

# What encoding a source token costs in row-steps, once a sentence whatever its beam: 49 - 76 us a token (16 to 128 of
# them) beside 58 - 67 us a row-step (64 to 256 rows), `bench_growth --panel source --panel rows`, the included model.
ENCODER_ROW_STEPS = 1.0
_MEMORY = 32  # sentences over which averages follow
_RATE_MEMORY_S = 1.0  # of an engine's working time over which its rate follows
_LARGEST_SHARE = 0.25  # of one report in the rate: an engine that was held up for a second is not slow from now on
_ENOUGH = 4  # sentences before averages count
_JOINING_STEPS = 2.0  # the step that runs when a place comes free, and the step in which the pool hears of it
_MOSTLY = 1.0  # mean absolute deviations above an average
_RARELY = 3.0  # mean absolute deviations below an average

_SHAPE_MEMORY_S = 30.0  # of an engine's working time
_SCALE_MEMORY_S = 0.5
_ENOUGH_S = 0.5  # of working time before the time of a step is told
_LEAST_SPREAD = 0.1  # of the rows around their mean, as a share of it: less spread shows no shape
_MOST = 3.0  # times the expected time of a step: an engine that was held up once is not slow from now on
_STEEPEST = 1.0  # growth: a row costs at most as much as all that does not depend on rows


@dataclass(slots=True)
class Average:
    """A moving average, and the mean distance of the values from it."""

    mean: float = 0.0
    deviation: float = 0.0  # absolute, mean

    def follow(self, value: float, share: float) -> None:
        """Count one more value, with this share in the average: 1 for the first one."""
        distance = value - self.mean
        if share < 1.0:
            self.deviation += share * (abs(distance) - self.deviation)
        self.mean += share * distance


@dataclass(slots=True)
class _Means:
    """Moving means of rows, seconds a step and their products, weighted by working time."""

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
    """How long a decoder step takes with how many rows: scale x (1 + growth x rows).

    The growth depends on model and machine and is learnt over half a minute of work.  The scale follows the other load
    of the machine.
    """

    def __init__(self) -> None:
        self._long = _Means(_SHAPE_MEMORY_S)
        self._short = _Means(_SCALE_MEMORY_S)
        self.growth: float | None = None  # None: no spread of rows was seen so far

    def worked(self, num_steps: int, rows: int, busy_s: float) -> None:
        """Learn from an engine's report.

        Args:
            num_steps: decoder steps; of groups that take turns, only those of the one with the most.
            rows: live rows, summed over the steps.
            busy_s: seconds of the steps, with the encoding of what started in them.
        """
        if num_steps < 1 or rows < 1 or busy_s <= 0.0:
            return
        mean_rows, step_s = rows / num_steps, busy_s / num_steps
        if expected_s := self.at(mean_rows):
            step_s = min(step_s, _MOST * expected_s)
        for means in (self._long, self._short):
            means.add(mean_rows, step_s, num_steps * step_s)
        self._learn_growth()

    def at(self, rows: float) -> float:
        """Seconds of a step with so many rows; 0 before enough work was measured."""
        if self._long.weight_s < _ENOUGH_S:
            return 0.0
        growth = self.growth or 0.0
        scale = self._short.step_s / (1.0 + growth * self._short.rows)
        return scale * (1.0 + growth * rows)

    def _learn_growth(self) -> None:
        long = self._long
        variance = long.rows_squared - long.rows**2
        if variance < (_LEAST_SPREAD * long.rows) ** 2:
            return
        per_row_s = max(0.0, (long.rows_step_s - long.rows * long.step_s) / variance)
        fixed_s = long.step_s - per_row_s * long.rows
        self.growth = min(_STEEPEST, per_row_s / fixed_s) if fixed_s > 0.0 else _STEEPEST


class CostModel:
    """The work and the time that a sentence takes in the engines of one model."""

    def __init__(self) -> None:
        self._num_sentences = 0  # that the averages are of
        self._ratio = Average()  # decoder steps per source token
        self.step_s = Average()  # of a decoder step, as a running sentence sees it
        self._num_steps = 0.0  # of a sentence, on average
        self.row_cost = 0.0  # row-steps of a sentence for each of its rows, its part of the encoder's included; average
        self.rate: float | None = None  # row-steps per second of one engine that has enough to do
        self.step_time = StepTime()

    def cost(self, source_tokens: int, params: SearchParams) -> float:
        """Return the row-steps of a sentence."""
        ratio = self._ratio.mean if self._num_sentences else 1.0
        return ENCODER_ROW_STEPS * source_tokens + params.num_rows * _steps(source_tokens, params, ratio)

    def own_s(self, source_tokens: int, params: SearchParams, rows: float) -> float:
        """Return the seconds that most such sentences take once they run in an engine with so many rows."""
        if self._num_sentences < _ENOUGH:
            return 0.0
        step_s = self.step_time.at(rows) or self.step_s.mean
        ratio = self._ratio.mean + _MOSTLY * self._ratio.deviation
        return (_steps(source_tokens, params, ratio) + _JOINING_STEPS) * step_s

    def least_s(self, source_tokens: int, params: SearchParams, rows: float) -> float:
        """Return the seconds that hardly any such sentence undercuts."""
        if self._num_sentences < _ENOUGH:
            return 0.0
        low_step_s = max(0.0, self.step_s.mean - _RARELY * self.step_s.deviation)
        step_s = min(self.step_time.at(rows) or low_step_s, self.step_s.mean)
        ratio = max(0.0, self._ratio.mean - _RARELY * self._ratio.deviation)
        return _steps(source_tokens, params, ratio) * step_s

    def seconds(self, row_steps: float, num_engines: int) -> float:
        """Return the seconds that so many engines take for so much work."""
        if self.rate is None or self._num_sentences < _ENOUGH:
            return 0.0
        return max(0.0, row_steps) / (self.rate * max(1, num_engines))

    def finished(self, job: Job, result: JobResult) -> None:
        """Learn from a translated sentence."""
        source_tokens, num_steps = len(job.source_ids), result.num_steps
        self._num_sentences += 1
        share = 1 / min(self._num_sentences, _MEMORY)
        self._ratio.follow(num_steps / source_tokens, share)
        self.step_s.follow(result.decode_s / max(1, num_steps), share)
        self._num_steps += share * (num_steps - self._num_steps)
        row_cost = ENCODER_ROW_STEPS * source_tokens / job.params.num_rows + num_steps
        self.row_cost += share * (row_cost - self.row_cost)

    def reported(self, stats: StepStats) -> None:
        """Learn from an engine's report; about the rate only if the engine had as much to do as it can hold."""
        busy_s = stats.busy_s - sum(stats.score_s)  # what is scored takes no steps
        self.step_time.worked(stats.loop_steps, stats.rows, busy_s)
        if not stats.waiting_jobs or busy_s <= 0.0 or stats.rows == 0 or not self._num_steps:
            return
        # Encoding comes in lumps: each decoder step counts with the share of it that sentences have on average.
        rate = stats.rows / busy_s * self.row_cost / self._num_steps
        if self.rate is None:
            self.rate = rate
        self.rate += min(_LARGEST_SHARE, busy_s / _RATE_MEMORY_S) * (rate - self.rate)


def _steps(source_tokens: int, params: SearchParams, ratio: float) -> float:
    """Return the decoder steps of a sentence with so many steps per source token."""
    return min(float(params.max_target_tokens), ratio * source_tokens)
