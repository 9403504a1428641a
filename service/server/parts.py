"""Builds the parts of the scheduler process from the settings and connects them; starts nothing."""

import asyncio
import os
import time
from collections.abc import Callable
from typing import Literal

import grpc.aio

from protos.admin_pb2 import GetStatusResponse
from service.addresses import Address
from service.api.auth import authenticator
from service.api.grpc import admin, standard
from service.api.grpc.admin import DEFAULT_MAX_REQUESTS, AdminServicer, encode_status
from service.api.grpc.handlers import CallHandlers, handlers_of
from service.api.grpc.server import add_grpc_port, grpc_options, server_tls, warn_of_open_ports
from service.api.http.files import FileStore
from service.api.http.server import HttpServer
from service.api.http.server_status import ServerStatus, SharedPage, metrics_pages
from service.api.lifecycle import CallLifecycle
from service.config import ServerConfig
from service.models.call_scheduler import CallScheduler
from service.server.frontend import Frontend
from service.server.frontends import FrontendProcess, Frontends
from service.server.model_hosting import ModelParts
from service.server.process import num_frontends
from service.telemetry import load_traces
from service.telemetry.logs import log_level, set_log_level
from service.telemetry.metrics import server_version
from service.telemetry.usage import UsageMeter

CARD_NAME = "MODEL_CARD.md"  # in a bundle, beside what the server needs
MAX_ADMIN_SECONDS = 3_600.0  # of one call: a reload loads and tests every model
MAX_ADMIN_CALLS = 32


class Parts:
    """The parts of the scheduler process beside its models."""

    def __init__(self, config: ServerConfig, models: ModelParts) -> None:
        """Make all parts, or raise ValueError: a certificate, the file of API keys or a library cannot be used."""
        self.config, self.models = config, models
        self._began = time.monotonic()
        self._metrics = metrics = models.metrics
        self.usage_meter = UsageMeter(metrics)
        self.readiness = Readiness(self._can_work, config.lifecycle.unready_exit_s)
        status = OwnStatus(self)
        registry = models.registry
        cache = registry.translation_cache if config.limits.translation_cache_mb else None
        scheduler = CallScheduler(registry.catalogue, config.limits, cache)
        self.admission = scheduler.admission
        self.processes: list[FrontendProcess] = []  # of frontends; with a single one, which is in this process, none
        self.frontends: Frontend | Frontends
        if num_frontends(config) == 1:
            self.frontends = Frontend(config, scheduler, metrics, self.usage_meter, models.executor, status)
        else:
            load_traces(config.telemetry)  # raises here what it would raise in the other processes
            self.frontends = registry.frontends = Frontends(config, scheduler, metrics, self.usage_meter, status)
            self.processes = self.frontends.processes
            registry.model_cache.other_pids = self.frontends.pids
        metrics.watch("token_budget_used_ratio", lambda: self.admission.tokens / config.limits.max_queued_tokens)
        metrics.watch("edges_missing", lambda: sum(one.supervisor.is_missing for one in self.processes))
        metrics.watch("ready", lambda: self.readiness.is_ready)
        self.admin_server = self._admin_server()
        self._tls = server_tls(config.security)  # for the admin port; None: no encryption
        self.metrics_server = HttpServer(
            metrics_pages(status), max_connections=config.listen.max_http_connections
        )  # where metrics have a port of their own
        warn_of_open_ports(config)

    def _can_work(self) -> bool:
        has_frontend = not self.processes or any(process.is_up for process in self.processes)
        return has_frontend and self.models.registry.is_ready

    def _admin_server(self) -> grpc.aio.Server:
        config = self.config
        servicer = AdminServicer(self._read_status, self._set_log_level, self.models.reloader)
        methods = handlers_of(admin.SERVICE, servicer)
        if config.listen.reflection:
            methods |= standard.reflection_handlers((admin.SERVICE.full_name,), files=standard.ADMIN_FILES)
        lifecycle = CallLifecycle(self._metrics, authenticator=authenticator(config.security))
        calls = CallHandlers(methods, lifecycle, max_request_seconds=MAX_ADMIN_SECONDS, max_watches=MAX_ADMIN_CALLS)
        return grpc.aio.server(handlers=[calls], options=grpc_options(config), maximum_concurrent_rpcs=MAX_ADMIN_CALLS)

    async def start_admin(self, address: Address) -> int:
        """Take calls of operators, and return the port; raises ListenError."""
        port = add_grpc_port(self.admin_server, address, self._tls, "listen.admin_port")
        await self.admin_server.start()
        return port

    async def _read_status(self, max_requests: int) -> GetStatusResponse:
        most = max_requests or DEFAULT_MAX_REQUESTS
        calls, num_calls = await self.frontends.calls(most)
        now, registry = time.monotonic(), self.models.registry
        return encode_status(
            registry.versions,
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
            max_admitted_tokens=self.config.limits.max_queued_tokens,
            queued_work_s=max((one.pool.queued_work_s for one in registry.versions), default=0.0),
            event_loop_lag_s=max([self._metrics.recent_lag_s, *(process.lag_s for process in self.processes)]),
            log_level=log_level(),
        )

    def _set_log_level(self, level: str) -> str:
        previous = set_log_level(level)
        for process in self.processes:
            process.set_log_level(level)
        return previous


class Readiness:
    """Whether the server accepts work and can do it: for /readyz, /healthz, gRPC health and `dragoman status`.

    It accepts work between the end of the start and the drain, and is ready while there are engines and a frontend.
    """

    def __init__(self, has_engines: Callable[[], bool], unready_exit_s: float | None = None) -> None:
        """The process is not alive once a model has had no engine for longer than `unready_exit_s`; None: never."""
        self.is_accepting = False
        self.is_draining = False
        self._has_engines = has_engines
        self._unready_exit_s = unready_exit_s
        self._without_engines_since: float | None = None

    @property
    def is_ready(self) -> bool:
        """Whether calls are accepted and every model has an engine."""
        return self.is_accepting and self._has_engines()

    @property
    def state(self) -> Literal["starting", "serving", "degraded", "draining"]:
        """The state of the server in one word."""
        if self.is_draining:
            return "draining"
        if not self.is_accepting:
            return "starting"
        return "serving" if self._has_engines() else "degraded"

    def drain(self) -> None:
        """Accept no more work."""
        self.is_accepting = False
        self.is_draining = True

    def observe(self, now: float) -> bool:
        """Note and return whether every model has an engine; called several times a second while serving."""
        has_engines = self._has_engines()
        if has_engines:
            self._without_engines_since = None
        elif self._without_engines_since is None:
            self._without_engines_since = now
        return has_engines

    def is_alive(self, now: float) -> bool:
        """Return False when only a restart can help; starting and draining take the time that they take."""
        since = self._without_engines_since
        if since is None or self._unready_exit_s is None or not self.is_accepting:
            return True
        return now - since <= self._unready_exit_s


class OwnStatus(FileStore, ServerStatus):
    """The `ServerStatus` in the scheduler process; keeps the files that any frontend has translated."""

    def __init__(self, parts: Parts) -> None:
        """Keep no file yet."""
        super().__init__()
        self._parts = parts
        self._metrics = parts.models.metrics
        self._page = SharedPage(self._metrics.exposition, self._refresh)

    async def _refresh(self) -> None:
        """Return when everything that other processes have counted is in the metrics of this one."""
        await asyncio.gather(*(process.count() for process in self._parts.processes))

    async def page(self) -> bytes:
        return await self._page.read()

    async def is_ready(self) -> bool:
        return self._parts.readiness.is_ready

    async def is_alive(self) -> bool:
        return self._parts.readiness.is_alive(time.monotonic())

    async def busyness(self) -> dict[str, float]:
        await self._refresh()
        families = self._metrics.families
        return {
            "queued": sum(number for (number,) in families.watched["queue_requests"].sums().values()),
            "rows": sum(number for (number,) in families.watched["live_rows"].sums().values()),
            "tokens": sum(
                number for (_, direction), (number,) in families.tokens.sums().items() if direction == "target"
            ),
        }

    async def characters_of(self, client: str) -> int:
        await self._refresh()
        return self._metrics.characters_of(client)

    async def card_of(self, model: str) -> str | None:
        models = self._parts.models.registry.models
        directories = [one.bundle.directory for one in models if one.info.name == model]
        card = directories[0] / CARD_NAME if directories else None
        return card.read_text(encoding="utf-8") if card and card.is_file() else None
