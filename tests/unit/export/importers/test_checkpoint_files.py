"""Files of tensors that are damaged, or claim what they do not have: read or refused in one line, in bounded memory."""

import json
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save

from export.importers.checkpoint import CheckpointWeights
from export.importers.foreign import ForeignModelError

SHAPES = {"a": (4, 6), "b": (6,), "c": (3, 2, 2)}
GOOD = save({name: torch.ones(shape, dtype=torch.float16) for name, shape in SHAPES.items()})


def read(directory: Path) -> None:
    weights = CheckpointWeights(directory)
    for name, shape in SHAPES.items():
        assert weights.take(name, shape).shape == shape
    weights.require_all_taken()


def refusal(directory: Path) -> str:
    with pytest.raises(ForeignModelError) as refused:
        read(directory)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def header(claims: dict[str, Any]) -> bytes:
    content = json.dumps(claims).encode()
    return struct.pack("<Q", len(content)) + content + bytes(64)


@pytest.mark.parametrize(
    "content",
    [
        struct.pack("<Q", 1 << 60) + b"{}",
        header({"a": {"dtype": "F32", "shape": [1 << 40, 1 << 40], "data_offsets": [0, 64]}}),
        header({"a": {"dtype": "F32", "shape": [4, 4], "data_offsets": [0, 1 << 50]}}),
        header({"a": {"dtype": "F32", "shape": [4, 4], "data_offsets": [64, 0]}}),
        header({f"t{number}": {} for number in range(10_000)}),
    ],
    ids=["header", "shape", "end", "order", "many"],
)
def test_claims_beyond_the_file_are_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "model.safetensors").write_bytes(content)

    assert "is no safetensors file" in refusal(tmp_path)


@pytest.mark.parametrize("name", ["../other.safetensors", "/etc/passwd", "sub/model.safetensors", "missing"])
def test_an_index_that_names_files_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "other.safetensors").write_bytes(GOOD)
    (tmp_path / "model" / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": name}}))

    assert "which is no file beside it" in refusal(tmp_path / "model")
