"""A small HTTP server for machines: GET /metrics, /healthz and /readyz.

One answer per connection, read and written on the event loop with time limits and a limit on connections, so that a
slow or hanging scraper costs nothing; at that limit, whoever has kept us waiting longest for a request makes room for
who comes.  A page that is being written is for all who ask meanwhile, and a crowd of scrapers shares one for a moment
more.  No other path, no body, no TLS: put a proxy in front where that is wanted.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus

from service.telemetry.logs import describe_error, get_logger

TIMEOUT_S = 5.0  # for the request to arrive, and again for the answer to leave
MAX_REQUEST_BYTES = 16 << 10  # request line and headers
CROWD = 4  # with more connections than this at a time, a page is made anew ...
SHARED_FOR_S = 0.25  # ... only when it is older than this


@dataclass(frozen=True, slots=True)
class Page:
    """What is answered to a path."""

    status: HTTPStatus
    body: bytes
    content_type: str = "text/plain; charset=utf-8"


MakePage = Callable[[], Awaitable[Page]]
Pages = Mapping[str, MakePage]


class HttpServer:
    """Serves `pages`: a function for each path, called in the event loop."""

    def __init__(
        self,
        pages: Pages,
        *,
        max_connections: int,
        timeout_s: float = TIMEOUT_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pages = pages
        self._clock = clock
        self._made: dict[str, tuple[float, asyncio.Future[Page]]] = {}  # when begun, and what, by path
        self._max_connections = max_connections
        self._timeout_s = timeout_s
        self._connections: set[asyncio.StreamWriter] = set()
        self._without_request: dict[asyncio.StreamWriter, None] = {}  # of those, the oldest first
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen and return the port, a free one for 0.

        Raises:
            OSError: the address is in use or not ours.
        """
        self._server = await asyncio.start_server(self._serve, host, port, limit=MAX_REQUEST_BYTES, reuse_port=False)
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    async def stop(self) -> None:
        """Stop listening and drop the connections that are open."""
        if self._server is None:
            return
        self._server.close()
        for writer in self._connections:
            writer.transport.abort()  # not close: that waits for a peer to read
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._has_room():
            writer.close()
            return
        self._connections.add(writer)
        self._without_request[writer] = None
        try:
            async with asyncio.timeout(self._timeout_s):
                request = await reader.readuntil(b"\r\n\r\n")
            self._without_request.pop(writer, None)
            async with asyncio.timeout(self._timeout_s):
                writer.write(await self._answer(request))
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
            writer.transport.abort()
        finally:
            self._forget(writer)

    def _has_room(self) -> bool:
        """Whether there is room for one more; idle connections must not keep a probe from its answer."""
        if len(self._connections) >= self._max_connections and self._without_request:
            oldest = next(iter(self._without_request))
            oldest.transport.abort()
            self._forget(oldest)
        return len(self._connections) < self._max_connections

    def _forget(self, writer: asyncio.StreamWriter) -> None:
        self._connections.discard(writer)
        self._without_request.pop(writer, None)

    async def _answer(self, request: bytes) -> bytes:
        method, _, rest = request.partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0].decode("latin-1")
        if method not in (b"GET", b"HEAD"):
            return _to_bytes(Page(HTTPStatus.METHOD_NOT_ALLOWED, b"only GET and HEAD\n"))
        make_page = self._pages.get(path)
        page = await self._page(path, make_page) if make_page else self._not_found()
        return _to_bytes(page, has_body=method == b"GET")

    async def _page(self, path: str, make_page: MakePage) -> Page:
        begun_at, page = self._made.get(path, (0.0, None))
        now = self._clock()
        if page is None or (page.done() and (len(self._connections) <= CROWD or now - begun_at > SHARED_FOR_S)):
            page = asyncio.ensure_future(make_page())
            self._made[path] = (now, page)
        try:
            return await asyncio.shield(page)  # a reader that gives up does not take it from the others
        except Exception as error:  # noqa: BLE001 - none may leave a connection open
            get_logger().error("page_failed", path=path, **describe_error(error))
            return Page(HTTPStatus.INTERNAL_SERVER_ERROR, b"the log has the error\n")

    def _not_found(self) -> Page:
        return Page(HTTPStatus.NOT_FOUND, f"try {' '.join(self._pages)}\n".encode())


def _to_bytes(page: Page, *, has_body: bool = True) -> bytes:
    head = (
        f"HTTP/1.1 {page.status.value} {page.status.phrase}\r\n"
        f"Content-Type: {page.content_type}\r\n"
        f"Content-Length: {len(page.body)}\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode("ascii") + (page.body if has_body else b"")
