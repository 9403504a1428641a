"""Time limits are kept by a clock that nobody can set: the wall clock is read only where people read the result."""

import re
from pathlib import Path

SERVICE = Path(__file__).parents[2] / "service"
READS = re.compile(r"\b(?:time|datetime|date)\.(?:time|time_ns|now|utcnow|today|localtime|gmtime)\(")
# A gauge in Unix time, the times of spans, a date in the head of a file, the days on which a key expires and a glossary
# was made.
MAY_READ = {
    "api/auth.py",
    "cli/keys.py",
    "translate/glossaries.py",
    "telemetry/metrics.py",
    "telemetry/traces.py",
}


def test_no_deadline_rests_on_the_wall_clock():
    files = [file for file in SERVICE.rglob("*.py") if READS.search(file.read_text("utf-8"))]
    readers = {file.relative_to(SERVICE).as_posix() for file in files}

    assert readers <= MAY_READ
