"""Prepared graphs of the included model, in a directory of the test's own."""

from functools import partial
from pathlib import Path

import pytest

from model.bundle import Bundle, default_bundle_dir
from service.engine.cpu.prepared_graphs import PreparedGraphs
from service.engine.cpu.runner import session_options
from service.engine.instructions import cpu_flags

ENCODER, DECODER = "int8/encoder.onnx", "int8/decoder_step.onnx"


def graphs(
    directory: Path,
    bundle: Bundle | None = None,
    flags: frozenset[str] = cpu_flags(),
    disabled: tuple[str, ...] = ("SkipLayerNormFusion",),
) -> PreparedGraphs:
    """Those of an engine that starts; of the bundle, or of the included model."""
    found = bundle or Bundle.load(default_bundle_dir(), verify=False)
    options = partial(session_options, 1, flags)
    return PreparedGraphs(found, directory, options, flags=flags, disabled_optimizers=disabled)


def entries(directory: Path) -> list[Path]:
    """All that lies there but the lock."""
    return [path for path in directory.iterdir() if path.name != "lock"]


def path_without_sharing(prepared: PreparedGraphs, name: str) -> Path:
    """Where the graph lies that serves instead; the operator is told once."""
    with pytest.warns(RuntimeWarning, match="weights are not shared with other engines: .+"):
        return prepared.path(name)
