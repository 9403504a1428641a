"""The ports that clients reach in one process: gRPC with calls, streams and health, and HTTP.

A server has one frontend in the process of its scheduler, or several in processes of their own.
"""

import asyncio
from collections.abc import Sequence
from concurrent.futures import Executor
from contextlib import suppress

import grpc.aio
from starlette.routing import Route

from service.addresses import Address, is_loopback
from service.api.auth import authenticator
from service.api.grpc import dragoman, google, kserve, standard
from service.api.grpc.dragoman import TranslationServicer
from service.api.grpc.google import GoogleServicer
from service.api.grpc.handlers import CallHandlers, handlers_of
from service.api.grpc.kserve import OpenInferenceServicer
from service.api.grpc.server import add_grpc_port, grpc_options, server_tls
from service.api.http.console.routes import Console
from service.api.http.deepl import DeepL, DeepLGlossaries
from service.api.http.deepl_documents import DeepLDocuments
from service.api.http.files import FileTranslator
from service.api.http.handlers import HttpCalls
from service.api.http.libretranslate import LibreTranslate
from service.api.http.operations import description_pages
from service.api.http.server import HttpServer
from service.api.http.server_status import ServerStatus, health_pages, metrics_pages
from service.api.lifecycle import CallLifecycle
from service.call import Call
from service.config import LimitsConfig, ListenConfig, ServerConfig
from service.documents.formats import load_readers
from service.errors import Unavailable
from service.models.call_scheduler import CallScheduler
from service.server.process import ServingState
from service.telemetry import load_traces
from service.telemetry.metrics import Metrics
from service.telemetry.usage import UsageMeter
from service.translate.glossaries import Glossaries, UploadedGlossaries
from service.translate.router import Router
from service.translate.translator import Translator

_SERVICES = (*(one.SERVICE.full_name for one in (dragoman, google, kserve)), standard.HEALTH.full_name)
SENDING_S = 1.0  # for answers that are still being written
LINGER_S = 0.1  # for what is written to cross the network: closing a connection drops what is not acknowledged


STARTING = ServingState(is_serving=False, refusal=Unavailable("the server is starting", reason="starting"))


class Frontend:
    """The servers that clients reach; it refuses all calls until `set_state` says otherwise."""

    def __init__(
        self,
        config: ServerConfig,
        scheduler: CallScheduler,
        metrics: Metrics,
        usage_meter: UsageMeter,
        executor: Executor,
        status: ServerStatus,
        *,
        is_shared: bool = False,
    ) -> None:
        """Make all parts, or raise ValueError: a certificate, API keys, a glossary or a library cannot be used.

        Args:
            executor: for texts that are too long for the event loop.
            status: what HTTP is asked about the server as a whole.
            is_shared: whether other processes listen on the same ports.
        """
        self.admission = scheduler.admission
        self._config = config
        self._scheduler = scheduler
        self._is_shared = is_shared
        self._tls = server_tls(config.security)
        traces_class = load_traces(config.telemetry)
        self._traces = traces_class.to(config.telemetry.otlp_endpoint or "") if traces_class else None
        glossaries = Glossaries(config.models.glossaries, period_s=config.models.watch_period_s)
        self._translator = Translator(scheduler, usage_meter, config.limits, executor, glossaries)
        self._router = Router(self._translator)
        self._lifecycle = CallLifecycle(
            metrics,
            authenticator=authenticator(config.security),
            refuse=self._translator.refusal,
            observers=[self._traces] if self._traces else [],
            slow_s=config.telemetry.slow_request_s,
        )
        self._health = standard.Health((*_SERVICES, *(standard.REFLECTION if config.listen.reflection else ())))
        self._servicer = TranslationServicer(self._router, scheduler, metrics)
        self._calls = self._grpc_calls()
        self._grpc = grpc.aio.server(
            handlers=[self._calls],
            options=grpc_options(config, is_shared=is_shared),
            maximum_concurrent_rpcs=max_calls(config.limits),
        )
        self._http_calls = HttpCalls(self._lifecycle, config.limits)
        self._http = HttpServer(
            self._http_routes(status),
            max_connections=config.listen.max_http_connections,
            cors_origins=config.listen.cors_origins,
        )
        self._refuse(STARTING.refusal)

    def _grpc_calls(self) -> CallHandlers:
        limits = self._config.limits
        methods = {
            **handlers_of(dragoman.SERVICE, self._servicer),
            **handlers_of(google.SERVICE, GoogleServicer(self._router)),
            **handlers_of(kserve.SERVICE, OpenInferenceServicer(self._router)),
            **handlers_of(standard.HEALTH, self._health),
            **(standard.reflection_handlers(_SERVICES) if self._config.listen.reflection else {}),
        }
        return CallHandlers(
            methods,
            self._lifecycle,
            max_request_seconds=limits.max_request_seconds,
            max_watches=limits.max_watches,
            own_limits={dragoman.TRANSLATE_STREAM: limits.max_stream_seconds},
            work=frozenset({dragoman.TRANSLATE, dragoman.SCORE, google.TRANSLATE, kserve.INFER}),
        )

    def _http_routes(self, status: ServerStatus) -> Sequence[Route]:
        config, router = self._config, self._router
        files = FileTranslator(router)
        libretranslate = LibreTranslate(router, files, config.limits, status, config.security)
        glossaries = UploadedGlossaries(config.models.uploaded_glossaries)
        dialects = [
            libretranslate,
            DeepL(router, status, glossaries),
            DeepLDocuments(files, status, glossaries, self._http_calls),
            DeepLGlossaries(router, glossaries),
        ]
        console = [Console(router, files, status)] if has_console(config.listen) else []
        return [
            *([] if config.listen.metrics_port is not None else metrics_pages(status)),
            *health_pages(status),
            *(route for service in (*dialects, *console) for route in self._http_calls.routes(service)),
            *description_pages(*dialects),
            *libretranslate.pages(),
            *(page for one in console for page in one.pages()),
        ]

    async def listen(self) -> dict[str, int]:
        """Take calls, and return the ports by their settings; raises ListenError.

        Everything that a call needs is loaded by then: no call should wait for it, or find out that it cannot be.  A
        frontend of several serves from its first connection on, and loads before; its ports are known to be free.
        """
        listen = self._config.listen
        if self._is_shared:
            await self._load()
        address = Address(listen.grpc_host, listen.grpc_port)
        ports = {
            "grpc_port": add_grpc_port(self._grpc, address, self._tls, "listen.grpc_port", is_shared=self._is_shared)
        }
        if listen.http:
            address = Address(listen.http_host, listen.http_port)
            ports["http_port"] = await self._http.start(address, "listen.http_port", is_shared=self._is_shared)
        await self._grpc.start()
        if not self._is_shared:
            await self._load()
        return ports

    async def _load(self) -> None:
        await asyncio.to_thread(load_readers)
        with suppress(Unavailable):  # which the log has explained
            await self._router.load_detector()

    async def set_state(self, state: ServingState) -> None:
        """Let calls in or refuse them, and say in health what the server is."""
        self._refuse(state.refusal)
        if state.is_draining:
            await self._health.drain()
            if state.refusal is not None:
                self._servicer.drain()
        await self._health.set_serving(state.is_serving)

    def _refuse(self, refusal: Unavailable | None) -> None:
        self._http_calls.refusal = refusal
        if refusal is None:
            self.admission.open()
        else:
            self.admission.close(str(refusal), reason=refusal.reason)

    async def calls(self, most: int) -> tuple[list[Call], int]:
        """Return the oldest calls in progress, and how many there are."""
        calls = sorted(self._lifecycle.calls, key=lambda call: call.started)
        return calls[:most], len(calls)

    async def all_left(self) -> None:
        """Once every new call is refused: return when every call that was let in has been answered."""
        await self._scheduler.all_left()
        await self._http_calls.all_left()

    async def finish(self) -> None:
        """Return when everything is sent; the process then ends with its connections open.

        `grpc.aio.Server.stop` resets (CANCELLED) every call that comes between its GOAWAY and the moment when the
        client has read that.  Calls are therefore refused to the last moment.  Calls that nobody reads any more, and
        streams that have no end of their own, are lost with their connections, which is UNAVAILABLE for the client.
        """
        await self._close_traces()
        await asyncio.gather(self._http.stop(), self._calls.answers_sent(SENDING_S))
        await asyncio.sleep(LINGER_S)

    async def stop(self) -> None:
        """Release everything, in whatever state it is, after a start that has failed."""
        await self._grpc.stop(0)
        await self._http.stop()
        await self._close_traces()

    async def _close_traces(self) -> None:
        """Send the traces that are still to be sent."""
        if self._traces:
            await asyncio.to_thread(self._traces.close)


def max_calls(limits: LimitsConfig) -> int:
    """Maximum number of calls at a time that gRPC accepts, behind the limits of admission."""
    return 2 * (limits.max_concurrent_requests + limits.max_streams + limits.max_watches) + 256


def has_console(listen: ListenConfig) -> bool:
    """Whether the page at / is served: as `listen.console` says, else where only this machine can see it."""
    return is_loopback(listen.http_host) if listen.console is None else listen.console
