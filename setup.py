"""Compiles the native engine into the wheel, which is then for one platform.  Without a compiler the wheel has none.

Everything else about the package stands in pyproject.toml.
"""

import platform
import re
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT))

from service.engine.cpu.native.build import BuildError, build, library_path  # noqa: E402


class BuildWithEngine(build_py):
    """Adds the library to the package."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        try:
            library = build()
        except BuildError as error:
            print(f"without the native engine: {error}", file=sys.stderr)
            return
        target = Path(self.build_lib) / library.relative_to(ROOT)
        self.mkpath(str(target.parent))
        self.copy_file(str(library), str(target))


class PlatformWheel(bdist_wheel):
    """Names the wheel after the oldest glibc that has all functions that the library calls (PEP 600)."""

    def get_tag(self) -> tuple[str, str, str]:
        if not library_path().is_file():
            return super().get_tag()
        minors = [int(minor) for minor in re.findall(rb"GLIBC_2\.(\d+)", library_path().read_bytes())]
        if not minors:
            return "py3", "none", super().get_tag()[2]
        return "py3", "none", f"manylinux_2_{max(minors)}_{platform.machine()}"


setup(cmdclass={"build_py": BuildWithEngine, "bdist_wheel": PlatformWheel})
