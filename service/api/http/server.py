"""An HTTP/1.1 server in the event loop of its caller: uvicorn's protocol, with limits on what a peer may cost.

Knows no route; where none has an answer, it is a line of text that quotes nothing of the request.  The main loop, the
signal handlers and the logs of `uvicorn.Server` are not used: the process has its own.  There is no TLS; put a proxy in
front where that is wanted.
"""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.server import ServerState

from service.addresses import Address
from service.errors import DragomanError
from service.telemetry.logs import describe_error, get_logger

TIMEOUT_S = 5.0  # for a request, or the next piece of a large one, to arrive, and for an answer to be read
MAX_HEAD_BYTES = 16 << 10  # request line and headers
MAX_BODY_BYTES = 64 << 10  # of a request for a page, which needs none
PIECE_BYTES = 64 << 10  # of a body that have to arrive in this time
STOP_S = 1.0  # for answers that are being made when the server stops


class HttpServer:
    """Serves these routes at one address."""

    def __init__(
        self,
        routes: Sequence[Route],
        *,
        max_connections: int,
        timeout_s: float = TIMEOUT_S,
        max_body_bytes: int = MAX_BODY_BYTES,
        cors_origins: str = "",
    ) -> None:
        """Listen nowhere yet.

        With `max_connections` open or after `timeout_s`, a peer that lets the server wait loses its connection.

        Args:
            max_body_bytes: of a request to a route without a limit of its own.
            cors_origins: web pages, separated by commas, that may read the answers.
        """
        # uvicorn would log errors with their messages, which can quote a caller; the application logs them without.
        for name in ("uvicorn.error", "uvicorn.access"):
            logging.getLogger(name).disabled = True
        self._config = Config(
            _application(routes, max_body_bytes, cors_origins),
            interface="asgi3",
            http=H11Protocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            h11_max_incomplete_event_size=MAX_HEAD_BYTES,
        )
        self._config.load()
        self._state = ServerState()
        self._connections = _Connections(max_connections, timeout_s)
        self._servers: list[asyncio.Server] = []  # one for each address of the host

    async def start(self, address: Address, purpose: str, *, is_shared: bool = False) -> int:
        """Listen and return the port, a free one for 0; or raise ListenError.

        Args:
            is_shared: whether other processes listen on the same port.
        """
        loop = asyncio.get_running_loop()
        sockets = address.open(purpose, is_shared=is_shared)
        try:
            for one in sockets:
                self._servers.append(
                    await loop.create_server(
                        lambda: _Connection(self._config, self._state, self._connections), sock=one
                    )
                )
        except OSError as error:
            raise address.cannot_listen(purpose, error) from error
        bound: int = sockets[0].getsockname()[1]
        return bound

    async def stop(self) -> None:
        """Stop listening; the answers that are being made have `STOP_S` to leave, then every connection ends."""
        if not self._servers:
            return
        for server in self._servers:
            server.close()
        await self._connections.close(STOP_S)
        await asyncio.gather(*(server.wait_closed() for server in self._servers))


def _application(routes: Sequence[Route], max_body_bytes: int, cors_origins: str) -> Starlette:
    """Return an application of these routes whose errors are a line of text that quotes nothing of the request."""
    paths = [route.path for route in routes]
    known = "/docs describes those that there are" if "/docs" in paths else f"there are {' '.join(paths)}"

    async def not_found(_: Request, __: Exception) -> Response:
        return PlainTextResponse(f"there is no such page; {known}\n", status_code=404)

    async def refused(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return PlainTextResponse(f"{error.detail}\n", status_code=error.status_code, headers=error.headers)

    async def failed(request: Request, error: Exception) -> Response:
        path = getattr(request.scope.get("route"), "path", "")
        if isinstance(error, DragomanError):  # of a call, whose answer had begun: the call is accounted for
            return PlainTextResponse("the answer has no end\n", status_code=500)
        get_logger().error("page_failed", path=path, **describe_error(error))
        return PlainTextResponse("the log has the error\n", status_code=500)

    handlers = {404: not_found, HTTPException: refused, Exception: failed}
    app = Starlette(routes=routes, exception_handlers=handlers, max_body_size=max_body_bytes)
    if origins := [origin.strip() for origin in cors_origins.split(",") if origin.strip()]:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=origins,
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=["*"],
            expose_headers=["retry-after", "x-request-id", "x-translation-warnings"],
        )
    app.router.redirect_slashes = False
    return app


class _Connections:
    """The open connections, and those that wait for their peer, the longest wait first."""

    def __init__(self, max_connections: int, timeout_s: float) -> None:
        self._max_connections = max_connections
        self._timeout_s = timeout_s
        self._open: set[_Connection] = set()
        self._waiting: dict[_Connection, asyncio.TimerHandle] = {}  # the longest first
        self._all_left = asyncio.Event()

    def enter(self, connection: "_Connection") -> bool:
        """Take a new connection in, or return False if every other one is being served."""
        if len(self._open) >= self._max_connections and self._waiting:
            self._drop(next(iter(self._waiting)))
        if len(self._open) >= self._max_connections:
            return False
        self._open.add(connection)
        return True

    def leave(self, connection: "_Connection") -> None:
        self.note(connection, is_waiting=False)
        self._open.discard(connection)
        if not self._open:
            self._all_left.set()

    def note(self, connection: "_Connection", *, is_waiting: bool) -> None:
        """Note whether a connection waits for its peer; bytes that complete no request do not end the wait."""
        if not is_waiting and connection in self._waiting:
            self._waiting.pop(connection).cancel()
        elif is_waiting and connection in self._open and connection not in self._waiting:
            self._waiting[connection] = connection.loop.call_later(self._timeout_s, self._drop, connection)

    async def close(self, within_s: float) -> None:
        """End all connections; those that make or send an answer have this long."""
        self._all_left.clear()
        for connection in list(self._open):
            connection.shutdown()
        if self._open:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._all_left.wait(), within_s)
        for connection in list(self._open):
            self._drop(connection)

    def _drop(self, connection: "_Connection") -> None:
        connection.transport.abort()  # not close: that waits for a peer to read
        self.leave(connection)


class _Connection(H11Protocol):
    """A connection that is known to wait for its peer: for a whole request, or to have read an answer."""

    def __init__(self, config: Config, state: ServerState, connections: _Connections) -> None:
        super().__init__(config, state, {})
        self._all = connections
        self._num_received = 0  # bytes since the wait began anew

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self._all.enter(self):
            self._note()
        else:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._all.leave(self)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._num_received += len(data)
        cycle: RequestResponseCycle | None = self.cycle
        is_answered = cycle is not None and cycle.response_complete
        if self._num_received >= PIECE_BYTES and not is_answered:  # of a large body: its peer has as long for the next
            self._num_received = 0
            self._all.note(self, is_waiting=False)
        self._note()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._note()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._note()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._note()

    def _note(self) -> None:
        cycle: RequestResponseCycle | None = self.cycle  # None before the first request
        is_serving = cycle is not None and not (cycle.more_body or cycle.response_complete or self.flow.write_paused)
        self._all.note(self, is_waiting=not is_serving)
