"""The table of promises and the tests that hold them fit together."""

import re
from pathlib import Path

from tests.reliability.promises import ELSEWHERE, PROMISES

TESTS = Path(__file__).resolve().parents[1]
MARKER = re.compile(r"mark\.promise\(([^)]*)\)")


def test_every_row_that_a_test_names_is_a_promise():
    named = set(ELSEWHERE)
    for file in TESTS.rglob("test_*.py"):
        for rows in MARKER.findall(file.read_text("utf-8")):
            named.update(re.findall(r'"(\w+)"', rows))

    assert named > {"A1", "I9"}
    assert named - PROMISES.keys() == set()
