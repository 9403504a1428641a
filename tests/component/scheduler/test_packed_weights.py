"""The weights that the engines of a model share: who writes them, and what becomes of an engine without."""

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from model.bundle import default_bundle_dir
from service.engine.cpu.native.runner import open_model
from service.engine.wire import EngineSpec
from service.scheduler.engines import PackedWeights
from tests.fakes.native_engine import needs_native_engine

pytestmark = needs_native_engine

SPEC = EngineSpec(bundle_dir=default_bundle_dir(), shared_weights=True)


def file_of(packed: PackedWeights) -> Path:
    assert packed.spec.packed_weights is not None
    return packed.spec.packed_weights


async def test_weights_are_sealed_and_stay_until_they_are_removed():
    packed, others = PackedWeights(SPEC), PackedWeights(SPEC)

    await packed.prepare(60.0)
    await others.prepare(60.0)

    with file_of(packed).open("rb") as file:
        open_model(file)
    with pytest.raises(PermissionError), file_of(packed).open("r+b", buffering=0) as writable:
        writable.write(b"other")
    packed.remove()
    assert file_of(packed).stat().st_size == 0
    assert file_of(others).stat().st_size > 0
    await packed.prepare(60.0)  # a pool may start again
    assert file_of(packed).stat().st_size > 0


@pytest.mark.parametrize(
    ("spec", "timeout_s", "reason"),
    [
        (EngineSpec(bundle_dir=Path("nowhere"), shared_weights=True), 60.0, "BundleError"),
        (SPEC, 0.001, "TimeoutError"),
    ],
)
async def test_a_failure_is_logged_once_and_leaves_an_empty_file(spec, timeout_s, reason):
    packed = PackedWeights(spec)

    with capture_logs() as lines:
        await packed.prepare(timeout_s)

    (line,) = lines
    assert (line["event"], line["log_level"]) == ("engine_warning", "warning")
    assert "weights are not shared between engines" in line["reason"]
    assert reason in line["reason"]
    assert file_of(packed).stat().st_size == 0
