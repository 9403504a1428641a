"""`make try-docs`: the commands, Python and settings of the documents, as they stand there, with the real server.

    python -m trials.docs_run README.md docs/secure.md

Each page is run from top to end in a scratch directory; rules.py says what placeholders stand for, what is made short,
and what is left out and why.  Words in backquotes are no steps: test_document_commands.py parses those.
"""

import re
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from trials.docs_run.pages import DOCUMENTS, ROOT, Step, steps_in
from trials.docs_run.scene import NotRun, Scene, StepFailed


@dataclass(frozen=True, slots=True)
class Outcome:
    page: str
    step: str
    result: Literal["held", "failed", "not run"]
    said: str
    is_typed: bool = True  # stands in the page; not so the servers that the page takes for granted

    def __str__(self) -> str:
        return f"{self.page}: {self.step}: {self.result}: {self.said}"


def summary(outcomes: Sequence[Outcome]) -> list[str]:
    """Lines: what was found, run and held; each reason not to run something, the commonest first; each failure."""
    typed = [outcome for outcome in outcomes if outcome.is_typed]
    counts = Counter(outcome.result for outcome in typed)
    reasons = Counter(outcome.said for outcome in typed if outcome.result == "not run")
    run = f"{counts['held'] + counts['failed']} run, {counts['held']} held"
    return [
        f"{len(typed)} commands and examples found, {run}, {counts['not run']} not run{':' if reasons else ''}",
        *(f"{count:>5}  {reason}" for reason, count in reasons.most_common()),
        *(str(outcome) for outcome in outcomes if outcome.result == "failed"),
    ]


def run_page(page: Path) -> list[Outcome]:
    """What came of each of its steps, and of the servers that it takes for granted."""
    name = str(page.relative_to(ROOT))
    if not (steps := [*steps_in(page.read_text(encoding="utf-8"))]):
        return []
    with tempfile.TemporaryDirectory() as scratch, closing(Scene(Path(scratch))) as scene:
        outcomes = [_tried(name, "(servers)", scene.begin, is_typed=False)]
        outcomes += [_tried(name, _title(step), partial(scene.run, step)) for step in steps]
        outcomes += [_tried(name, "(SIGTERM)", scene.close, is_typed=False)]
    return outcomes


def _tried(page: str, title: str, action: Callable[[], str], *, is_typed: bool = True) -> Outcome:
    try:
        outcome = Outcome(page, title, "held", action(), is_typed)
    except StepFailed as error:
        outcome = Outcome(page, title, "failed", str(error), is_typed)
    except NotRun as reason:
        outcome = Outcome(page, title, "not run", str(reason), is_typed)
    print(outcome, file=sys.stderr, flush=True)
    return outcome


def _title(step: Step) -> str:
    line = re.sub(r"\s{2,}(#.*)?", " ", step.text.splitlines()[-1]).strip()
    return line if step.kind == "command" else f"({step.kind}) ... {line}"


def main(pages: list[str]) -> int:
    """0 if every step that is run did what it should, else 1."""
    outcomes = [one for page in [Path(page) for page in pages] or DOCUMENTS for one in run_page(page.resolve())]
    print(*summary(outcomes), sep="\n")
    return 1 if any(outcome.result == "failed" for outcome in outcomes) else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # servers and the scratch directory go, too
    sys.exit(main(sys.argv[1:]))
