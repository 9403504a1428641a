"""What a message says of a package that is missing: its own name, and never Dragoman's, which is on no index."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from service.extras import how_to_install
from service.tools.bulk import formats, workers

UNUSED: Any = None  # the package is missed before anything is looked at


def run_on_ray() -> None:
    workers.translate_on_ray(UNUSED, UNUSED, UNUSED, None, 1, UNUSED)


@pytest.mark.parametrize(
    ("module", "use", "message"),
    [
        (
            "pyarrow.parquet",
            lambda: list(formats.Parquet("a", "b").plan(Path("a.parquet"), 1)),
            "Parquet files need pyarrow: ",
        ),
        ("ray", run_on_ray, "--engine ray needs Ray: "),
    ],
)
def test_missing_package_is_named_with_its_extra(
    monkeypatch: pytest.MonkeyPatch, module: str, use: Callable[[], object], message: str
):
    extra = {"pyarrow.parquet": "bulk", "ray": "ray"}[module]
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setitem(sys.modules, module, None)

    with pytest.raises(ValueError) as refused:
        use()

    assert str(refused.value) == message + how_to_install(extra)
