"""What faces clients in one process: the gRPC port with its calls, its streams and its health, and the HTTP port.

Where edge and core are one process, this is the server's only edge; else each edge process has one.
"""

import asyncio
from collections.abc import Sequence
from concurrent.futures import Executor
from contextlib import suppress

import grpc.aio

from service.addresses import Address
from service.call import Call
from service.calls.book import oldest
from service.config import LimitsConfig, ServerConfig
from service.documents.formats import load_readers
from service.edges.core import Core
from service.edges.messages import ServingState
from service.errors import Unavailable
from service.grpc import google_servicer, health, open_inference_servicer, reflection, servicer, stream_servicer
from service.grpc.call_handlers import CallHandlers
from service.grpc.google_servicer import GoogleServicer
from service.grpc.health import Health
from service.grpc.listening import add_grpc_port, grpc_options
from service.grpc.open_inference_servicer import OpenInferenceServicer
from service.grpc.servicer import TranslationServicer
from service.grpc.stream_servicer import StreamServicer
from service.grpc.tls import server_tls
from service.http.whole_server import WholeServer
from service.registry.host import ModelHost
from service.server.parts import CallParts, HttpParts
from service.telemetry.metrics import Metrics
from service.translation.account import Account

_SERVICES = (
    servicer.SERVICE_NAME,
    google_servicer.SERVICE_NAME,
    open_inference_servicer.SERVICE_NAME,
    health.SERVICE_NAME,
)
SENDING_S = 1.0  # for answers that are still being written
LINGER_S = 0.1  # for what is written to cross the network: closing a connection drops what is not acknowledged


class EdgeServer:
    """One edge; it refuses all calls until `set_state` says otherwise.  An `EdgePool` is used in the same way."""

    is_up = True
    missing = 0
    recent_lag_s = 0.0  # beside that of the core's own event loop

    def __init__(
        self,
        config: ServerConfig,
        core: Core,
        metrics: Metrics,
        account: Account,
        executor: Executor,
        whole: WholeServer,
        *,
        is_shared: bool = False,
    ) -> None:
        """Make all parts, or raise ValueError: a certificate, the file of API keys or a library cannot be used.

        Args:
            executor: for texts that are too long for the event loop.
            whole: what HTTP is asked about the whole server.
            is_shared: whether other processes listen on the same ports.
        """
        limits = config.limits
        self._core = core
        self._listen = config.listen
        core.admission.close("the server is starting", reason="starting")
        self._tls = server_tls(config.security)
        self._is_shared = is_shared
        self._call_parts = parts = CallParts(config, core.catalogue, core.admission, metrics, account, executor)
        self._http = HttpParts(config, parts, whole)
        self._health = Health((*_SERVICES, *(reflection.SERVICE_NAMES if config.listen.reflection else ())))
        self._streams = StreamServicer(parts.router, core, metrics)
        methods = {
            **servicer.handlers(TranslationServicer(parts.router)),
            **stream_servicer.handlers(self._streams),
            **google_servicer.handlers(GoogleServicer(parts.router)),
            **open_inference_servicer.handlers(OpenInferenceServicer(parts.router)),
            **health.handlers(self._health),
        }
        if config.listen.reflection:
            methods |= reflection.handlers(_SERVICES)
        self._handlers = CallHandlers(
            methods,
            parts.book,
            max_request_seconds=limits.max_request_seconds,
            max_watches=limits.max_watches,
            own_limits={stream_servicer.METHOD: limits.max_stream_seconds, **health.OWN_LIMITS},
            refuse=parts.translator.refusal,
            refusable=frozenset(
                {servicer.TRANSLATE, servicer.SCORE, google_servicer.TRANSLATE, open_inference_servicer.INFER}
            ),
        )
        self._server = grpc.aio.server(
            handlers=[self._handlers],
            options=grpc_options(config, is_shared=is_shared),
            maximum_concurrent_rpcs=max_calls(limits),
        )

    async def listen(self) -> dict[str, int]:
        """Take calls, and return the ports by their settings; raises ListenError.

        Everything that a call needs is loaded by then: no call should wait for it, or find out that it cannot be.  An
        edge of several serves from its first connection on, and loads before; the core has found its ports free.
        """
        listen = self._listen
        if self._is_shared:
            await self._load()
        address = Address(listen.grpc_host, listen.grpc_port)
        ports = {"grpc_port": add_grpc_port(self._server, address, self._tls, "gRPC", is_shared=self._is_shared)}
        if listen.http:
            address = Address(listen.http_host, listen.http_port)
            ports["http_port"] = await self._http.server.start(address, is_shared=self._is_shared)
        await self._server.start()
        if not self._is_shared:
            await self._load()
        return ports

    async def _load(self) -> None:
        await asyncio.to_thread(load_readers)
        with suppress(Unavailable):  # which the log has explained
            await self._call_parts.router.load_detector()

    async def offer(self, models: Sequence[ModelHost]) -> None:
        """Do nothing: calls find what the catalogue of the core has."""

    async def refresh(self) -> None:
        """Do nothing: what calls count is on the page at once."""

    async def set_state(self, state: ServingState) -> None:
        """Let calls in or refuse them, and say in health what the server is."""
        self._http.calls.refusal = state.refusal
        if state.refusal is None:
            self._core.admission.open()
        else:
            self._core.admission.close(str(state.refusal), reason=state.refusal.reason)
        if state.is_draining:
            await self._health.drain()
            if state.refusal is not None:
                self._streams.drain()
        await self._health.set_serving(state.is_serving)

    def set_log_level(self, level: str) -> None:
        """Do nothing: the level is the process's own."""

    async def all_left(self) -> None:
        """Return when every call that was let in has been answered."""
        while self._core.admission.requests:
            self._core.all_left.clear()
            await self._core.all_left.wait()
        await self._http.calls.all_left()

    async def calls(self, most: int) -> tuple[list[Call], int]:
        """Return the oldest calls in progress, and how many there are."""
        calls = self._call_parts.book.calls
        return oldest(calls, most), len(calls)

    async def finish(self) -> None:
        """Return when everything is sent; the process then ends with its connections open.

        `grpc.aio.Server.stop` resets (CANCELLED) every call that comes between its GOAWAY and the moment when the
        client has read that.  Calls are therefore refused to the last moment.  Calls that nobody reads any more, and
        streams that have no end of their own, are lost with their connections, which is UNAVAILABLE for the client.
        """
        await self._call_parts.close_traces()
        await asyncio.gather(self._http.server.stop(), self._handlers.answers_sent(SENDING_S))
        await asyncio.sleep(LINGER_S)

    async def stop(self) -> None:
        """Release everything, in whatever state it is, after a start that has failed."""
        await self._server.stop(0)
        await self._http.server.stop()
        await self._call_parts.close_traces()


def max_calls(limits: LimitsConfig) -> int:
    """Maximum number of calls at a time that gRPC accepts, behind the limits of admission."""
    return 2 * (limits.max_concurrent_requests + limits.max_streams + limits.max_watches) + 256
