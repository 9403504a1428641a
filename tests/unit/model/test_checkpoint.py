"""Checkpoints, recipes and curves on disk: whole or not there, and what is damaged is named."""

from pathlib import Path

import pytest

from model.checkpoint import (
    load_checkpoint,
    save_checkpoint,
    step_directories,
)
from tests.fakes.tiny_model import write_tiny_checkpoint


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return write_tiny_checkpoint(tmp_path / "tiny")


def test_a_half_written_checkpoint_is_not_seen(checkpoint, tmp_path):
    (tmp_path / ".step-00000002.partial").mkdir()
    save_checkpoint(tmp_path / "step-00000001", load_checkpoint(checkpoint))
    (tmp_path / "step-00000003").mkdir()

    assert [path.name for path in step_directories(tmp_path)] == ["step-00000001"]


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("model.safetensors", b"\x10", "header"),
        ("config.json", b"{", "Expecting property name"),
        ("config.json", b'{"depth": 3}', "unexpected keyword argument 'depth'"),
        ("meta.json", b"{}", "missing 3 required"),
    ],
)
def test_a_damaged_checkpoint_is_named(checkpoint, name, content, why):
    (checkpoint / name).write_bytes(content)

    with pytest.raises(ValueError, match=rf"checkpoint .*average is damaged: .*{why}"):
        load_checkpoint(checkpoint)
