"""Facts of the whole tree: package names, declared dependencies, the size of the repository, the wheel.

Which part may import which is import-linter's, in pyproject.toml.
"""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("protos", "model", "export", "service")
MODEL_FOR_SERVING = {
    "model.config",
    "model.tokenizer",
    "model.language_codes",
    "model.languages",
    "model.manifest",
    "model.bundle",
    "model.shortlist",
}
ON_REQUEST = (
    "bulk",
    "documents",
    "otel",
    "ray",
    "sign",
)  # extras whose libraries are imported where they are used
GENERATOR = "protos.generate"  # for developers only
RUNTIME = "onnxruntime"  # comes by an extra
TRACING = "opentelemetry"  # likewise; a namespace that several distributions share
# `google` is shared by two distributions; which module is whose is not recorded anywhere.
GOOGLE = {"google.protobuf": "protobuf", "google.rpc": "googleapis-common-protos"}

needs_checkout = pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a git checkout")


def tracked_files() -> list[Path]:
    """The files that git has or would take in."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listing = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True).stdout
    return [path for name in listing.split("\0") if name and (path := ROOT / name).is_file()]


@cache
def imports_in(path: Path) -> tuple[ast.Import | ast.ImportFrom, ...]:
    """Return the imports of a file, wherever in it."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return tuple(node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom))


@needs_checkout
def test_the_tests_are_no_package_and_no_two_of_their_modules_share_a_name():
    names = [path.name for path in tracked_files() if path.name.startswith("test_")]

    assert sorted(names) == sorted(set(names))
    assert [
        path for path in tracked_files() if path.name == "__init__.py" and path.is_relative_to(ROOT / "tests")
    ] == []


@needs_checkout
def test_no_python_file_of_ours_is_imported_without_its_package():
    """`import model` would run whatever directory of that name comes first on the path."""
    bare = re.compile(rf"^ *import ({'|'.join(NAMES)})( as|,| *$)", re.MULTILINE)

    assert [path for path in tracked_files() if path.suffix == ".py" and bare.search(path.read_text("utf-8"))] == []


def served_modules() -> Iterator[tuple[str, Path]]:
    """Yield names and files of all modules that a server or a client can load."""
    for path in tracked_files():
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        if path.suffix == ".py" and name != GENERATOR and name.startswith(("service.", "protos.", *MODEL_FOR_SERVING)):
            yield name, path


def imported_modules(path: Path) -> set[str]:
    """Return dotted names of everything that a file imports, wherever in the file."""
    names: set[str] = set()
    for node in imports_in(path):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def distribution_of(module: str, providers: Mapping[str, Sequence[str]]) -> str:
    """Return the normalised name of the distribution that provides a module."""
    if module.startswith("google."):
        return GOOGLE[".".join(module.split(".")[:2])]
    top = module.partition(".")[0]
    (name,) = set(providers.get(top, [top]))  # one that is not installed, of an extra, has its own name
    return re.sub(r"[-_.]+", "-", name).lower()


@needs_checkout
def test_what_serving_imports_is_declared_and_what_is_declared_is_imported():
    imported = {name for _, path in served_modules() for name in imported_modules(path)}
    others = {
        name for name in imported if name.partition(".")[0] not in {*NAMES, RUNTIME, TRACING, *sys.stdlib_module_names}
    }
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

    declared = {re.split("[<>=]", requirement)[0] for requirement in project["dependencies"]}
    extras = project["optional-dependencies"]
    on_request = {re.split(r"[\[<>=]", requirement)[0] for name in ON_REQUEST for requirement in extras.get(name, ())}
    providers = metadata.packages_distributions()
    assert {distribution_of(name, providers) for name in others} - on_request == declared
    tracing = {name for name, path in served_modules() for part in imported_modules(path) if part.startswith(TRACING)}
    assert tracing == {"service.telemetry.traces"}  # an extra of its own
