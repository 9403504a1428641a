"""The numbers of one server: calls, refusals, the process; and, by model, `model_metrics`."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from itertools import product

from prometheus_client import CollectorRegistry, GCCollector, Metric, ProcessCollector, disable_created_metrics
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from service.telemetry.families import OTHER, Definition, Families
from service.telemetry.model_metrics import ModelMetrics, WorkFamilies

CONTENT_TYPE = CONTENT_TYPE_LATEST

LATENCY_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 30, 60)
LAG_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1)

REJECT_REASONS = (
    *("queue_full", "token_budget", "client_budget", "queue_seconds", "deadline_unattainable"),
    *("out_of_memory", "streams", "starting", "draining", "too_long"),
)
_LAGS_KEPT = 50  # of which the worst is shown as the recent one
WATCHED = {
    "ready": "1 while /readyz says so: it has started, does not drain, and every model that is served has an engine.",
    "token_budget_used_ratio": (
        "Admitted source tokens / limits.max_queued_tokens; beyond 1, up to 2, clients that hold less than their share "
        "still get in, and one request alone may be larger than that."
    ),
    "streams": "TranslateStream calls in flight.",
    "stream_texts": "Texts that streams hold: taken in, and no answer sent.",
}
# Of calls for a model.  A code has no series before its first call, and Prometheus no rate of what was not there: with
# these from the start, a share of failures is 0 before the first failure, and 1 where nothing else has ever been.
FIRST_CODES = ("OK", "UNKNOWN", "INTERNAL", "UNAVAILABLE", "DEADLINE_EXCEEDED")
CODE_CLASSES = ("ok", "client_error", "server_error")
_CLIENT_ERRORS = frozenset(
    {
        "INVALID_ARGUMENT",
        "NOT_FOUND",
        "CANCELLED",
        "UNIMPLEMENTED",
        "RESOURCE_EXHAUSTED",
        "UNAUTHENTICATED",
        "PERMISSION_DENIED",
        "FAILED_PRECONDITION",
    }
)


class Metrics:
    """The books of one server.  Only for the event loop's thread."""

    def __init__(self, *, methods: Sequence[str] = ()) -> None:
        """Nothing has happened.

        Args:
            methods: that calls for a model are of, as labels.
        """
        self._methods = methods
        disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series for each one, which nobody asked for
        self.registry = CollectorRegistry()
        self._families = Families(self.registry)
        self._lags: deque[float] = deque(maxlen=_LAGS_KEPT)
        self._define_calls()
        self._define_clients()
        self._define_process()
        self._work = WorkFamilies(self._families, self.rejected)
        self._watched = {name: self._families.gauge(name, description) for name, description in WATCHED.items()}
        self._models: dict[str, ModelMetrics] = {}

    def model(self, name: str) -> ModelMetrics:
        """The series of one model."""
        if name not in self._models:
            self._models[name] = ModelMetrics(name, self._work, self._methods)
            for method, code in product(self._methods, FIRST_CODES):
                self._answered(method, name, code)
        return self._models[name]

    def _define_calls(self) -> None:
        families = self._families
        received = families.counter("requests_received", "Calls that reached a handler.", "method")
        answered = families.counter("requests", "Calls that ended, by gRPC status.", "method", "model", "code")
        in_flight = families.gauge("requests_in_flight", "Calls received and not ended.", "method")
        labels = ("method", "model", "priority", "code_class")
        duration = families.histogram(
            "request_duration_seconds", "Time of whole calls in the server.", LATENCY_BUCKETS, *labels
        )
        rejected = families.counter("rejected", "Calls, and too long texts, that were refused.", "reason")
        # Labels are of closed sets, and to look them up takes longer than to count.
        self._received, self._answered = cache(received.labels), cache(answered.labels)
        self._in_flight, self._duration = cache(in_flight.labels), cache(duration.labels)
        self._rejected = cache(rejected.labels)
        for reason in REJECT_REASONS:
            self._rejected(reason)
        self._slow = self._families.counter("slow_requests", "Calls that took longer than telemetry.slow_request_s.")

    def _define_clients(self) -> None:
        names = {"texts": "Texts answered.", "characters": "Characters of those.", "row_steps": "Beam x decoder steps."}
        self._used = {
            name: cache(self._families.counter(f"client_{name}", description, "client").labels)
            for name, description in names.items()
        }
        used_tokens = self._families.counter("client_tokens", "Tokens of those texts.", "client", "direction")
        self._used_tokens = cache(used_tokens.labels)
        self.client_used(OTHER, texts=0, characters=0, source_tokens=0, target_tokens=0, row_steps=0)

    def _define_process(self) -> None:
        ProcessCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        self._lag = self._families.histogram("event_loop_lag_seconds", "How late the event loop wakes up.", LAG_BUCKETS)
        self._families.gauge("build_info", "1 for the version that runs.", "version").labels(server_version()).set(1)
        self._log_dropped = self._families.counter("log_dropped", "Log lines that could not be written.")

    # What the interceptor reports.

    def call_received(self, method: str) -> None:
        """A call began."""
        self._received(method).inc()
        self._in_flight(method).inc()

    def call_answered(self, method: str, model: str, code: str, duration_s: float, *, priority: str = "") -> None:
        """A call that was received ended.

        Args:
            priority: of its work; empty where it has none, or ended before that was known.
        """
        if code == "NOT_FOUND" and not model:  # whatever its name was
            model = OTHER
        self._in_flight(method).dec()
        self._answered(method, model, code).inc()
        self._duration(method, model, priority, _code_class(code)).observe(duration_s)

    def rejected(self, reason: str) -> None:
        """A call, or one text of it, was refused."""
        self._rejected(reason if reason in REJECT_REASONS else OTHER).inc()

    def client_used(
        self, client: str, *, texts: int, characters: int, source_tokens: int, target_tokens: int, row_steps: int
    ) -> None:
        """A client, by its label (`service.queue.usage.label_of`), had texts translated."""
        for name, amount in (("texts", texts), ("characters", characters), ("row_steps", row_steps)):
            self._used[name](client).inc(amount)
        self._used_tokens(client, "source").inc(source_tokens)
        self._used_tokens(client, "target").inc(target_tokens)

    def count_slow_request(self) -> None:
        """A call took longer than it should."""
        self._slow.inc()

    # What the server reports.

    def observe_lag(self, seconds: float) -> None:
        """The event loop woke up this much late."""
        self._lag.observe(seconds)
        self._lags.append(seconds)

    @property
    def recent_lag_s(self) -> float:
        """The worst lag of the last few seconds."""
        return max(self._lags, default=0.0)

    def count_dropped_line(self) -> None:
        """A line of the log is lost."""
        self._log_dropped.inc()

    @property
    def definitions(self) -> Sequence[Definition]:
        """Every family of ours, as it is documented."""
        return self._families.definitions

    def watch(self, name: str, read: Callable[[], float]) -> None:
        """Have a gauge of `WATCHED` read at each scrape."""
        self._watched[name].set_function(read)

    def exposition(self) -> Iterator[bytes]:
        """Everything in Prometheus' text format, a family at a time.

        All numbers are of the moment when the first is asked for; to write them takes longer than to read them, and
        calls can be let through meanwhile.
        """
        for family in list(self.registry.collect()):
            yield generate_latest(_Single(family))


@dataclass(frozen=True, slots=True)
class _Single(Collector):
    """A registry of one family that was read before."""

    family: Metric

    def collect(self) -> Iterable[Metric]:
        return (self.family,)


def _code_class(code: str) -> str:
    if code == "OK":
        return "ok"
    return "client_error" if code in _CLIENT_ERRORS else "server_error"


def server_version() -> str:
    """The version of the distribution that runs."""
    try:
        return version("dragoman")
    except PackageNotFoundError:
        return "unknown"
