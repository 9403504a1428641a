"""A pytest plugin (`-p tests.reliability.table`): at the end, one row for each promise with what was seen of it.

A row is held when all of its tests passed, and open when it has neither a test nor a reason; open and failed rows fail
the run.  Tests say what they measured with the `seen` fixture.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.table import Table

from tests.reliability.promises import ELSEWHERE, PROMISES, Promise

REPORT = Path("build/reliability.json")
STYLES = {"held": "green", "in part": "yellow", "FAILED": "bold red", "not run": "dim", "OPEN": "bold red"}


@dataclass(slots=True)
class Row:
    """What became of one promise."""

    passed: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)  # reasons
    seen: list[str] = field(default_factory=list)

    def enter(self, report: pytest.TestReport) -> None:
        """Count one part of a test."""
        test = report.nodeid.rpartition("::")[2]
        if report.failed:
            self.failed.append(test if report.when == "call" else f"{test} ({report.when})")
        elif report.skipped:
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            self.skipped.append(reason.removeprefix("Skipped: "))
        elif report.when == "call":
            self.passed.append(test)
        if report.when == "call":
            self.seen += [str(value) for key, value in report.user_properties if key == "seen"]

    def status(self, promise: Promise) -> str:
        if self.failed:
            return "FAILED"
        if self.passed:
            return "in part" if self.skipped else "held"
        return "not run" if self.skipped or promise.not_run else "OPEN"

    def account(self, promise: Promise) -> str:
        """The measured figures, else how many tests there were; and why others did not run."""
        parts = list(dict.fromkeys(self.seen)) or ([f"{len(self.passed)} tests"] if self.passed else [])
        parts += [f"failed: {name}" for name in self.failed]
        parts += [f"not run: {reason}" for reason in dict.fromkeys(self.skipped)]
        return "; ".join(parts) or promise.not_run or "no test"


ROWS = pytest.StashKey[dict[str, Row]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[ROWS] = {name: Row() for name in PROMISES}


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        name = f"{item.path.name}::{item.originalname if isinstance(item, pytest.Function) else item.name}"
        rows = [row for row, tests in ELSEWHERE.items() if name.startswith(tests)]
        if rows:
            item.add_marker(pytest.mark.promise(*rows))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    report: pytest.TestReport = yield
    for marker in item.iter_markers("promise"):
        for name in marker.args:
            item.config.stash[ROWS][name].enter(report)
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    rows = session.config.stash[ROWS]
    is_whole = not session.config.option.keyword and session.testsfailed == 0
    is_open = any(rows[name].status(promise) == "OPEN" for name, promise in PROMISES.items())
    if is_whole and is_open and session.config.option.markexpr == "promise" and not session.config.option.collectonly:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    table = Table(title="Promises", show_lines=False, pad_edge=False)
    for heading, ratio in (("row", None), ("fault", 3), ("promise", 4), ("seen", 5), ("status", None)):
        table.add_column(heading, ratio=ratio, overflow="fold")
    lines: list[dict[str, str]] = []
    for name, promise in PROMISES.items():
        row = config.stash[ROWS][name]
        status, seen = row.status(promise), row.account(promise)
        table.add_row(name, promise.fault, promise.promise, seen, f"[{STYLES[status]}]{status}[/]")
        lines.append({"row": name, "fault": promise.fault, "promise": promise.promise, "seen": seen, "status": status})
    console = Console(width=160, force_terminal=terminalreporter.isatty, highlight=False)
    with console.capture() as capture:
        console.print(table)
    terminalreporter.write_line(capture.get())
    counts = {status: sum(line["status"] == status for line in lines) for status in STYLES}
    terminalreporter.write_line(", ".join(f"{count} {status}" for status, count in counts.items() if count))
    REPORT.parent.mkdir(exist_ok=True)
    REPORT.write_text(json.dumps({"counts": counts, "rows": lines}, indent=1), encoding="utf-8")
