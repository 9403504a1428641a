"""Builds the parts of a front process from its settings and connects them; starts nothing."""

import asyncio
import os
import time

import grpc.aio

from protos.admin_pb2 import GetStatusResponse
from service.config import LimitsConfig, ServerConfig
from service.grpc import admin_servicer, health, reflection, servicer, stream_servicer
from service.grpc.admin_servicer import AdminServicer, encode_status
from service.grpc.authentication import authenticator
from service.grpc.call_handlers import CallHandlers
from service.grpc.health import Health
from service.grpc.listening import Address, grpc_options
from service.grpc.servicer import TranslationServicer
from service.grpc.stream_servicer import StreamServicer
from service.grpc.tls import server_tls, warn_of_open_ports
from service.http.app import create_apps
from service.http.server import HttpServer
from service.queue.admission import Admission
from service.queue.waiting_lines import WaitingLines
from service.server.model_hosting import ModelParts
from service.server.readiness import Readiness
from service.telemetry.logs import log_level
from service.telemetry.metrics import Metrics, server_version
from service.telemetry.observers import CallObserver, SlowCalls, load_traces
from service.translation.account import Account
from service.translation.pipeline import Pipeline

MAX_ADMIN_SECONDS = 3_600.0  # of one call: a reload loads and tests every model
MAX_ADMIN_CALLS = 32


class Parts:
    """The parts of a front process beside its models; admission stays closed until the models are loaded."""

    def __init__(self, config: ServerConfig, models: ModelParts) -> None:
        """Make all parts, or raise ValueError: a certificate, the file of API keys or a library cannot be used."""
        self._config, self._models = config, models
        self._began = time.monotonic()
        metrics, registry, limits = models.metrics, models.registry, config.limits
        lines = WaitingLines()
        self.all_left = asyncio.Event()  # set whenever the last call leaves admission
        self.admission = Admission(limits, on_empty=self.all_left.set, on_leave=lines.departed)
        self.admission.close("the server is starting", reason="starting")
        self.readiness = Readiness(lambda: registry.is_ready, config.lifecycle.unready_exit_s)
        traces_class = load_traces(config.telemetry)
        self.traces = traces_class.to(config.telemetry.otlp_endpoint or "") if traces_class else None
        observers: list[CallObserver] = [self.traces] if self.traces else []
        slow_s = config.telemetry.slow_request_s
        slow_calls = None if slow_s is None else SlowCalls(slow_s, count=metrics.families.slow_requests.inc)
        guard = authenticator(config.security)
        self.account, self.health = Account(metrics), Health((servicer.SERVICE_NAME,))
        pipeline = Pipeline(registry.catalogue, self.admission, self.account, limits, models.executor)
        self.streams = StreamServicer(pipeline, lines, metrics)
        methods = {
            **servicer.handlers(TranslationServicer(pipeline)),
            **stream_servicer.handlers(self.streams),
            **health.handlers(self.health),
        }
        admin_methods = admin_servicer.handlers(AdminServicer(self._read_status, models.reloader))
        if config.listen.reflection:
            methods |= reflection.handlers((servicer.SERVICE_NAME, health.SERVICE_NAME))
            admin_methods |= reflection.handlers((admin_servicer.SERVICE_NAME,), files=reflection.ADMIN_FILES)
        self.call_handlers, admin_handlers = (
            CallHandlers(
                served,
                metrics,
                max_request_seconds=limit,
                own_limits={stream_servicer.METHOD: limits.max_stream_seconds, **health.OWN_LIMITS},
                authenticator=guard,
                observers=observers,
                slow_calls=slow_calls,
            )
            for served, limit in ((methods, limits.max_request_seconds), (admin_methods, MAX_ADMIN_SECONDS))
        )
        self.grpc_server = _grpc_server(config, self.call_handlers, max_calls(limits))
        self.admin_server = _grpc_server(config, admin_handlers, MAX_ADMIN_CALLS)
        warn_of_open_ports(config)
        metrics.watch("token_budget_used_ratio", lambda: self.admission.tokens / limits.max_queued_tokens)
        metrics.watch("ready", lambda: self.readiness.is_ready)
        self.tls = server_tls(config.security)  # for every gRPC port; None: no encryption
        self.http_servers = _http_servers(config, metrics, self.readiness)  # by the name of the port

    def _read_status(self, max_requests: int) -> GetStatusResponse:
        now, registry = time.monotonic(), self._models.registry
        return encode_status(
            registry.hosts,
            registry.refusals,
            tuple(self.call_handlers.calls),
            now=now,
            max_requests=max_requests,
            version=server_version(),
            pid=os.getpid(),
            uptime_s=now - self._began,
            state=self.readiness.state,
            admitted_tokens=self.admission.tokens,
            max_admitted_tokens=self._config.limits.max_queued_tokens,
            queued_work_s=max((host.dispatcher.queued_work_s for host in registry.hosts), default=0.0),
            event_loop_lag_s=self._models.metrics.recent_lag_s,
            log_level=log_level(),
        )


def max_calls(limits: LimitsConfig) -> int:
    """Maximum number of calls at a time that gRPC accepts, behind the limits of admission."""
    return 2 * (limits.max_concurrent_requests + limits.max_streams) + 256


def _grpc_server(config: ServerConfig, handlers: CallHandlers, limit: int) -> grpc.aio.Server:
    return grpc.aio.server(handlers=[handlers], options=grpc_options(config), maximum_concurrent_rpcs=limit)


def _http_servers(
    config: ServerConfig, metrics: Metrics, readiness: Readiness
) -> dict[str, tuple[Address, HttpServer]]:
    listen = config.listen
    app, metrics_app = create_apps(
        metrics.exposition,
        is_ready=lambda: readiness.is_ready,
        is_alive=lambda: readiness.is_alive(time.monotonic()),
        max_body_bytes=config.limits.max_message_bytes,
        separate_metrics=listen.metrics_port is not None,
    )
    servers = {}
    if listen.http:
        server = HttpServer(app, max_connections=listen.max_http_connections)
        servers["http_port"] = Address(listen.http_host, listen.http_port), server
    if listen.metrics_port is not None:
        server = HttpServer(metrics_app, max_connections=listen.max_http_connections)
        servers["metrics_port"] = Address(listen.metrics_host, listen.metrics_port), server
    return servers
