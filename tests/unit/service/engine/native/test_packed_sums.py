"""Weights are made smaller where products of them could overflow 16 bits, and nowhere else."""

import numpy as np
import pytest

from service.engine.cpu.native.pack import fit_sums, pack_integers

MOST_SUM = 258  # of AVX2: 127 times as much fits 16 bits
SUMMED_INPUTS = 32  # whose products are summed in 16 bits, pairs of each four apart


def greatest_sum(column: np.ndarray) -> int:
    """What weights of one sign sum to at most, one weight after the other."""
    greatest = 0
    for first in range(0, len(column), SUMMED_INPUTS):
        for pair in (0, 2):
            summed = [
                w for k, w in enumerate(column[first : first + SUMMED_INPUTS].tolist()) if k % 4 in (pair, pair + 1)
            ]
            greatest = max(greatest, sum(w for w in summed if w > 0), -sum(w for w in summed if w < 0))
    return greatest


def unpacked(packed: np.ndarray) -> np.ndarray:
    return packed.transpose(1, 3, 0, 2).reshape(packed.shape[1] * 4, -1)


@pytest.mark.parametrize("num_inputs", [16, 48, 256])  # the last sum of some has fewer products
def test_no_sum_of_products_can_overflow_and_weights_keep_their_proportions(num_inputs):
    rng = np.random.default_rng(num_inputs)
    weights = np.clip(rng.normal(0.0, 40.0, (num_inputs, 48)), -127, 127).astype(np.int8)
    weights[:, 0], weights[:, 1], weights[:, 2] = 127, -127, 0  # the worst there are, and nothing

    packed = pack_integers(weights)
    factors = fit_sums(packed, MOST_SUM).reshape(-1)

    found = unpacked(packed)
    assert max(greatest_sum(column) for column in found.T) <= MOST_SUM
    assert np.abs(found - weights * factors).max() <= 0.5001
    needed = np.array([min(1.0, MOST_SUM / max(1, greatest_sum(column))) for column in weights.T])
    assert (factors > 0.9 * needed).all()  # no smaller than rounding makes necessary


def test_weights_whose_sums_fit_stay_as_they_are():
    weights = np.tile(np.array([[127], [-127], [0], [3]], np.int8), (64, 16))[:16]

    packed = pack_integers(weights)
    factors = fit_sums(packed, 4 * 127)

    assert (unpacked(packed) == weights).all()
    assert (factors == 1.0).all()
