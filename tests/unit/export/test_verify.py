"""A graph that differs from the model is told from one that does not, and refused."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch

from export.builder import Array
from export.verify import TOLERANCES, Parity, ParityError, compare, seeded_samples
from tests.fakes.tiny_model import TinyGraphs, tiny_graphs, tiny_model

EQUAL = Parity(largest_difference=0.0, mean_difference=0.0, same_best_token=1.0, positions=10)


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> TinyGraphs:
    return tiny_graphs(tmp_path_factory.mktemp("graphs"), "fp32")


def test_a_number_that_is_none_is_found_in_the_first_sample_too(
    graphs: TinyGraphs, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples, forced = seeded_samples(graphs.config), graphs.runner.forced_log_probs

    def spoiled(source: Array, source_lengths: Array, targets: Array) -> Iterator[Array]:
        for log_probs in forced(source, source_lengths, targets):
            yield np.full_like(log_probs, np.nan) if source is samples[0].source else log_probs

    monkeypatch.setattr(graphs.runner, "forced_log_probs", spoiled)
    parity = compare(graphs.runner, graphs.model, samples)

    with pytest.raises(ParityError, match="largest_difference is nan"):
        parity.require("int8", TOLERANCES["int8"])


@pytest.mark.parametrize(
    "parameter",
    [
        "embedding.weight",
        "encoder.layers.1.self_attention.key.weight",
        "decoder.layers.1.cross_attention.key.weight",
        "decoder.layers.1.feed_forward.inner.bias",
    ],
)
def test_one_wrong_parameter_is_refused(graphs: TinyGraphs, parameter: str) -> None:
    other = tiny_model(graphs.config)
    with torch.no_grad():
        other.get_parameter(parameter).mul_(1.05)
    parity = compare(graphs.runner, other, seeded_samples(graphs.config))

    with pytest.raises(ParityError, match=r"fp32: largest_difference is 0\.\d+ log-probability, at most 0\.001 is"):
        parity.require("fp32", TOLERANCES["fp32"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"largest_difference": 0.002}, "largest_difference is 0.002"),
        ({"largest_difference": float("nan")}, "largest_difference is nan"),
        ({"mean_difference": 0.01}, "mean_difference is 0.01"),
        ({"same_best_token": 0.5}, "same at 50.0% of 10 positions, at least 99.0%"),
    ],
)
def test_each_number_over_its_limit_is_refused(changes: dict[str, float], message: str) -> None:
    EQUAL.require("fp32", TOLERANCES["fp32"])

    with pytest.raises(ParityError, match=message):
        replace(EQUAL, **changes).require("fp32", TOLERANCES["fp32"])  # type: ignore[arg-type]
