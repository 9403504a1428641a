"""The Python of docs/clients.md, run against the real server."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.server_process import ServerProcess, start

PAGE = Path(__file__).resolve().parents[2] / "docs" / "clients.md"

pytestmark = pytest.mark.skipif(not PAGE.exists(), reason="not in a checkout")


@pytest.fixture
def included(tmp_path: Path) -> Iterator[ServerProcess]:
    """A server of the included models, as `dragoman serve` starts it."""
    server = start(None, tmp_path, DRAGOMAN_ENGINE__RUNNER_FACTORY="service.engine.runner:create_runner")
    yield server
    server.process.kill()
    server.process.wait()


def test_the_example_in_python_translates(included):
    (example,) = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    program = example.replace("127.0.0.1:50051", included.address)

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 0, done.stderr
    german, english, *streamed = done.stdout.splitlines()
    assert "Katze" in german
    assert "cat" in english
    assert sorted(line.split()[0] for line in streamed) == ["0", "1"]
