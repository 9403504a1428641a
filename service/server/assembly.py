"""Builds the parts of the core from the settings and connects them; starts nothing."""

import asyncio
import os
import time
from collections.abc import Sequence

import grpc.aio
from starlette.routing import Route

from protos.admin_pb2 import GetStatusResponse
from service.addresses import Address, is_loopback
from service.calls.authentication import authenticator
from service.calls.book import CallBook, oldest
from service.config import ListenConfig, ServerConfig
from service.edges.core import Core
from service.edges.messages import ServingState
from service.edges.pool import EdgePool
from service.grpc import admin_servicer, reflection
from service.grpc.admin_servicer import DEFAULT_MAX_REQUESTS, AdminServicer, encode_status
from service.grpc.call_handlers import CallHandlers
from service.grpc.listening import grpc_options
from service.grpc.tls import server_tls, warn_of_open_ports
from service.http.app import create_apps
from service.http.calls import HttpCalls
from service.http.console.routes import Console
from service.http.deepl import DeepL
from service.http.libretranslate import LibreTranslate
from service.http.operations import routes_of
from service.http.server import HttpServer
from service.server import edge_process
from service.server.call_parts import CallParts
from service.server.edge_server import EdgeServer
from service.server.model_hosting import ModelParts, num_edges
from service.server.readiness import Readiness
from service.telemetry.logs import log_level, set_log_level
from service.telemetry.metrics import Metrics, server_version
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
        self.edges: EdgeServer | EdgePool
        if (number := num_edges(config.listen)) == 1:
            core = Core(registry.catalogue, limits)
            self.admission = core.admission
            self.edges = EdgeServer(config, core, metrics, self.account, models.executor)
            self._call_parts = self.edges.call_parts
        else:
            line = edge_process.command_line
            self.edges = EdgePool(config, num_edges=number, command_line=line, metrics=metrics, account=self.account)
            self.admission = self.edges.admission
            models.residents.other_pids = self.edges.pids
            self._call_parts = CallParts(
                config, registry.catalogue, self.admission, metrics, self.account, models.executor
            )
        admin_book = CallBook(metrics, authenticator=authenticator(config.security))
        admin_methods = admin_servicer.handlers(AdminServicer(self._read_status, self._set_log_level, models.reloader))
        if config.listen.reflection:
            admin_methods |= reflection.handlers((admin_servicer.SERVICE_NAME,), files=reflection.ADMIN_FILES)
        self.admin_server = grpc.aio.server(
            handlers=[CallHandlers(admin_methods, admin_book, max_request_seconds=MAX_ADMIN_SECONDS)],
            options=grpc_options(config),
            maximum_concurrent_rpcs=MAX_ADMIN_CALLS,
        )
        warn_of_open_ports(config)
        metrics.watch("token_budget_used_ratio", lambda: self.admission.tokens / limits.max_queued_tokens)
        metrics.watch("edges_missing", lambda: self.edges.missing)
        metrics.watch("ready", lambda: self.readiness.is_ready)
        self.tls = server_tls(config.security)  # for the admin port; None: no encryption
        self.http_calls = HttpCalls(
            self._call_parts.book,
            max_request_seconds=limits.max_request_seconds,
            max_body_bytes=limits.max_message_bytes,
            refuse=self._call_parts.pipeline.refusal,
        )
        dialect = LibreTranslate(
            self._call_parts.router,
            limits,
            has_keys=config.security.api_keys is not None,
            is_ready=lambda: self.readiness.is_ready,
        )
        deepl = DeepL(self._call_parts.router, metrics.characters_of)
        routes = [*routes_of(self.http_calls, [*dialect.operations(), *deepl.operations()]), *dialect.pages()]
        if has_console(config.listen):
            routes += self._console(metrics).routes(self.http_calls)
        self.http_servers = _http_servers(
            config, metrics, self.readiness, self.edges, routes
        )  # by the name of the port

    async def set_state(self, state: ServingState) -> None:
        """Let calls in or refuse them, whatever their protocol, and say in health what the server is."""
        self.http_calls.refusal = state.refusal
        await self.edges.set_state(state)

    async def all_left(self) -> None:
        """Once every new call is refused: return when every call has been answered."""
        await asyncio.gather(self.edges.all_left(), self.http_calls.all_left())

    async def finish(self) -> None:
        """Return when everything is sent, see `EdgeServer.finish`."""
        if isinstance(self.edges, EdgePool):
            await self._call_parts.close_traces()
        await self.edges.finish()

    def _console(self, metrics: Metrics) -> Console:
        def card_of(name: str) -> str | None:
            found = [
                host.bundle.directory / CARD_NAME for host in self._models.registry.models if host.info.name == name
            ]
            return found[0].read_text(encoding="utf-8") if found and found[0].is_file() else None

        return Console(self._call_parts.router, metrics, refresh=self.edges.refresh, card_of=card_of)

    async def _read_status(self, max_requests: int) -> GetStatusResponse:
        most = max_requests or DEFAULT_MAX_REQUESTS
        calls, num_calls = await self.edges.calls(most)
        if isinstance(self.edges, EdgePool):  # whose calls are not those of this process
            calls = oldest([*calls, *self._call_parts.book.calls], most)
            num_calls += len(self._call_parts.book.calls)
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


def has_console(listen: ListenConfig) -> bool:
    """Whether the page at / is served: as `listen.console` says, else where only this machine can see it."""
    return is_loopback(listen.http_host) if listen.console is None else listen.console


def _http_servers(
    config: ServerConfig, metrics: Metrics, readiness: Readiness, edges: EdgeServer | EdgePool, calls: Sequence[Route]
) -> dict[str, tuple[Address, HttpServer]]:
    listen = config.listen
    app, metrics_app = create_apps(
        metrics.exposition,
        refresh=edges.refresh,
        is_ready=lambda: readiness.is_ready,
        is_alive=lambda: readiness.is_alive(time.monotonic()),
        separate_metrics=listen.metrics_port is not None,
        calls=calls,
        cors_origins=listen.cors_origins,
    )
    servers = {}
    if listen.http:
        server = HttpServer(app, max_connections=listen.max_http_connections)
        servers["http_port"] = Address(listen.http_host, listen.http_port), server
    if listen.metrics_port is not None:
        server = HttpServer(metrics_app, max_connections=listen.max_http_connections)
        servers["metrics_port"] = Address(listen.metrics_host, listen.metrics_port), server
    return servers
