"""A graph that differs from the model is refused; the files of a bundle's graphs hold every tensor once."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch

from export.builder import Array
from export.graphs import DECODER_STEP_NAME, ENCODER_NAME
from export.scorer import SCORER_NAME
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


@pytest.mark.parametrize(("precision", "bytes_each"), [("fp32", 4), ("int8", 1)])
def test_no_large_tensor_is_stored_twice(tmp_path: Path, precision: str, bytes_each: int) -> None:
    """Encoder, decoder and projection read one embedding table, and the scorer stores nothing large of its own."""
    graphs = tiny_graphs(tmp_path, precision)
    places: dict[tuple[int, int], set[str]] = {}
    for name in (ENCODER_NAME, DECODER_STEP_NAME, SCORER_NAME):
        for tensor in onnx.load(graphs.directory / name, load_external_data=False).graph.initializer:
            if tensor.data_location == onnx.TensorProto.EXTERNAL:
                entries = {entry.key: entry.value for entry in tensor.external_data}
                places.setdefault((int(entries["offset"]), int(entries["length"])), set()).add(tensor.name)

    assert all(len(names) == 1 for names in places.values())
    tables = [length for (_, length), names in places.items() if any("embedding" in name for name in names)]
    assert tables == [graphs.config.num_logits * graphs.config.d_model * bytes_each]
    assert (graphs.directory / SCORER_NAME).stat().st_size < 64_000
