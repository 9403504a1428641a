"""The record of one call: who makes it, its deadline, how far it is and what it has used.

An API key, a trusted proxy or the peer's address says who calls.  The record is not frozen: the parts of the server
that a call passes count in it.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any, Literal, NamedTuple

from service.engine.wire import JobResult
from service.errors import PermissionDenied
from service.records import Priority, WarningKind

Identity = tuple[str, str]  # source and name: a proxy's word "10.0.0.7" is not the peer 10.0.0.7
Phase = Literal["admission", "load", "tokenize", "queue", "decode", "detokenize", "stream"]
PHASES = ("tokenize", "queue", "encode", "decode", "detokenize")  # those with a duration, in order

# A client that reaches its deadline cancels the call, and the server's own clock may not be there yet: gRPC rounds a
# deadline up to three digits when it sends it, and the cancel overtakes timers.  Of a short deadline the last moment is
# a tenth: a client that takes such a call back earlier, as clients that hedge do, was not late.
_DEADLINE_ROUNDING = 0.01
_LAST_MOMENT_S = 0.05
_LAST_MOMENT_SHARE = 0.1
_TIMER_ROUNDING_S = 0.002  # uvloop's clock counts milliseconds: its timers may go off that much early


class Caller(NamedTuple):
    """One party among those that share the server."""

    name: str  # stable: an API key's name, the proxy's word, or the peer's address without its port
    source: Literal["key", "proxy", "peer"] = "peer"
    priority: Priority = Priority.INTERACTIVE  # the highest it may ask for
    weight: float = 1.0  # its share beside others: twice the weight, twice the share
    max_queued_tokens: int | None = None  # of its admitted texts without an answer; None: the server's limit alone

    @property
    def identity(self) -> Identity:
        """Who it is among all clients; a name alone can be that of two."""
        return (self.source, self.name)

    def allowed(self, asked: Priority | None) -> Priority:
        """The class of its work: what it asks for, or the highest it may have if that is lower or it does not say."""
        return self.priority if asked is None else max(asked, self.priority)


ANYBODY = Caller(name="")


@dataclass(slots=True)
class Usage:
    """What one caller has used."""

    calls: int = 0
    texts: int = 0  # answered; blank ones included
    characters: int = 0
    source_tokens: int = 0  # end-of-sentence included
    target_tokens: int = 0
    row_steps: int = 0

    def add(self, other: "Usage") -> None:
        self.calls += other.calls
        self.texts += other.texts
        self.characters += other.characters
        self.source_tokens += other.source_tokens
        self.target_tokens += other.target_tokens
        self.row_steps += other.row_steps


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
    has_several_models: bool = False  # `model` then joins their names
    priority: Priority | None = None  # of its work; None for calls without work, and until it is known
    code: str = "OK"  # name of the gRPC status
    duration_s: float = 0.0  # once the call has ended

    phase: Phase = "admission"
    texts: int = 0  # of a stream: that were taken in
    finished_texts: int = 0  # those that have an answer, be it an error
    source_tokens: int = 0
    target_tokens: int = 0  # of the texts that were translated

    warnings: str = ""  # about its translations, where the answer has no room for them: kinds with counts

    # Seconds in each phase: the longest of the call's texts.
    tokenize_s: float = 0.0
    queue_s: float = 0.0
    encode_s: float = 0.0
    decode_s: float = 0.0
    detokenize_s: float = 0.0

    def __getstate__(self) -> tuple[Any, ...]:
        """Return what crosses to another process: everything but `on_gone`."""
        return _crossing(self)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.on_gone = None
        for name, value in zip(_CROSSING, state, strict=True):
            setattr(self, name, value)

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

    def use_models(self, names: str) -> None:
        """Note the joined names of the models that have answered, each of which the caller may use."""
        self.model = names
        self.has_several_models = "," in names or "+" in names

    def warn(self, kinds: Iterable[WarningKind]) -> None:
        """Note what the caller is warned of, beside an answer that has no room for it."""
        self.warnings = ", ".join(f"{kind}={count}" for kind, count in sorted(Counter(kinds).items()))

    def is_late(self, now: float) -> bool:
        """Whether a call that ends now without an answer ends because of its deadline."""
        if self.limit_s is not None:
            return now >= self.deadline - _TIMER_ROUNDING_S
        allowed_s = self.deadline - self.started
        slack_s = min(_LAST_MOMENT_S, _LAST_MOMENT_SHARE * allowed_s) + _DEADLINE_ROUNDING * allowed_s
        return now >= self.deadline - slack_s

    def job_finished(self, result: JobResult) -> None:
        """Count one segment that the model has translated or scored."""
        if result.scores is None:
            self.target_tokens += sum([len(hypothesis.token_ids) for hypothesis in result.hypotheses])
        self.queue_s = max(self.queue_s, result.queue_s)
        self.encode_s = max(self.encode_s, result.encode_s)
        self.decode_s = max(self.decode_s, result.decode_s)

    @property
    def has_phases(self) -> bool:
        """Whether the call translates something; the texts of a stream, not itself, have phases."""
        return self.phase not in {"admission", "stream"}

    def for_text(self) -> "Call":
        """Return the record of one text of this stream: texts run at the same time and have no phase in common."""
        self.texts += 1
        return self.part(1)

    def part(self, num_texts: int) -> "Call":
        """Return the record of a part of this call that one model works for."""
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
            texts=num_texts,
        )

    def join(self, part: "Call", *, is_next: bool = False) -> None:
        """Add what a part of this call came to; `is_next`: it began after the others had ended."""
        self.model, self.phase = part.model, part.phase
        self.finished_texts += part.finished_texts
        self.source_tokens += part.source_tokens
        self.target_tokens += part.target_tokens
        for phase in PHASES:
            own, other = getattr(self, f"{phase}_s"), getattr(part, f"{phase}_s")
            setattr(self, f"{phase}_s", own + other if is_next else max(own, other))

    def text_finished(self, text: "Call") -> None:
        """Add what one text of this stream came to."""
        self.model, self.has_several_models = text.model, text.has_several_models
        self.finished_texts += 1
        self.source_tokens += text.source_tokens
        self.target_tokens += text.target_tokens


_CROSSING = tuple(one.name for one in fields(Call) if one.name != "on_gone")
_crossing: Callable[[Call], tuple[Any, ...]] = attrgetter(*_CROSSING)
