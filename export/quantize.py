"""Eight-bit integers for weights and activations, and the numbers that turn them back.

Weights: symmetric, one scale for each output channel.  Activations: one scale and zero point for a whole layer, fixed
at export by calibration, so that a sentence's numbers do not depend on what else is in the batch.
"""

from dataclasses import dataclass, field

import numpy as np

from export.builder import Array

WEIGHT_LIMIT = 127  # symmetric: -128 is left out
ACTIVATION_LEVELS = 255
HISTOGRAM_BINS = 8_192
SMALLEST_SCALE = 1e-8  # of a channel whose weights are all zero


@dataclass(frozen=True, slots=True)
class QuantizedWeight:
    """weight [O, I] ~ integers [O, I] * scales [O, 1]."""

    integers: Array  # int8
    scales: Array  # float32 [O]


def quantize_weight(weight: Array) -> QuantizedWeight:
    """Each row's largest magnitude becomes 127: [O, I] float -> int8 and [O] scales."""
    scales = np.maximum(np.abs(weight).max(axis=1) / WEIGHT_LIMIT, SMALLEST_SCALE).astype(np.float32)
    integers = np.clip(np.rint(weight / scales[:, None]), -WEIGHT_LIMIT, WEIGHT_LIMIT)
    return QuantizedWeight(integers.astype(np.int8), scales)


@dataclass(frozen=True, slots=True)
class ActivationScale:
    """value ~ (integer - zero_point) * scale, integer in 0 .. 255."""

    scale: float
    zero_point: int

    @classmethod
    def of_range(cls, low: float, high: float) -> "ActivationScale":
        """The finest scale that covers [low, high] and represents zero exactly."""
        low, high = min(low, 0.0), max(high, 0.0)
        scale = max((high - low) / ACTIVATION_LEVELS, SMALLEST_SCALE)
        return cls(scale, int(np.clip(np.rint(-low / scale), 0, ACTIVATION_LEVELS)))


@dataclass
class Histogram:
    """How often each value occurred, in equal bins over [-limit, limit]; the limit doubles when a value exceeds it."""

    limit: float = 1.0
    counts: Array = field(default_factory=lambda: np.zeros(HISTOGRAM_BINS, np.int64))
    low: float = np.inf
    high: float = -np.inf

    def add(self, values: Array) -> None:
        """Count values of any shape."""
        self.low, self.high = min(self.low, float(values.min())), max(self.high, float(values.max()))
        while max(-self.low, self.high) > self.limit:
            self._double_limit()
        counts, _ = np.histogram(values, bins=HISTOGRAM_BINS, range=(-self.limit, self.limit))
        self.counts += counts

    def range(self, coverage: float) -> tuple[float, float]:
        """The range that leaves out (1 - coverage) of the values, half on each side; coverage 1 is [min, max]."""
        if coverage >= 1.0:
            return self.low, self.high
        share = np.cumsum(self.counts) / self.counts.sum()
        outside = (1.0 - coverage) / 2
        first, last = np.searchsorted(share, [outside, 1.0 - outside])
        edges = np.linspace(-self.limit, self.limit, HISTOGRAM_BINS + 1)
        return max(self.low, float(edges[first])), min(self.high, float(edges[last + 1]))

    def _double_limit(self) -> None:
        """[-limit, limit] becomes the middle half: bins merge in pairs, with empty ones on both sides."""
        merged = self.counts.reshape(-1, 2).sum(axis=1)
        self.counts = np.pad(merged, HISTOGRAM_BINS // 4)
        self.limit *= 2
