"""OpenTelemetry traces: a span for each call and one for each of its phases, made once the call has ended.

Imported only where telemetry.otlp_endpoint is set; the libraries come with the extra `otel`.  Spans hold numbers and
names, no texts.  Whether a call is recorded follows its caller's traceparent; without one it is.
"""

import logging
import time

from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from service.call import PHASES, Call
from service.telemetry.logs import get_logger
from service.telemetry.metrics import server_version

EXPORT_TIMEOUT_S = 2.0  # of one attempt, and so the most that the end of a server may wait for it
# Codes by which a server has failed, not its caller; opentelemetry.io/docs/specs/semconv/rpc/grpc
_SERVER_ERRORS = frozenset({"UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"})
_NS = 1_000_000_000


class Traces:
    """Sends spans of ended calls; a `CallObserver`."""

    def __init__(self, exporter: SpanExporter) -> None:
        resource = Resource.create({"service.name": "dragoman", "service.version": server_version()})
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._processor = BatchSpanProcessor(exporter, export_timeout_millis=EXPORT_TIMEOUT_S * 1e3)
        self._provider.add_span_processor(self._processor)
        self._tracer = self._provider.get_tracer("dragoman", server_version())
        self._propagator = TraceContextTextMapPropagator()

    @classmethod
    def to(cls, endpoint: str) -> "Traces":
        """Traces that go to this collector over gRPC; "http://" in front means without TLS."""
        logger = logging.getLogger("opentelemetry")
        logger.handlers = [_ToOurLog(logging.WARNING)]
        logger.propagate = False
        insecure = not endpoint.startswith("https://")
        return cls(OTLPSpanExporter(endpoint=endpoint, insecure=insecure, timeout=EXPORT_TIMEOUT_S))

    def __call__(self, call: Call) -> None:
        """Record a call that has ended; nothing is sent in this thread."""
        end_ns = time.time_ns()  # spans of several machines meet: no monotonic clock does that
        start_ns = end_ns - round(call.duration_s * _NS)
        parent = self._propagator.extract(dict(call.trace_headers))
        span = self._tracer.start_span(
            call.method, parent, kind=SpanKind.SERVER, attributes=_attributes(call), start_time=start_ns
        )
        if span.is_recording():
            if call.code in _SERVER_ERRORS:
                span.set_status(Status(StatusCode.ERROR, call.code))
            if call.has_phases:
                context = set_span_in_context(span)
                for name in PHASES:  # one behind the other: each is the longest of the request's texts
                    phase = self._tracer.start_span(name, context, start_time=start_ns)
                    start_ns += round(getattr(call, f"{name}_s") * _NS)
                    phase.end(start_ns)
        span.end(end_ns)

    def close(self) -> None:
        """Send what is left; returns after at most about `EXPORT_TIMEOUT_S`, sent or not."""
        self._processor.force_flush(round(EXPORT_TIMEOUT_S * 1e3))
        self._provider.shutdown()


def _attributes(call: Call) -> dict[str, str | int]:
    return {
        "rpc.system.name": "grpc",  # these three: opentelemetry.io/docs/specs/semconv/rpc
        "rpc.method": call.method,
        "rpc.response.status_code": call.code,
        "dragoman.request_id": call.request_id,
        "dragoman.client": call.caller.name,
        "dragoman.model": call.model,
        "dragoman.texts": call.texts,
        "dragoman.source_tokens": call.source_tokens,
        "dragoman.target_tokens": call.target_tokens,
    }


class _ToOurLog(logging.Handler):
    """The library's own log lines as events of ours."""

    def emit(self, record: logging.LogRecord) -> None:
        get_logger().warning("opentelemetry", level_name=record.levelname, message=record.getMessage())
