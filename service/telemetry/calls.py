"""The record of a call: who makes it, how long it may take, how far it has come and how it ended.

The edge makes the record and hands it down; whoever works on the call fills in what it knows.  It holds no texts.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from service.engine.job import JobResult
from service.errors import PermissionDenied
from service.queue.callers import ANYBODY, Caller, Priority
from service.records import Timings

Phase = Literal["admission", "tokenize", "queue", "decode", "detokenize", "stream"]

# A client that reaches its deadline cancels the call, and the server's own clock may not be there yet: gRPC rounds a
# deadline up to three digits when it sends it, and the cancel overtakes timers.  Of a short deadline the last moment is
# a tenth: a client that takes such a call back earlier, as clients that hedge do, was not late.
_DEADLINE_ROUNDING = 0.01
_LAST_MOMENT_S = 0.05
_LAST_MOMENT_SHARE = 0.1
_TIMER_ROUNDING_S = 0.002  # uvloop's clock counts milliseconds: its timers may go off that much early


@dataclass(slots=True, eq=False, kw_only=True)
class Call:
    """One call, or one text of a stream's call."""

    method: str  # as a label
    request_id: str = ""
    caller: Caller = ANYBODY
    models: frozenset[str] | None = None  # the only ones that the caller's key may use; None: all
    trace_headers: Mapping[str, str] = field(default_factory=dict)  # traceparent and tracestate, as they came
    started: float  # time.monotonic()
    deadline: float  # on the same clock: the caller's, or the server's limit if that is nearer
    limit_s: float | None = None  # the server's limit for the method if `deadline` is that; None: it is the caller's
    on_gone: Callable[[], None] | None = None  # of a stream: called when the client has left

    model: str = ""  # the one that answers, once it is known
    priority: Priority | None = None  # of its work; None for calls without work, and until it is known
    code: str = "OK"  # name of the gRPC status
    duration_s: float = 0.0  # once the call has ended

    phase: Phase = "admission"
    texts: int = 0  # of a stream: that were taken in
    finished_texts: int = 0  # those that have an answer, be it an error
    source_tokens: int = 0
    target_tokens: int = 0  # of the texts that were translated

    # Seconds in each phase: the longest of the call's texts.
    tokenize_s: float = 0.0
    queue_s: float = 0.0
    encode_s: float = 0.0
    decode_s: float = 0.0
    detokenize_s: float = 0.0

    def may_use(self, model: str) -> bool:
        """Whether the caller's key is good for this model."""
        return self.models is None or model in self.models

    def use_model(self, model: str) -> None:
        """Note the model that answers.

        Raises:
            PermissionDenied: the caller may not use it.
        """
        if not self.may_use(model):
            raise PermissionDenied(f"the API key of {self.caller.name} is not for the model {model}")
        self.model = model

    def is_late(self, now: float) -> bool:
        """Whether a call that ends now without an answer ends because of its deadline."""
        if self.limit_s is not None:
            return now >= self.deadline - _TIMER_ROUNDING_S
        allowed_s = self.deadline - self.started
        slack_s = min(_LAST_MOMENT_S, _LAST_MOMENT_SHARE * allowed_s) + _DEADLINE_ROUNDING * allowed_s
        return now >= self.deadline - slack_s

    def job_finished(self, result: JobResult) -> None:
        """Count one text that the model has translated."""
        self.finished_texts += 1
        self.target_tokens += sum(len(hypothesis.token_ids) for hypothesis in result.hypotheses)
        self.queue_s = max(self.queue_s, result.queue_s)
        self.encode_s = max(self.encode_s, result.encode_s)
        self.decode_s = max(self.decode_s, result.decode_s)

    @property
    def has_phases(self) -> bool:
        """Whether the call translates something; the texts of a stream, not itself, have phases."""
        return self.phase not in {"admission", "stream"}

    def timings(self) -> Timings:
        """Return the milliseconds of each phase so far."""
        return Timings(
            tokenize_ms=self.tokenize_s * 1e3,
            queue_ms=self.queue_s * 1e3,
            encode_ms=self.encode_s * 1e3,
            decode_ms=self.decode_s * 1e3,
            detokenize_ms=self.detokenize_s * 1e3,
            total_ms=(time.monotonic() - self.started) * 1e3,
        )

    def for_text(self) -> "Call":
        """Return the record of one text of this stream: texts run at the same time and have no phase in common."""
        self.texts += 1
        return Call(
            method=self.method,
            request_id=self.request_id,
            caller=self.caller,
            models=self.models,
            started=self.started,
            deadline=self.deadline,
            limit_s=self.limit_s,
            model=self.model,
            priority=self.priority,
            texts=1,
        )

    def text_finished(self, text: "Call") -> None:
        """Add what one text of this stream came to."""
        self.model = text.model
        self.finished_texts += 1
        self.source_tokens += text.source_tokens
        self.target_tokens += text.target_tokens


CallObserver = Callable[[Call], None]  # told of each call that has ended
