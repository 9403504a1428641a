"""Builds the parts of a front process from its settings and connects them; starts nothing."""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from dataclasses import replace as with_changes
from http import HTTPStatus

import grpc.aio

from model.bundle import Bundle
from service.api import admin_servicer, health, reflection, servicer, stream_servicer
from service.api.authentication import authenticator
from service.api.health import Health
from service.api.interceptors import CallInterceptor
from service.api.servicer import TranslationServicer
from service.api.stream_servicer import StreamServicer
from service.config import ServerConfig
from service.dispatch.dispatcher import Dispatcher
from service.engine.device import Device
from service.front.diagnosis import MAX_ADMIN_SECONDS, StatusReader, admin_server, call_observers, open_traces
from service.front.engine_start import Engines
from service.front.http_server import HttpServer, Page
from service.front.listening import grpc_options
from service.front.readiness import Readiness
from service.front.tls import ServerTls, server_tls, warn_of_readable_keys
from service.models.catalog import Catalog, LoadedModel
from service.models.codec import TextCodec
from service.models.model_info import describe, load_tokenizer
from service.models.snapshot import ModelSnapshot
from service.models.translator import Translator
from service.telemetry.logs import get_logger
from service.telemetry.metrics import CONTENT_TYPE, Metrics
from service.traffic.admission import Admission
from service.traffic.room import Room
from service.translation import ModelInfo

TOKENIZER_THREADS = 2

METHODS = frozenset(
    {
        f"{servicer.SERVICE_NAME}/Translate",
        f"{servicer.SERVICE_NAME}/ListModels",
        stream_servicer.METHOD,
        *(f"{health.SERVICE_NAME}/{name}" for name in ("Check", "Watch", "List")),
        *(f"{name}/ServerReflectionInfo" for name in reflection.SERVICE_NAMES),
        *admin_servicer.METHODS,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a front process has beside its engines."""

    info: ModelInfo
    admission: Admission
    all_left: asyncio.Event  # set whenever the last call leaves admission
    executor: Executor
    health: Health
    readiness: Readiness
    interceptor: CallInterceptor
    streams: StreamServicer
    grpc_server: grpc.aio.Server
    tls: ServerTls | None  # for every gRPC port; None: no encryption
    admin_server: grpc.aio.Server
    http_server: HttpServer
    close_traces: Callable[[], None]  # sends what is left of them; waits for that


def assemble(config: ServerConfig, engines: Engines) -> Parts:
    """All parts, with admission closed until the engines are warm.

    Raises:
        ValueError: the bundle's tokenizer, a certificate or the file of API keys cannot be used, or traces are wanted
            without their libraries.
    """
    bundle, metrics, dispatcher = engines.bundle, engines.metrics, engines.dispatcher
    if engines.device.reason:
        get_logger().warning("device_not_used", asked=config.engine.device, used="cpu", reason=engines.device.reason)
    info = _describe(bundle, config, engines.device.device)
    all_left, readiness, room = asyncio.Event(), Readiness(), Room()
    admission = Admission(config.limits, on_empty=all_left.set, on_leave=room.departed)
    admission.close("the server is starting", reason="starting")
    executor = ThreadPoolExecutor(TOKENIZER_THREADS, thread_name_prefix="tokenizer")
    codec = TextCodec(
        load_tokenizer(bundle),
        max_characters=config.limits.max_characters,
        max_source_tokens=info.max_source_tokens,
    )
    translator = Translator(codec, dispatcher, executor)
    max_target_tokens = bundle.manifest.decoding.max_target_tokens
    catalog = Catalog([LoadedModel(info=info, max_target_tokens=max_target_tokens, translator=translator)])
    traces = open_traces(config)
    observers = call_observers(config, metrics, traces)
    guard = authenticator(config.security)
    interceptor, admin_interceptor = (
        CallInterceptor(
            metrics,
            methods=METHODS,
            max_request_seconds=limit,
            own_limits={stream_servicer.METHOD: config.limits.max_stream_seconds},
            authenticator=guard,
            observers=observers,
        )
        for limit in (config.limits.max_request_seconds, MAX_ADMIN_SECONDS)
    )
    status = StatusReader(
        config=config,
        metrics=metrics,
        interceptor=interceptor,
        admission=admission,
        readiness=readiness,
        models=lambda: [_model_snapshot(info, engines, readiness)],
        has_engine=lambda: dispatcher.is_ready,
    )
    translation, checks = TranslationServicer(catalog, admission, metrics), Health((servicer.SERVICE_NAME,))
    streams = StreamServicer(catalog, admission, room, metrics, config.limits)
    warn_of_readable_keys(config)
    _watch_load(metrics, info.name, dispatcher)
    max_tokens = config.limits.max_queued_tokens
    metrics.watch("token_budget_used_ratio", lambda: admission.tokens / max_tokens)
    return Parts(
        info=info,
        admission=admission,
        all_left=all_left,
        executor=executor,
        health=checks,
        readiness=readiness,
        interceptor=interceptor,
        streams=streams,
        grpc_server=_grpc_server(config, interceptor, translation, streams, checks),
        tls=server_tls(config.security),
        admin_server=admin_server(admin_interceptor, status, None),
        http_server=_http_server(config, metrics, lambda: readiness.is_accepting and dispatcher.is_ready),
        close_traces=traces.close if traces else lambda: None,
    )


def _describe(bundle: Bundle, config: ServerConfig, device: Device) -> ModelInfo:
    """The model as this server offers it: its own limit on beams also holds for the default."""
    info = describe(bundle, config.engine.precision, device)
    limit = config.limits.max_beam_size
    default_beam = min(info.default_options.beam_size or 1, limit)
    options = with_changes(info.default_options, beam_size=default_beam)
    return with_changes(info, default_options=options, max_beam_size=limit)


def _model_snapshot(info: ModelInfo, engines: Engines, readiness: Readiness) -> ModelSnapshot:
    return ModelSnapshot(
        name=info.name,
        version=info.version,
        state="serving" if readiness.is_accepting else "draining" if readiness.is_draining else "loading",
        info=info,
        sha256_12=engines.bundle.sha256_12,
        dispatch=engines.dispatcher.snapshot(time.monotonic()),
    )


def _grpc_server(
    config: ServerConfig,
    interceptor: CallInterceptor,
    translation: TranslationServicer,
    streams: StreamServicer,
    checks: Health,
) -> grpc.aio.Server:
    server = grpc.aio.server(
        interceptors=[interceptor],
        options=grpc_options(config),
        # A last belt behind admission.
        maximum_concurrent_rpcs=2 * config.limits.max_concurrent_requests + config.limits.max_streams + 256,
    )
    servicer.add_to_server(translation, server)
    stream_servicer.add_to_server(streams, server)
    health.add_to_server(checks, server)
    if config.listen.reflection:
        reflection.add_to_server((servicer.SERVICE_NAME, health.SERVICE_NAME), server)
    return server


def _http_server(config: ServerConfig, metrics: Metrics, is_ready: Callable[[], bool]) -> HttpServer:
    def readiness() -> Page:
        if is_ready():
            return Page(HTTPStatus.OK, b"ready\n")
        return Page(HTTPStatus.SERVICE_UNAVAILABLE, b"not ready\n")

    pages = {
        "/metrics": lambda: Page(HTTPStatus.OK, metrics.exposition(), CONTENT_TYPE),
        "/healthz": lambda: Page(HTTPStatus.OK, b"alive\n"),
        "/readyz": readiness,
    }
    return HttpServer(pages, max_connections=config.listen.max_http_connections)


def _watch_load(metrics: Metrics, model: str, dispatcher: Dispatcher) -> None:
    of_the_model = metrics.model(model)
    of_the_model.watch("queue_requests", lambda: dispatcher.queued_jobs)
    of_the_model.watch("queue_tokens", lambda: dispatcher.queued_tokens)
    of_the_model.watch("queue_work_seconds", lambda: dispatcher.queued_work_s)
    of_the_model.watch("running_jobs", lambda: dispatcher.running_jobs)
    of_the_model.watch("live_rows", lambda: dispatcher.live_rows)
