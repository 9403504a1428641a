"""Tests that need a GPU; without one they are skipped, with what is missing as the reason.

GPU_BUNDLE names a bundle with fp32 and fp16 graphs; without it, the included model is exported, which needs PyTorch.
"""

import os
from collections.abc import Iterable
from pathlib import Path

import pytest

from model.bundle import Bundle, default_bundle_dir
from service.engine.cuda.session import find_problem


def pytest_collection_modifyitems(items: Iterable[pytest.Item]) -> None:
    """Mark the tests of this directory, and skip them where there is no GPU."""
    here = [item for item in items if "tests/gpu/" in item.path.as_posix()]
    problem = find_problem() if here else ""
    for item in here:
        item.add_marker(pytest.mark.gpu)
        if problem:
            item.add_marker(pytest.mark.skip(reason=f"no GPU: {problem}"))


@pytest.fixture(scope="session")
def both(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """en-de with graphs for a GPU and, to compare with, float32 ones."""
    if given := os.environ.get("GPU_BUNDLE"):
        return Bundle.load(Path(given))
    from export.onnx_export import ExportOptions, Samples, export_bundle
    from export.source import ExportSource

    options = ExportOptions(precisions=("fp32", "fp16"), keep_weights=False)
    directory = tmp_path_factory.mktemp("gpu") / "en-de"
    return export_bundle(ExportSource.load(default_bundle_dir()), directory, options, Samples())
