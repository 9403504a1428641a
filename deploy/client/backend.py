"""Builds dragoman-client with setuptools, from the modules of the repository that the server's own client needs.

    service/client/client.py    ->  dragoman_client/service/client/client.py
    from service.records import ->  from dragoman_client.service.records import

Copies live in the package alone, so that the client can stand in one environment with the server.
"""

import ast
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from setuptools import build_meta

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PACKAGE = "dragoman_client"
OURS = ("service", "protos", "model")
FIRST = ("service.client", "service.errors", "service.records")  # what users import; the others follow
DATA = ("protos/service_config.json", "protos/translation_pb2.pyi")

INIT = '''"""Client of Dragoman, a self-hosted translation service."""

from dragoman_client.service import errors, records
from dragoman_client.service.client import *  # noqa: F403 - all that it exports
from dragoman_client.service.client import __all__ as _names

__all__ = [*_names, "errors", "records"]
'''


def write_package(directory: Path) -> Path:
    """Write the package under a directory, and return its folder."""
    package = directory / PACKAGE
    shutil.rmtree(package, ignore_errors=True)
    for source in _closure(FIRST):
        _copy(source, package / source.relative_to(ROOT))
    for name in DATA:
        _copy(ROOT / name, package / name)
    for folder in {file.parent for file in package.rglob("*.py")}:
        (folder / "__init__.py").touch()
    (package / "__init__.py").write_text(INIT, encoding="utf-8")
    (package / "py.typed").touch()
    return package


def _closure(modules: tuple[str, ...]) -> set[Path]:
    """Return the files of these modules and of all modules of ours that they import."""
    found: set[Path] = set()
    open_ends = [_file_of(module) for module in modules]
    while open_ends:
        file = open_ends.pop()
        if file is not None and file not in found:
            found.add(file)
            open_ends += [_file_of(name) for name in _imported(file)]
    return found


def _imported(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def _file_of(module: str) -> Path | None:
    """Return the file of a module of ours; None if it is none."""
    if module.partition(".")[0] not in OURS:
        return None
    path = ROOT / module.replace(".", "/")
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)


def _copy(source: Path, target: Path) -> None:
    text = source.read_text(encoding="utf-8")
    names = "|".join(OURS)
    text = re.sub(rf"^(\s*)from ({names})\b", rf"\1from {PACKAGE}.\2", text, flags=re.MULTILINE)
    text = re.sub(rf'files\("({names})"\)', rf'files("{PACKAGE}.\1")', text)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")


def build_wheel(wheel_directory: str, *arguments: Any) -> str:
    """Build the wheel, as PEP 517 has it."""
    write_package(HERE)
    try:
        name: str = build_meta.build_wheel(wheel_directory, *arguments)
    finally:
        shutil.rmtree(HERE / PACKAGE)
        shutil.rmtree(HERE / "build", ignore_errors=True)
    return name


def build_sdist(_: str, __: Any = None) -> str:
    """Refuse: a source distribution would be without the repository that the sources are in."""
    raise RuntimeError("build a wheel: the sources of dragoman-client are the repository")
