"""gpu.json: what each part of a run found, or the end of its traceback, written as soon as it is known."""

import json
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

Figures = dict[str, Any]
LAST_LINES = 60  # of what failed
_SHOWN = 500  # characters of what is found; gpu.json has all

console = Console(width=120, highlight=False)


@dataclass(frozen=True, slots=True)
class Findings:
    """The parts of a run by name; several processes, one after the other, add theirs."""

    path: Path

    def read(self) -> Figures:
        """Return all that is known so far."""
        found: Figures = json.loads(self.path.read_text(encoding="utf-8")) if self.path.exists() else {}
        return found

    def keep(self, name: str, value: Any) -> None:
        """Write what a part found."""
        console.print(f"{name}: {str(value)[:_SHOWN]}", markup=False)
        written = self.path.with_suffix(".partial")
        written.write_text(json.dumps(self.read() | {name: value}) + "\n", encoding="utf-8")
        written.replace(self.path)

    def part(self, name: str, measure: Callable[[], Any]) -> None:
        """Run a part and keep what it finds, what it warns of, or how it failed."""
        began = time.perf_counter()
        with warnings.catch_warnings(record=True, action="always", category=RuntimeWarning) as caught:
            try:
                value = measure()
            except Exception:  # noqa: BLE001 - the next part may work
                value = {"failed": last_lines(traceback.format_exc())}
        if isinstance(value, dict):
            value["seconds"] = round(time.perf_counter() - began, 1)
            if caught:
                value["warnings"] = [str(entry.message) for entry in caught]
        self.keep(name, value)


def last_lines(text: str) -> Sequence[str]:
    """Return the end of what a process or a traceback says."""
    return text.splitlines()[-LAST_LINES:]
