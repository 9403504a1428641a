"""Tests of the engine run with either runner of a CPU."""

import sys
from typing import Any

import pytest

from model.bundle import Bundle
from service.engine.choice import unsupported
from service.engine.cpu.native.build import BuildError, build
from service.engine.cpu.native.runner import NativeRunner


@pytest.fixture(scope="session")
def native_library() -> None:
    """Have the library built, or skip what needs it."""
    try:
        build()
    except BuildError as error:
        pytest.skip(str(error))


def native_runner(bundle: Bundle, *, precision: str | None = None, **_: Any) -> NativeRunner:
    """The native engine of a bundle, or a skipped test if it does not know such a model."""
    if reason := unsupported(bundle, precision):
        pytest.skip(f"the native engine does not know {reason}")
    return NativeRunner(bundle, precision=precision)


@pytest.fixture(params=["onnx", "native"])
def each_engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the test once more with what its module, or `model_pair`, calls CpuRunner being the native engine."""
    if request.param == "native":
        request.getfixturevalue("native_library")
        modules = [request.module, sys.modules.get("tests.parity.model_pair")]
        for module in [module for module in modules if hasattr(module, "CpuRunner")]:
            monkeypatch.setattr(module, "CpuRunner", native_runner)
