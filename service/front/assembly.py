"""Builds the parts of a front process from its settings and connects them; starts nothing."""

import asyncio
import time
from dataclasses import dataclass
from http import HTTPStatus

import grpc.aio

from service.api import health, reflection, servicer
from service.api.authentication import authenticator
from service.api.health import Health
from service.api.interceptors import CallInterceptor
from service.api.servicer import TranslationServicer
from service.config import ServerConfig
from service.front.http_server import HttpServer, Page
from service.front.listening import grpc_options
from service.front.model_hosting import Models
from service.front.readiness import Readiness
from service.front.tls import ServerTls, server_tls, warn_of_readable_keys
from service.telemetry.metrics import CONTENT_TYPE
from service.traffic.admission import Admission

METHODS = frozenset(
    {
        f"{servicer.SERVICE_NAME}/Translate",
        f"{servicer.SERVICE_NAME}/ListModels",
        *(f"{health.SERVICE_NAME}/{name}" for name in ("Check", "Watch", "List")),
        *(f"{name}/ServerReflectionInfo" for name in reflection.SERVICE_NAMES),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a front process has beside its models."""

    admission: Admission
    all_left: asyncio.Event  # set whenever the last call leaves admission
    health: Health
    readiness: Readiness
    interceptor: CallInterceptor
    grpc_server: grpc.aio.Server
    tls: ServerTls | None  # for every gRPC port; None: no encryption
    http_server: HttpServer


def assemble(config: ServerConfig, models: Models) -> Parts:
    """All parts, with admission closed until the models are loaded.

    Raises:
        ValueError: a certificate or the file of API keys cannot be used.
    """
    metrics, reloader = models.metrics, models.reloader
    all_left, readiness = asyncio.Event(), Readiness(config.lifecycle.unready_exit_s)
    admission = Admission(config.limits, on_empty=all_left.set)
    admission.close("the server is starting", reason="starting")
    interceptor = CallInterceptor(
        metrics,
        methods=METHODS,
        max_request_seconds=config.limits.max_request_seconds,
        authenticator=authenticator(config.security),
    )
    translation = TranslationServicer(reloader.catalog, admission, metrics)
    checks = Health((servicer.SERVICE_NAME,))
    warn_of_readable_keys(config)
    max_tokens = config.limits.max_queued_tokens
    metrics.watch("token_budget_used_ratio", "Admitted source tokens / limit.", lambda: admission.tokens / max_tokens)
    return Parts(
        admission=admission,
        all_left=all_left,
        health=checks,
        readiness=readiness,
        interceptor=interceptor,
        grpc_server=_grpc_server(config, interceptor, translation, checks),
        tls=server_tls(config.security),
        http_server=_http_server(config, models, readiness),
    )


def _grpc_server(
    config: ServerConfig, interceptor: CallInterceptor, translation: TranslationServicer, checks: Health
) -> grpc.aio.Server:
    server = grpc.aio.server(
        interceptors=[interceptor],
        options=grpc_options(config),
        maximum_concurrent_rpcs=2 * config.limits.max_concurrent_requests + 256,  # a last belt behind admission
    )
    servicer.add_to_server(translation, server)
    health.add_to_server(checks, server)
    if config.listen.reflection:
        reflection.add_to_server((servicer.SERVICE_NAME, health.SERVICE_NAME), server)
    return server


def _http_server(config: ServerConfig, models: Models, readiness: Readiness) -> HttpServer:
    def ready() -> Page:
        return _status(readiness.is_accepting and models.reloader.is_ready, b"ready\n", b"not ready\n")

    def alive() -> Page:
        return _status(readiness.is_alive(time.monotonic()), b"alive\n", b"no engine for too long\n")

    pages = {
        "/metrics": lambda: Page(HTTPStatus.OK, models.metrics.exposition(), CONTENT_TYPE),
        "/healthz": alive,
        "/readyz": ready,
    }
    return HttpServer(pages, max_connections=config.listen.max_http_connections)


def _status(is_good: bool, good: bytes, bad: bytes) -> Page:
    return Page(HTTPStatus.OK, good) if is_good else Page(HTTPStatus.SERVICE_UNAVAILABLE, bad)
