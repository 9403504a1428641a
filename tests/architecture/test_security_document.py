"""SECURITY.md names a test for each promise: each of them exists."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "SECURITY.md"

pytestmark = pytest.mark.skipif(not DOCUMENT.exists(), reason="not in a checkout")


def promises() -> list[str]:
    """The rows of the table "What is promised", without its head."""
    section = DOCUMENT.read_text(encoding="utf-8").partition("## What is promised")[2].partition("\n## ")[0]
    return [line for line in section.splitlines() if line.startswith("|")][2:]


def named_tests() -> Iterator[tuple[Path, str]]:
    """File and name; a row that names none goes on in the file of the one before."""
    file = ""
    for row in promises():
        for named, test in re.findall(r"`(tests/\S+\.py)?::(\w+)`", row):
            file = named or file
            yield ROOT / file, test


def test_every_promise_names_a_test():
    assert len(promises()) > 15
    assert [row for row in promises() if "::test_" not in row] == []


def test_every_named_test_exists():
    missing = [(file.name, test) for file, test in named_tests() if f"def {test}(" not in file.read_text("utf-8")]

    assert missing == []
