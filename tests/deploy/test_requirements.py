"""What the images install: all that pyproject.toml asks for, in versions that it takes.

The wheel is installed with `--no-deps`, so that nothing else would tell.
"""

import re
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.fakes.server_process import ROOT

DEPLOY = ROOT / "deploy"
PYTHONS = ("3.11", "3.12", "3.13")  # BASE of the Dockerfiles may have any of them

pytestmark = pytest.mark.skipif(not DEPLOY.exists(), reason="not in a checkout")


def asked_for(variant: str) -> list[Requirement]:
    """By the project, with the extras that `deploy/lock` names for this image; by its build, for `build`."""
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    if variant == "build":
        return [Requirement(line) for line in pyproject["build-system"]["requires"]]
    lock = (DEPLOY / "lock").read_text(encoding="utf-8")
    (line,) = re.findall(rf"^compile pyproject.toml (.*) -o deploy/requirements-{variant}.txt$", lock, re.MULTILINE)
    extras = [pyproject["project"]["optional-dependencies"][name] for name in re.findall(r"--extra (\w+)", line)]
    return [Requirement(text) for group in (pyproject["project"]["dependencies"], *extras) for text in group]


def pinned(variant: str, python: str) -> dict[str, str]:
    """Version by name, of what is installed with this Python on Linux."""
    text = (DEPLOY / f"requirements-{variant}.txt").read_text(encoding="utf-8")
    pins = [Requirement(line.removesuffix("\\")) for line in re.findall(r"^\w.*$", text, re.MULTILINE)]
    here = {"python_version": python, "python_full_version": f"{python}.0", "sys_platform": "linux"}
    return {
        canonicalize_name(pin.name): str(pin.specifier).removeprefix("==")
        for pin in pins
        if pin.marker is None or pin.marker.evaluate(here)
    }


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("variant", ["cpu", "gpu", "build"])
def test_every_dependency_is_pinned_in_a_version_that_the_project_takes(variant, python):
    """Otherwise: `make lock`."""
    wanted, pins = asked_for(variant), pinned(variant, python)

    assert wanted
    assert [str(one) for one in wanted if canonicalize_name(one.name) not in pins] == []
    assert [str(one) for one in wanted if not one.specifier.contains(pins[canonicalize_name(one.name)])] == []
