"""The files of a bundle's graphs hold every tensor once.  What the graphs compute is compared in tests/parity."""

from pathlib import Path

import onnx
import pytest

from export.graphs import DECODER_STEP_NAME, ENCODER_NAME
from export.scorer import SCORER_NAME
from tests.fakes.tiny_model import tiny_graphs


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
