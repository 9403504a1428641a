"""Tests that need the libraries of the counted GPU: `make test-gpu-counted`; elsewhere they are skipped."""

import os
from collections.abc import Iterable
from pathlib import Path

import pytest

from model.bundle import Bundle


def pytest_collection_modifyitems(items: Iterable[pytest.Item]) -> None:
    """Skip the tests of this directory where nothing counts."""
    if "COUNTED_GPU_FILE" not in os.environ:
        for item in items:
            if "tests/gpu_counted/" in item.path.as_posix():
                item.add_marker(pytest.mark.skip(reason="nothing is counted here: make test-gpu-counted"))


@pytest.fixture(scope="session")
def bundle() -> Bundle:
    """en-de with graphs for a GPU."""
    return Bundle.load(Path(os.environ["GPU_BUNDLE"]))
