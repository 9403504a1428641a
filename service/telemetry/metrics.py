"""The numbers of one server: calls, refusals, the process; and, by model, `model_metrics`."""

from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version

from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector, disable_created_metrics
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from service.telemetry.families import OTHER, Families
from service.telemetry.logs import num_lost_lines
from service.telemetry.model_metrics import ModelMetrics, WorkFamilies

CONTENT_TYPE = CONTENT_TYPE_LATEST

LATENCY_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 30, 60)
LAG_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1)

REJECT_REASONS = ("queue_full", "token_budget", "streams", "starting", "draining", "too_long")
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

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series for each one, which nobody asked for
        self.registry = CollectorRegistry()
        self._families = Families(self.registry)
        self._define_calls()
        self._define_process()
        self._work = WorkFamilies(self._families, self.rejected)
        self._models: dict[str, ModelMetrics] = {}

    def model(self, name: str) -> ModelMetrics:
        """The series of one model."""
        if name not in self._models:
            self._models[name] = ModelMetrics(name, self._work)
        return self._models[name]

    def _define_calls(self) -> None:
        self._received = self._families.counter("requests_received", "Calls that reached a handler.", "method")
        self._answered = self._families.counter("requests", "Calls that ended.", "method", "model", "code")
        self._in_flight = self._families.gauge("requests_in_flight", "Calls received and not ended.", "method")
        self._duration = self._families.histogram(
            "request_duration_seconds", "Whole calls in the server.", LATENCY_BUCKETS, "model", "code_class"
        )
        self._rejected = self._families.counter("rejected", "Calls, and too long texts, that were refused.", "reason")
        for reason in REJECT_REASONS:
            self._rejected.labels(reason)

    def _define_process(self) -> None:
        ProcessCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        self._lag = self._families.histogram("event_loop_lag_seconds", "How late the event loop wakes up.", LAG_BUCKETS)
        self.watch("log_lines_lost", "Lines of the log that could not be written.", num_lost_lines)
        self._families.gauge("build_info", "The running version.", "version").labels(_version()).set(1)

    # What the interceptor reports.

    def call_received(self, method: str) -> None:
        """A call began."""
        self._received.labels(method).inc()
        self._in_flight.labels(method).inc()

    def call_answered(self, method: str, model: str, code: str, duration_s: float) -> None:
        """A call that was received ended."""
        self._in_flight.labels(method).dec()
        self._answered.labels(method, model, code).inc()
        self._duration.labels(model, _code_class(code)).observe(duration_s)

    def rejected(self, reason: str) -> None:
        """A call, or one text of it, was refused."""
        self._rejected.labels(reason if reason in REJECT_REASONS else OTHER).inc()

    # What the server reports.

    def observe_lag(self, seconds: float) -> None:
        """The event loop woke up this much late."""
        self._lag.observe(seconds)

    def watch(self, name: str, description: str, read: Callable[[], float]) -> None:
        """Define a gauge that is read at each scrape."""
        self._families.gauge(name, description).set_function(read)

    def exposition(self) -> bytes:
        """Everything in Prometheus' text format."""
        return generate_latest(self.registry)


def _code_class(code: str) -> str:
    if code == "OK":
        return "ok"
    return "client_error" if code in _CLIENT_ERRORS else "server_error"


def _version() -> str:
    try:
        return version("dragoman")
    except PackageNotFoundError:
        return "unknown"
