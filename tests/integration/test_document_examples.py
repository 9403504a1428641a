"""The Python of docs/clients.md, run against the real server."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "clients.md"

pytestmark = pytest.mark.skipif(not PAGE.exists(), reason="not in a checkout")


def test_the_example_in_python_translates(server):
    (example,) = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    program = example.replace("127.0.0.1:50051", server.address)

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 0, done.stderr
    first, *streamed = done.stdout.splitlines()
    assert first == "The cat sleeps."  # the echo runner's translation
    assert sorted(streamed) == ["0 One.", "1 Two."]
