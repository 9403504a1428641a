"""Time limits are kept by a clock that nobody can set: the wall clock is read only where people read the result."""

import ast
from pathlib import Path

SERVICE = Path(__file__).parents[2] / "service"
WALL_CLOCKS = {"time", "time_ns", "now", "utcnow", "today", "localtime", "gmtime"}
MODULES = {"time", "datetime", "date"}
# A gauge in Unix time, the times of spans, a date in the head of a file, the days on which a key expires and a glossary
# was made.
MAY_READ = {
    "api/auth.py",
    "cli/keys.py",
    "translate/glossaries.py",
    "telemetry/metrics.py",
    "telemetry/traces.py",
}


def reads_wall_clock(file: Path) -> bool:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    attributes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr in WALL_CLOCKS]
    return any(isinstance(node.value, ast.Name) and node.value.id in MODULES for node in attributes)


def test_no_deadline_rests_on_the_wall_clock():
    readers = {file.relative_to(SERVICE).as_posix() for file in SERVICE.rglob("*.py") if reads_wall_clock(file)}

    assert readers <= MAY_READ
