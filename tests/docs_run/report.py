"""What came of the documents' steps: how many held, why others were not run, and each failure."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one step of a page."""

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
