"""Dragoman as if it had been installed with other models than it has: the same code, and a `pretrained` of its own."""

from pathlib import Path

from model.bundle import PRETRAINED_DIR
from tests.fakes.echo_bundle import write_echo_bundle
from tests.fakes.server_process import ROOT


class Installation:
    """A package `model` of links, which Python finds before ours."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        package = directory / "model"
        package.mkdir(parents=True)
        for module in PRETRAINED_DIR.parent.glob("*.py"):
            (package / module.name).symlink_to(module)

    @property
    def environment(self) -> dict[str, str]:
        """Variables for a process that is to run it."""
        return {"PYTHONPATH": f"{self._directory}:{ROOT}", "PYTHONSAFEPATH": "1"}  # safe: not from where it is started

    def include(self, name: str, *, version: str = "1") -> Path:
        """Add a bundle, or replace it; its languages are those of its name: `en-de`."""
        source, target = name.split("-")
        directory = self._directory / "model" / PRETRAINED_DIR.name / name
        return write_echo_bundle(directory, name=name, version=version, languages=(source, target))
