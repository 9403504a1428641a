"""One call in progress, as its handlers and its onlookers see it."""

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field

from service.errors import PermissionDenied
from service.queue.callers import ANYBODY, Caller
from service.telemetry.calls import Progress, follow


@dataclass(slots=True, eq=False)
class Call:
    """One call in progress; handlers fill in what only they know."""

    method: str  # as a label
    request_id: str
    started: float  # time.monotonic()
    deadline: float  # on the same clock: the caller's, or the server's limit if that is nearer
    is_limit_ours: bool  # the deadline is the server's limit ...
    limit_s: float  # ... which is this for its method
    client: Caller = ANYBODY
    models: frozenset[str] | None = None  # the only ones that the caller's key may use; None: all
    code: str = "OK"
    priority: str = ""  # of its work, as a label; empty where it has none, and until that is known
    progress: Progress = field(default_factory=Progress)
    trace_headers: Mapping[str, str] = field(default_factory=dict)  # traceparent and tracestate, as they came
    _model: str = ""

    @property
    def model(self) -> str:
        """The model that answers, once it is known."""
        return self._model

    def may_use(self, model: str) -> bool:
        """Whether the caller's key is good for this model."""
        return self.models is None or model in self.models

    def use_model(self, model: str) -> None:
        """Note the model that answers.  The only way to do so: no handler can forget to ask whether the caller may.

        Raises:
            PermissionDenied: the caller may not use it.
        """
        if not self.may_use(model):
            raise PermissionDenied(f"the API key of {self.client.name} is not for the model {model}")
        self._model = model


_current_call: ContextVar[Call] = ContextVar("current_call")


def enter(call: Call) -> None:
    """Make this the call of the current task; not undone, as gRPC runs each in a task, and so a context, of its own."""
    _current_call.set(call)
    follow(call.progress)


def current_call() -> Call:
    """The call this task handles."""
    return _current_call.get()
