"""One replica: a server of its own, and what passes clients' calls on to it.

Everything that is promised about a call, its server keeps: this only carries bytes, metadata, deadline and status, and
cancels what Serve cancels.
"""

import logging
import os
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2

from service.api.identity import identify
from service.config import ConfigError, load_config, setting_sources
from service.ray_serve.calls import (
    CHECK,
    CLIENT_HEADER,
    LIST_MODELS,
    TRANSLATE,
    TRANSLATE_STREAM,
    WATCH,
    Encoded,
    ForwardedCall,
    Metadata,
    forwarded_metadata,
)
from service.ray_serve.owned_server import OwnedServer

HEALTH_TIMEOUT_S = 5.0
_LOOPBACK = "127.0.0.1"
_STOP_MARGIN_S = 5.0  # beyond the grace period, for the end of the process
_CHANNEL_OPTIONS = (
    ("grpc.enable_retries", 0),  # the client's are enough
    ("grpc.max_receive_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),
)
_DEFAULTS = {"listen.http": "false"}  # else the replicas of a node would want the same port
_OURS = {
    "listen.grpc_host": _LOOPBACK,
    "listen.grpc_port": "0",
    "listen.max_streams_per_connection": "100000",  # all calls come over one; admission counts them
    "security.identity_header": CLIENT_HEADER,
    "security.trusted_proxies": _LOOPBACK,
    "lifecycle.drain_delay_s": "0",  # Serve sends no more calls to a replica that it stops
}


class ServeContext(Protocol):
    """Serve's record of a call, which goes back to the proxy with each answer."""

    def peer(self) -> str: ...
    def invocation_metadata(self) -> Metadata: ...
    def set_code(self, code: grpc.StatusCode) -> None: ...
    def set_details(self, details: str) -> None: ...
    def set_trailing_metadata(self, trailing_metadata: list[tuple[str, str | bytes]]) -> None: ...


def server_settings(config: Path | None, settings: Mapping[str, object]) -> dict[str, str]:
    """What is stronger than the file and environment of a replica's server: these settings, and what a replica needs.

    Raises:
        ConfigError: settings that are wrong, or one, wherever it stands, that Serve or the replica has to decide.
    """
    given = {name: _written(value) for name, value in settings.items()}
    load_config(config, given)
    sources = setting_sources(config, given)
    taken = [f"{name} ({_place(sources[name])})" for name in _OURS if sources[name] != "default"]
    if taken:
        raise ConfigError(f"{', '.join(taken)}: a replica sets that itself; leave it out")
    return {name: value for name, value in _DEFAULTS.items() if sources[name] == "default"} | given | _OURS


def _place(source: str) -> str:
    return "settings" if source == "flag" else source


def _written(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


class Replica:
    """A deployment of Serve; what it calls has the names of the service's methods."""

    def __init__(self, config: Path | None, settings: Mapping[str, object]) -> None:
        """Return when its server serves.

        Args:
            config: the server's file of settings, at the same place on every node; None for none.
            settings: stronger than the file, by dotted name.

        Raises:
            ConfigError: settings that are wrong, or that a replica cannot have.
            RuntimeError: the server did not start.
        """
        pairs = server_settings(config, settings)
        known = load_config(config, pairs)
        if known.security.tls_certificate is not None:
            raise ConfigError("security.tls_certificate: clients reach a replica through Serve, which has its own TLS")
        options = [word for name, value in pairs.items() for word in ("--set", f"{name}={value}")]
        self._stop_within_s = known.lifecycle.grace_s + _STOP_MARGIN_S
        self._server = OwnedServer((*(("--config", str(config)) if config else ()), *options), _end_this_process)
        self._forward = Forwarder(grpc.aio.insecure_channel(f"{_LOOPBACK}:{self._server.port}", _CHANNEL_OPTIONS))

    async def Translate(self, request: ForwardedCall, grpc_context: ServeContext) -> Encoded:  # noqa: N802
        """As the contract has it."""
        return await self._forward.once(TRANSLATE, request, grpc_context)

    async def ListModels(self, request: ForwardedCall, grpc_context: ServeContext) -> Encoded:  # noqa: N802
        """As the contract has it."""
        return await self._forward.once(LIST_MODELS, request, grpc_context)

    async def TranslateStream(  # noqa: N802
        self, request_stream: AsyncIterator[Any], grpc_context: ServeContext
    ) -> AsyncGenerator[Encoded, None]:
        """As the contract has it."""
        opening: ForwardedCall | None = await anext(request_stream, None)
        if opening is None:
            return  # the client has left
        async for reply in self._forward.stream(TRANSLATE_STREAM, opening, request_stream, grpc_context):
            yield reply

    async def Check(self, request: ForwardedCall, grpc_context: ServeContext) -> Encoded:  # noqa: N802
        """Health of this replica."""
        return await self._forward.once(CHECK, request, grpc_context)

    async def Watch(self, request: ForwardedCall, grpc_context: ServeContext) -> AsyncGenerator[Encoded, None]:  # noqa: N802
        """Health of this replica, and again at each change."""
        async for reply in self._forward.often(WATCH, request, grpc_context):
            yield reply

    async def check_health(self) -> None:
        """Nothing, if the server takes calls; Serve replaces a replica for which this fails three times in a row.

        Raises:
            RuntimeError: it says that it does not serve, or says nothing.
        """
        await self._forward.check_health()

    def __del__(self) -> None:
        """What Serve calls when the replica has finished its calls."""
        server: OwnedServer | None = getattr(self, "_server", None)
        if server is not None:
            server.stop(self._stop_within_s)


class Forwarder:
    """Passes calls on to one server."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel

    async def once(self, path: str, call: ForwardedCall, context: ServeContext) -> Encoded:
        """The answer; where there is none, an empty one, and a status in the context.

        Serve forgets the trailers of a status that comes as an exception.
        """
        method: Any = self._channel.unary_unary(path)
        started = method(call.message, timeout=call.timeout_s, metadata=_metadata(context))
        try:
            reply = Encoded(await started)
        except grpc.aio.AioRpcError as error:
            return _failed(error, context)
        context.set_trailing_metadata(list(await started.trailing_metadata()))
        return reply

    async def often(self, path: str, call: ForwardedCall, context: ServeContext) -> AsyncGenerator[Encoded, None]:
        """The answers; the last one is empty where the context has a status."""
        method: Any = self._channel.unary_stream(path)
        started = method(call.message, timeout=call.timeout_s, metadata=_metadata(context))
        async for reply in _replies(started, context):
            yield reply

    async def stream(
        self, path: str, opening: ForwardedCall, requests: AsyncIterator[bytes], context: ServeContext
    ) -> AsyncGenerator[Encoded, None]:
        """As `often`, for requests that are read as the server takes them."""
        method: Any = self._channel.stream_stream(path)
        started = method(requests, timeout=opening.timeout_s, metadata=_metadata(context))
        async for reply in _replies(started, context):
            yield reply

    async def check_health(self) -> None:
        """As `Replica.check_health`."""
        method: Any = self._channel.unary_unary(CHECK, None, health_pb2.HealthCheckResponse.FromString)
        try:
            answer = await method(b"", timeout=HEALTH_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            raise RuntimeError(f"the server does not say how it is: {error.code().name}") from None
        if answer.status != health_pb2.HealthCheckResponse.SERVING:
            raise RuntimeError("the server takes no calls now")


async def _replies(started: Any, context: ServeContext) -> AsyncGenerator[Encoded, None]:
    try:
        async for reply in started:
            yield Encoded(reply)
    except grpc.aio.AioRpcError as error:
        yield _failed(error, context)
    finally:
        started.cancel()  # where Serve leaves early


def _failed(error: grpc.aio.AioRpcError, context: ServeContext) -> Encoded:
    context.set_code(error.code())
    context.set_details(error.details() or "")
    context.set_trailing_metadata(list(error.trailing_metadata() or ()))
    return Encoded(b"")


def _metadata(context: ServeContext) -> tuple[tuple[str, str | bytes], ...]:
    return forwarded_metadata(context.invocation_metadata(), identify(context.peer(), (), None).name)


def _end_this_process(status: int) -> None:
    """End a replica that has lost its server: Serve sends it no more calls, and starts another one."""
    logging.getLogger("ray.serve").error("the server of this replica ended with status %d; so does the replica", status)
    logging.shutdown()
    os._exit(1)
