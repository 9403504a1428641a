"""What is true of the whole tree: whose the package names are, what the server imports, how big the repository is."""

import ast
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("protos", "model", "export", "service")
MAX_TRACKED_BYTES = 35 * 2**20
MODEL_FOR_SERVING = {"model.config", "model.tokenizer", "model.bundle"}
NOT_FOR_SERVING = ("torch", "onnx", "safetensors", "sacrebleu", "matplotlib")

needs_checkout = pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a git checkout")


def tracked_files() -> list[Path]:
    """What git has or would take in."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listing = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True).stdout
    return [path for name in listing.split("\0") if name and (path := ROOT / name).is_file()]


@pytest.mark.parametrize("name", NAMES)
def test_the_name_is_provided_by_our_distribution_alone(name):
    assert set(metadata.packages_distributions()[name]) == {"dragoman"}


@needs_checkout
def test_the_tests_are_no_package():
    assert [path for path in tracked_files() if path.parts[-1] == "__init__.py" and "tests" in path.parts] == []


@needs_checkout
def test_no_two_test_modules_share_a_name():
    names = [path.name for path in tracked_files() if path.name.startswith("test_")]

    assert sorted(names) == sorted(set(names))


@needs_checkout
def test_the_tracked_tree_stays_small():
    sizes = {path: path.stat().st_size for path in tracked_files()}
    largest = sorted(sizes, key=lambda path: -sizes[path])[:5]

    assert sum(sizes.values()) < MAX_TRACKED_BYTES, f"largest: {[str(path) for path in largest]}"


@needs_checkout
def test_no_python_file_of_ours_is_imported_without_its_package():
    """`import model` would run whatever directory of that name comes first on the path."""
    for path in tracked_files():
        if path.suffix == ".py":
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Import):
                    assert not {alias.name for alias in node.names} & set(NAMES), path


@pytest.mark.parametrize(
    "module", ["service.server", "service.client", "service.cli", "service.local", "service.doctor"]
)
def test_the_module_imports_without_the_training_libraries(module):
    """In a fresh interpreter in which those libraries cannot be imported at all."""
    code = (
        "import sys\n"
        f"for name in {NOT_FOR_SERVING!r}: sys.modules[name] = None\n"
        f"import {module}\n"
        f"ours = sorted(name for name in sys.modules if name.startswith('model.'))\n"
        "print(*ours)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert set(done.stdout.split()) <= MODEL_FOR_SERVING
