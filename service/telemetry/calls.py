"""How far a call has come, and what is known of it when it ends; for those who look at a running server.

Whoever works on a call notes its phase on the `Progress` of the task it works in; outside a call that goes nowhere.
Holds no texts.
"""

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from math import inf
from typing import Literal

from service.records import Timings

Phase = Literal["admission", "tokenize", "queue", "decode", "detokenize", "stream"]


@dataclass(slots=True, eq=False)
class Progress:
    """One call's way through the server, up to now."""

    phase: Phase = "admission"
    texts: int = 0  # of a stream: that were taken in
    finished_texts: int = 0  # those that have an answer, be it an error
    source_tokens: int = 0
    target_tokens: int = 0  # of the texts that were translated
    read_timings: Callable[[], Timings] | None = None  # None: the call translates nothing
    late_from: float = inf  # time.monotonic(): when it ends without an answer from then on, its deadline is why

    def timings(self) -> Timings | None:
        """Milliseconds by phase so far, None where nothing is translated."""
        return self.read_timings() if self.read_timings else None


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedCall:
    """A call that has just been answered, or was left."""

    method: str  # as a label
    request_id: str
    client: str
    client_source: str = ""  # how that is known: see `service.queue.callers.Caller`
    model: str  # empty where none was needed
    code: str  # name of the gRPC status
    duration_s: float
    progress: Progress
    trace_headers: Mapping[str, str] = field(default_factory=dict)  # traceparent and tracestate, as they came


CallObserver = Callable[[EndedCall], None]

_progress: ContextVar[Progress] = ContextVar("progress")


def follow(progress: Progress) -> None:
    """Make this the progress of the current task, and of those it starts."""
    _progress.set(progress)


def current_progress() -> Progress:
    """The progress of the call that this task works on; without a call, one that nobody reads."""
    return _progress.get(None) or Progress()
