"""What each caller has used, for quotas and bills.

Usage is counted at once, and logged as one line for each period and caller, never with texts.  Metrics name only
callers that the operator has named (`Caller.source` is "key"), because addresses and names from a proxy would be labels
without end.
"""

from collections.abc import Mapping
from dataclasses import asdict

from service.call import Call, Identity, Usage
from service.errors import DeadlineExceeded, DragomanError, Overloaded, TooLong, Unavailable
from service.records import ScoreRequest, ScoreResult, TranslationRequest, TranslationResult
from service.telemetry.families import OTHER
from service.telemetry.logs import get_logger
from service.telemetry.metrics import Metrics

PERIOD_S = 30.0  # a line for each call would be most of the log


class UsageMeter:
    """The usage that one process has seen, which may write that of others too; is told the time."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._last_written = 0.0
        self._sums: dict[Identity, Usage] = {}

    def translated(self, request: TranslationRequest, result: TranslationResult, call: Call) -> None:
        """Count a request, or one text of a stream, that was answered; texts with an error are not usage."""
        model, used = self._metrics.model(result.model), Usage(calls=1)
        model.answered(call)
        for text, translation in zip(request.texts, result.translations, strict=True):
            if translation.error is not None:
                model.text_failed(translation.error)
                continue
            target_tokens = sum([hypothesis.target_tokens for hypothesis in translation.hypotheses])
            model.text_translated(translation, target_tokens)
            used.texts += 1
            used.characters += len(text)
            used.source_tokens += translation.source_tokens
            used.target_tokens += target_tokens
            used.row_steps += translation.row_steps
        self._use(used, call)

    def _use(self, used: Usage, call: Call) -> None:
        self._metrics.client_used(call.caller.name if call.caller.source == "key" else OTHER, used)
        self._add(call.caller.identity, used)

    def scored(self, request: ScoreRequest, result: ScoreResult, call: Call) -> None:
        """Count a request for scores that was answered; pairs with an error are not usage."""
        used = Usage(calls=1)
        for pair, score in zip(request.pairs, result.scores, strict=True):
            if score.error is None:
                used.texts += 1
                used.characters += len(pair.source) + len(pair.target)
                used.source_tokens += score.source_tokens
                used.target_tokens += len(score.tokens)
        self._use(used, call)

    def text_failed(self, error: DragomanError, model: str) -> None:
        """Count a text of a stream that has no translation, by the code of its error."""
        self._metrics.model(model).stream_text_failed(error.code)

    def text_refused(self, error: DragomanError) -> None:
        """Count a text of a stream that no model has got, by the reason why it was refused."""
        if isinstance(error, TooLong):
            self._metrics.rejected("too_long")
        elif isinstance(error, Overloaded | Unavailable | DeadlineExceeded) and error.reason:
            self._metrics.rejected(error.reason)

    def write_if_due(self, now: float) -> None:
        """Log the usage of the last period if it is over; `now` is time.monotonic()."""
        if now - self._last_written >= PERIOD_S:
            self._last_written = now
            self.write()

    def write(self) -> None:
        """Log the usage since the last time: one line for each caller that used anything."""
        for (source, name), usage in self.take().items():
            get_logger().info("usage", client=name, client_source=source, **asdict(usage))

    def take(self) -> dict[Identity, Usage]:
        """Return the usage since the last time, for the process that writes it, and begin anew; plain data."""
        sums, self._sums = self._sums, {}
        return sums

    def absorb(self, sums: Mapping[Identity, Usage]) -> None:
        """Add what another process has taken to the next lines; its metrics come with its snapshot."""
        for identity, usage in sums.items():
            self._add(identity, usage)

    def _add(self, identity: Identity, usage: Usage) -> None:
        if identity in self._sums:
            self._sums[identity].add(usage)
        else:
            self._sums[identity] = usage
