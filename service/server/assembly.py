"""Builds the parts of the core from the settings and connects them; starts nothing."""

import os
import time

import grpc.aio

from protos.admin_pb2 import GetStatusResponse
from service.calls.authentication import authenticator
from service.calls.book import CallBook
from service.config import ServerConfig
from service.edges import num_edges
from service.edges.core import Core
from service.edges.pool import EdgePool
from service.grpc import admin_servicer, reflection
from service.grpc.admin_servicer import DEFAULT_MAX_REQUESTS, AdminServicer, encode_status
from service.grpc.call_handlers import CallHandlers
from service.grpc.listening import grpc_options
from service.grpc.tls import server_tls, warn_of_open_ports
from service.http.app import create_app
from service.http.server import HttpServer
from service.http.whole_server import WholeServer, metrics_pages
from service.server import edge_process
from service.server.edge_server import EdgeServer
from service.server.model_hosting import ModelParts
from service.server.readiness import Readiness
from service.telemetry.logs import log_level, set_log_level
from service.telemetry.metrics import server_version
from service.telemetry.observers import load_traces
from service.translation.account import Account

CARD_NAME = "MODEL_CARD.md"  # in a bundle, beside what the server needs
MAX_ADMIN_SECONDS = 3_600.0  # of one call: a reload loads and tests every model
MAX_ADMIN_CALLS = 32


class Parts:
    """The parts of the core beside its models; the edges refuse calls until the models are loaded."""

    def __init__(self, config: ServerConfig, models: ModelParts) -> None:
        """Make all parts, or raise ValueError: a certificate, the file of API keys or a library cannot be used."""
        self._config, self._models = config, models
        self._began = time.monotonic()
        metrics, registry, limits = models.metrics, models.registry, config.limits
        self.readiness = Readiness(lambda: registry.is_ready and self.edges.is_up, config.lifecycle.unready_exit_s)
        self.account = Account(metrics)
        whole = WholeServer(
            metrics,
            refresh=lambda: self.edges.refresh(),  # noqa: PLW0108 - there are no edges yet
            is_ready=lambda: self.readiness.is_ready,
            is_alive=lambda: self.readiness.is_alive(time.monotonic()),
            card_of=self._card_of,
        )
        self.edges: EdgeServer | EdgePool
        if (number := num_edges(config.listen)) == 1:
            core = Core(registry.catalogue, limits)
            self.admission = core.admission
            self.edges = EdgeServer(config, core, metrics, self.account, models.executor, whole)
        else:
            load_traces(config.telemetry)  # raises here what it would raise in the edges
            self.edges = EdgePool(
                config,
                num_edges=number,
                command_line=edge_process.command_line,
                whole=whole,
                metrics=metrics,
                account=self.account,
            )
            self.admission = self.edges.admission
            models.residents.other_pids = self.edges.pids
        admin_book = CallBook(metrics, authenticator=authenticator(config.security))
        admin_methods = admin_servicer.handlers(AdminServicer(self._read_status, self._set_log_level, models.reloader))
        if config.listen.reflection:
            admin_methods |= reflection.handlers((admin_servicer.SERVICE_NAME,), files=reflection.ADMIN_FILES)
        self.admin_server = grpc.aio.server(
            handlers=[
                CallHandlers(
                    admin_methods, admin_book, max_request_seconds=MAX_ADMIN_SECONDS, max_watches=MAX_ADMIN_CALLS
                )
            ],
            options=grpc_options(config),
            maximum_concurrent_rpcs=MAX_ADMIN_CALLS,
        )
        warn_of_open_ports(config)
        metrics.watch("token_budget_used_ratio", lambda: self.admission.tokens / limits.max_queued_tokens)
        metrics.watch("edges_missing", lambda: self.edges.missing)
        metrics.watch("ready", lambda: self.readiness.is_ready)
        self.tls = server_tls(config.security)  # for the admin port; None: no encryption
        self.metrics_server = HttpServer(
            create_app(metrics_pages(whole)), max_connections=config.listen.max_http_connections
        )  # where metrics have a port of their own

    def _card_of(self, model: str) -> str | None:
        directories = [host.bundle.directory for host in self._models.registry.models if host.info.name == model]
        card = directories[0] / CARD_NAME if directories else None
        return card.read_text(encoding="utf-8") if card and card.is_file() else None

    async def _read_status(self, max_requests: int) -> GetStatusResponse:
        most = max_requests or DEFAULT_MAX_REQUESTS
        calls, num_calls = await self.edges.calls(most)
        now, registry = time.monotonic(), self._models.registry
        return encode_status(
            registry.hosts,
            registry.refusals,
            calls,
            now=now,
            max_requests=max_requests,
            num_requests=num_calls,
            version=server_version(),
            pid=os.getpid(),
            uptime_s=now - self._began,
            state=self.readiness.state,
            admitted_tokens=self.admission.tokens,
            max_admitted_tokens=self._config.limits.max_queued_tokens,
            queued_work_s=max((host.dispatcher.queued_work_s for host in registry.hosts), default=0.0),
            event_loop_lag_s=max(self._models.metrics.recent_lag_s, self.edges.recent_lag_s),
            log_level=log_level(),
        )

    def _set_log_level(self, level: str) -> str:
        previous = set_log_level(level)
        self.edges.set_log_level(level)
        return previous
