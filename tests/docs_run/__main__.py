"""`make try-docs`: the commands, Python and settings of the documents, as they stand there, with the real server.

    python -m tests.docs_run README.md docs/secure.md

Each page is run from top to end in a scratch directory; rules.py says what placeholders stand for, what is made short,
and what is left out and why.  Words in backquotes are no steps: test_document_commands.py parses those.
"""

import re
import signal
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.docs_run.pages import DOCUMENTS, ROOT, Step, steps_in
from tests.docs_run.scene import Scene, StepFailed


def run_page(page: Path) -> list[tuple[str, str, str]]:
    """Its name, each of its steps, and what came of it."""
    rows: list[tuple[str, str, str]] = []
    if not (steps := [*steps_in(page.read_text(encoding="utf-8"))]):
        return rows
    with tempfile.TemporaryDirectory() as scratch, closing(Scene(Path(scratch))) as scene:
        actions: list[tuple[str, Callable[[], str]]] = [("(servers)", scene.begin), ("(SIGTERM)", scene.close)]
        actions[1:1] = [(_title(step), partial(scene.run, step)) for step in steps]
        for title, action in actions:
            try:
                what = action()
            except StepFailed as error:
                what = f"FAILED: {error}"
            rows.append((str(page.relative_to(ROOT)), title, what))
            print(": ".join(rows[-1]), file=sys.stderr, flush=True)
    return rows


def _title(step: Step) -> str:
    line = re.sub(r"\s{2,}(#.*)?", " ", step.text.splitlines()[-1]).strip()
    return line if step.kind == "command" else f"({step.kind}) ... {line}"


def main(pages: list[str]) -> int:
    """0 if every step that is run did what it should, else 1."""
    rows = [row for page in [Path(page) for page in pages] or DOCUMENTS for row in run_page(page.resolve())]
    table = Table("document", "step", "what happened", title="Documents")
    for row in rows:
        table.add_row(*row)
    Console(width=None if sys.stdout.isatty() else 160, markup=False).print(table)
    failed, left_out = (sum(what.startswith(word) for *_, what in rows) for word in ("FAILED: ", "left out: "))
    print(f"{len(rows)} steps: {len(rows) - failed - left_out} done, {left_out} left out, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # servers and the scratch directory go, too
    sys.exit(main(sys.argv[1:]))
