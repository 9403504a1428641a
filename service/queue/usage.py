"""What each client has used, for quotas and bills: counted at once, and a line in the log for each period and client.

Never texts.  A metric names only clients that the operator has named (`Caller.source` is "key"): addresses, and words
of a proxy, would be labels without end.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from service.queue.callers import Caller
from service.records import Translation
from service.telemetry.families import OTHER
from service.telemetry.logs import get_logger

PERIOD_S = 30.0  # a line for each call would be most of the log


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What was used; only what was answered counts."""

    texts: int  # with a translation, blank ones included
    characters: int  # of those
    source_tokens: int  # end-of-sentence included
    target_tokens: int  # of all hypotheses that were returned
    row_steps: int  # beam x decoder steps


class UsageCounter(Protocol):
    """What counts; `service.telemetry.metrics.Metrics` does."""

    def client_used(
        self, caller: str, *, texts: int, characters: int, source_tokens: int, target_tokens: int, row_steps: int
    ) -> None:
        """Add to a client's counts."""
        ...


def usage_of(texts: Sequence[str], translations: Sequence[Translation]) -> Usage:
    """What these texts and their translations, in the same order, come to."""
    answered = [(text, found) for text, found in zip(texts, translations, strict=True) if found.error is None]
    return Usage(
        texts=len(answered),
        characters=sum(len(text) for text, _ in answered),
        source_tokens=sum(found.source_tokens for _, found in answered),
        target_tokens=sum(item.target_tokens for _, found in answered for item in found.hypotheses),
        row_steps=sum(found.row_steps for _, found in answered),
    )


class UsageLog:
    """Counts usage, and logs its sums; told the time."""

    def __init__(self, counter: UsageCounter) -> None:
        self._counter = counter
        self._last_written = 0.0
        self._sums: dict[tuple[str, str], dict[str, int]] = {}  # by the client's source and name

    def add(self, caller: Caller, usage: Usage) -> None:
        """Put it in the books, and into the client's next line."""
        amounts = {name: getattr(usage, name) for name in Usage.__slots__}
        self._counter.client_used(label_of(caller), **amounts)
        sums = self._sums.setdefault((caller.source, caller.name), dict.fromkeys((*Usage.__slots__, "calls"), 0))
        sums["calls"] += 1
        for name, amount in amounts.items():
            sums[name] += amount

    def write_if_due(self, now: float) -> None:
        """Log what came together if a period is over; `now` is time.monotonic()."""
        if now - self._last_written >= PERIOD_S:
            self._last_written = now
            self.write()

    def write(self) -> None:
        """Log what came together since the last time: a line for each client that used anything."""
        sums, self._sums = self._sums, {}
        for (source, name), amounts in sums.items():
            get_logger().info("usage", client=name, client_source=source, **amounts)


def label_of(caller: Caller) -> str:
    """The client's name in metrics."""
    return caller.name if caller.source == "key" else OTHER
