"""What an operator can see of a front process: the admin server, and who looks at each call that ends."""

import os
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import grpc.aio

from service.config import ServerConfig
from service.extras import how_to_install
from service.grpc import admin_servicer, reflection
from service.grpc.admin_servicer import AdminServicer, ServerSnapshot
from service.grpc.interceptors import CallInterceptor
from service.grpc.listening import grpc_options
from service.queue.admission import Admission
from service.registry.registry import ModelSnapshot
from service.registry.reloader import Reloader
from service.server.readiness import Readiness
from service.telemetry.calls import CallObserver
from service.telemetry.logs import log_level
from service.telemetry.metrics import Metrics, server_version
from service.telemetry.slow_calls import SlowCalls

if TYPE_CHECKING:
    from service.telemetry.traces import Traces

MAX_ADMIN_SECONDS = 3_600.0  # of one call: a reload loads and tests every model
_MAX_ADMIN_CALLS = 32


class StatusReader:
    """Takes snapshots of a front process."""

    def __init__(
        self,
        *,
        config: ServerConfig,
        metrics: Metrics,
        interceptor: CallInterceptor,
        admission: Admission,
        readiness: Readiness,
        models: Callable[[], Sequence[ModelSnapshot]],
        queued_work_s: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """Know whom to ask.

        Args:
            queued_work_s: estimated time of what was admitted.
        """
        self._config = config
        self._metrics = metrics
        self._interceptor = interceptor
        self._admission = admission
        self._readiness = readiness
        self._models = models
        self._queued_work_s = queued_work_s
        self._started = time.monotonic()

    def __call__(self) -> ServerSnapshot:
        """The server as it is now."""
        return ServerSnapshot(
            version=server_version(),
            pid=os.getpid(),
            uptime_s=time.monotonic() - self._started,
            state=self._readiness.state,
            models=self._models(),
            calls=tuple(self._interceptor.calls),
            admitted_tokens=self._admission.tokens,
            max_admitted_tokens=self._config.limits.max_queued_tokens,
            queued_work_s=self._queued_work_s(),
            event_loop_lag_s=self._metrics.recent_lag_s,
            log_level=log_level(),
        )


def open_traces(config: ServerConfig) -> "Traces | None":
    """Where traces go, None for nowhere; the libraries are loaded only if they go somewhere.

    Raises:
        ValueError: the libraries are missing.
    """
    endpoint = config.telemetry.otlp_endpoint
    if endpoint is None:
        return None
    return _library_for(endpoint).to(endpoint)


def require_trace_library(config: ServerConfig) -> None:
    """Say it before a start if the libraries for traces are needed and missing.

    Raises:
        ValueError: they are.
    """
    if config.telemetry.otlp_endpoint is not None:
        _library_for(config.telemetry.otlp_endpoint)


def _library_for(endpoint: str) -> "type[Traces]":
    try:
        from service.telemetry.traces import Traces  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise ValueError(
            f"telemetry.otlp_endpoint is {endpoint!r} and {error.name} is not installed: {how_to_install('otel')}"
        ) from error
    return Traces


def call_observers(config: ServerConfig, metrics: Metrics, traces: "Traces | None") -> list[CallObserver]:
    """Who is told of each call that has ended."""
    observers: list[CallObserver] = [] if traces is None else [traces]
    threshold_s = config.telemetry.slow_request_s
    if threshold_s is not None:
        observers.append(SlowCalls(threshold_s, count=metrics.count_slow_request))
    return observers


def admin_server(
    config: ServerConfig, interceptor: CallInterceptor, read: Callable[[], ServerSnapshot], reloader: Reloader
) -> grpc.aio.Server:
    """A server for operators alone.

    Args:
        interceptor: with the same books as the other server's, and with a limit of `MAX_ADMIN_SECONDS`.
    """
    server = grpc.aio.server(
        interceptors=[interceptor],
        options=grpc_options(config),
        maximum_concurrent_rpcs=_MAX_ADMIN_CALLS,
    )
    admin_servicer.add_to_server(AdminServicer(read, reloader), server)
    if config.listen.reflection:
        reflection.add_to_server((admin_servicer.SERVICE_NAME,), server, files=reflection.ADMIN_FILES)
    return server
