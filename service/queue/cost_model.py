"""How much work a sentence is, and how long the engines take for it, learnt from what they report.

The unit is the row-step: one hypothesis in one decoder step.  Until something was measured, nothing takes time: an
estimate is there to refuse, and nobody is refused by a guess.  Pure and synchronous.
"""

from dataclasses import dataclass

from service.engine.job import JobResult, SearchParams, StepStats
from service.queue.step_time import StepTime

# What encoding a source token costs in row-steps, once a sentence whatever its beam: 49 - 76 us a token (16 to 128 of
# them) beside 58 - 67 us a row-step (64 to 256 rows), `bench_growth --panel source --panel rows`, the included model.
ENCODER_ROW_STEPS = 1.0
_MEMORY = 32  # sentences over which averages follow
_RATE_MEMORY_S = 1.0  # of an engine's working time over which its rate follows
_LARGEST_SHARE = 0.25  # of one report in that: an engine that was held up for a second is not slow from now on
_ENOUGH = 4  # sentences before averages count
_JOINING_STEPS = 2.0  # the one that runs when a place comes free, and the one in which that is heard of
_MOSTLY = 1.0  # mean absolute deviations above an average
_RARELY = 3.0  # mean absolute deviations below an average


@dataclass(slots=True)
class _Average:
    """A moving average and how far from it values lie."""

    mean: float = 0.0
    deviation: float = 0.0  # absolute, mean
    num_values: int = 0

    def add(self, value: float) -> None:
        self.num_values += 1
        share = 1 / min(self.num_values, _MEMORY)
        if self.num_values > 1:
            self.deviation += share * (abs(value - self.mean) - self.deviation)
        self.mean += share * (value - self.mean)

    @property
    def high(self) -> float:
        """A value that most are below."""
        return self.mean + _MOSTLY * self.deviation

    @property
    def low(self) -> float:
        """A value that few are below."""
        return max(0.0, self.mean - _RARELY * self.deviation)


class CostModel:
    """What one model's engines need for what."""

    def __init__(self) -> None:
        self._ratio = _Average()  # decoder steps per source token
        self._step_s = _Average()  # as a running sentence sees it
        self._num_steps = _Average()  # of a sentence
        self._row_cost = _Average()  # those, and for each row its share of the encoder's work
        self._rows = _Average()  # of a sentence
        self._row_seconds = _Average()  # those, each for as long as the sentence holds it
        self._rate: float | None = None
        self._step_time = StepTime()

    @property
    def is_measured(self) -> bool:
        """Whether seconds of work can be told."""
        return self._rate is not None and self._ratio.num_values >= _ENOUGH

    @property
    def rate(self) -> float | None:
        """Row-steps per second of one engine that has enough to do; None before there was one."""
        return self._rate

    @property
    def step_s(self) -> float:
        """Seconds of a decoder step; 0 before one was measured, as all below."""
        return self._step_s.mean

    @property
    def hold_s(self) -> float:
        """Seconds for which a row is held: of wide beams there are more rows than sentences."""
        return self._row_seconds.mean / self._rows.mean if self._rows.mean else 0.0

    @property
    def row_cost(self) -> float:
        """Row-steps that a sentence is for each of its rows."""
        return self._row_cost.mean

    def cost(self, source_tokens: int, params: SearchParams) -> float:
        """Row-steps of a sentence."""
        ratio = self._ratio.mean if self._ratio.num_values else 1.0
        return ENCODER_ROW_STEPS * source_tokens + params.beam_size * _steps(source_tokens, params, ratio)

    def own_s(self, source_tokens: int, params: SearchParams, rows: float) -> float:
        """Seconds that most such sentences take once they run, as one of so many rows of an engine."""
        if self._ratio.num_values < _ENOUGH:
            return 0.0
        step_s = self._step_time.at(rows) or self._step_s.mean
        return (_steps(source_tokens, params, self._ratio.high) + _JOINING_STEPS) * step_s

    def least_s(self, source_tokens: int, params: SearchParams, rows: float) -> float:
        """Seconds below which it hardly gets through."""
        if self._ratio.num_values < _ENOUGH:
            return 0.0
        step_s = min(self._step_time.at(rows) or self._step_s.low, self._step_s.mean)
        return _steps(source_tokens, params, self._ratio.low) * step_s

    def finished(self, source_tokens: int, params: SearchParams, result: JobResult) -> None:
        """Learn from a sentence."""
        self._ratio.add(result.num_steps / source_tokens)
        self._step_s.add(result.decode_s / max(1, result.num_steps))
        self._num_steps.add(result.num_steps)
        self._row_cost.add(ENCODER_ROW_STEPS * source_tokens / params.beam_size + result.num_steps)
        self._rows.add(params.beam_size)
        self._row_seconds.add(params.beam_size * result.decode_s)

    def reported(self, stats: StepStats) -> None:
        """Learn from an engine's report; about its rate, if it had as much to do as it can hold."""
        self._step_time.worked(stats.loop_steps, stats.rows, stats.busy_s)
        if not stats.waiting_jobs or stats.busy_s <= 0.0 or stats.rows == 0 or not self._num_steps.mean:
            return
        # Encoding comes in lumps: each decoder step counts with the share of it that sentences have on average.
        rate = stats.rows / stats.busy_s * self._row_cost.mean / self._num_steps.mean
        if self._rate is None:
            self._rate = rate
        self._rate += min(_LARGEST_SHARE, stats.busy_s / _RATE_MEMORY_S) * (rate - self._rate)

    def seconds(self, row_steps: float, num_engines: int) -> float:
        """How long so many engines take for so much work; 0 before that was measured."""
        if self._rate is None or not self.is_measured:
            return 0.0
        return row_steps / (self._rate * max(1, num_engines))


def _steps(source_tokens: int, params: SearchParams, ratio: float) -> float:
    """Decoder steps of a sentence, as likely as this ratio is."""
    return min(float(params.max_target_tokens), ratio * source_tokens)
