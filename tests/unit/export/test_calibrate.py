"""A histogram's range leaves out what coverage allows, and every value is counted."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from export.builder import Array
from export.calibrate import HISTOGRAM_BINS, Histogram

finite = st.floats(-1e3, 1e3, width=32)


def test_coverage_leaves_out_the_outliers() -> None:
    histogram = Histogram()
    histogram.add(np.concatenate([np.linspace(-1.0, 1.0, 9_999), [500.0]]))
    low, high = histogram.range(0.999)

    assert histogram.range(1.0) == (-1.0, 500.0)
    assert -1.0 <= low < -0.9
    assert 0.9 < high < 1.2


@given(st.lists(hnp.arrays(np.float32, st.integers(1, 20), elements=finite), min_size=1, max_size=5))
def test_a_histogram_counts_every_value_however_far_it_lies(batches: list[Array]) -> None:
    histogram = Histogram()
    for batch in batches:
        histogram.add(batch)
    values = np.concatenate(batches)
    low, high = histogram.range(0.5)

    assert (histogram.counts.sum(), len(histogram.counts)) == (len(values), HISTOGRAM_BINS)
    assert values.min() <= low <= high <= values.max() + 2 * histogram.limit / HISTOGRAM_BINS
