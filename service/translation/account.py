"""Accounts for what was translated: the metrics of each model, and what each caller has used, for quotas and bills.

Usage is counted at once, and logged as one line for each period and caller; never with texts.  A metric names only
callers that the operator has named (`Caller.source` is "key"): addresses, and names that a proxy gives, would be labels
without end.
"""

from service.errors import DragomanError, Overloaded, TooLong, Unavailable
from service.records import Call, Caller, TranslationRequest, TranslationResult
from service.telemetry.families import OTHER
from service.telemetry.logs import get_logger
from service.telemetry.metrics import Metrics

PERIOD_S = 30.0  # a line for each call would be most of the log


class Account:
    """The account of one server; is told the time."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._last_written = 0.0
        self._sums: dict[tuple[str, str], dict[str, int]] = {}  # by the caller's source and name

    def translated(self, request: TranslationRequest, result: TranslationResult, call: Call) -> None:
        """Count a request, or one text of a stream, that was answered; texts with an error are not usage."""
        self._metrics.model(result.model).translated(result.translations, call)
        answered = [
            (text, found) for text, found in zip(request.texts, result.translations, strict=True) if found.error is None
        ]
        self._add(
            call.caller,
            texts=len(answered),  # blank ones included
            characters=sum(len(text) for text, _ in answered),
            source_tokens=sum(found.source_tokens for _, found in answered),  # end-of-sentence included
            target_tokens=sum(item.target_tokens for _, found in answered for item in found.hypotheses),
            row_steps=sum(found.row_steps for _, found in answered),
        )

    def text_failed(self, error: DragomanError) -> None:
        """Count a text of a stream that has no answer, by the reason why it was refused."""
        if isinstance(error, TooLong):
            self._metrics.rejected("too_long")
        elif isinstance(error.__cause__, Overloaded):
            self._metrics.rejected(error.__cause__.reason)
        elif isinstance(error, Overloaded | Unavailable) and error.reason:
            self._metrics.rejected(error.reason)

    def write_if_due(self, now: float) -> None:
        """Log the usage of the last period if it is over; `now` is time.monotonic()."""
        if now - self._last_written >= PERIOD_S:
            self._last_written = now
            self.write()

    def write(self) -> None:
        """Log the usage since the last time: one line for each caller that used anything."""
        sums, self._sums = self._sums, {}
        for (source, name), amounts in sums.items():
            get_logger().info("usage", client=name, client_source=source, **amounts)

    def _add(self, caller: Caller, **amounts: int) -> None:
        """Count usage in the metrics, and add it to the caller's next line."""
        self._metrics.client_used(caller.name if caller.source == "key" else OTHER, **amounts)
        sums = self._sums.setdefault((caller.source, caller.name), {"calls": 0})
        sums["calls"] += 1
        for name, amount in amounts.items():
            sums[name] = sums.get(name, 0) + amount
