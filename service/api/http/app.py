"""The HTTP application: what an error looks like, and pages that many readers share."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from service.errors import DragomanError
from service.telemetry.logs import describe_error, get_logger

MAX_BODY_BYTES = 64 << 10  # of a request for a page, which needs none
MAX_BLOCKED_S = 0.0005  # the longest that writing a page keeps the event loop from the calls
# A page that more readers than this have shared is also given to readers who come soon after it was begun.  Without
# this, a crowd of scrapers keeps the scheduler process writing pages while calls wait.
CROWD = 4
SHARED_FOR_S = 0.25


class SharedPage:
    """A page that is written once for all who ask while it is written, and for a crowd lasts a moment longer."""

    def __init__(
        self,
        write: Callable[[], Iterable[bytes]],
        refresh: Callable[[], Awaitable[None]] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Share what `write` yields after `refresh`, piece by piece; between two pieces other tasks may run."""
        self._refresh = refresh
        self._write = write
        self._clock = clock
        self._page: asyncio.Task[bytes] | None = None
        self._began = 0.0
        self._num_readers = 0

    async def read(self) -> bytes:
        """Return the page; a reader that gives up does not take it from the others."""
        page, now = self._page, self._clock()
        is_for_crowd = self._num_readers > CROWD and now - self._began <= SHARED_FOR_S
        if page is None or (page.done() and not (is_for_crowd and page.exception() is None)):
            page = self._page = asyncio.create_task(self._join())
            self._began, self._num_readers = now, 0
        self._num_readers += 1
        return await asyncio.shield(page)

    async def _join(self) -> bytes:
        if self._refresh is not None:
            await self._refresh()
        pieces, began = [], time.monotonic()
        for piece in self._write():
            pieces.append(piece)
            if time.monotonic() - began > MAX_BLOCKED_S:
                await asyncio.sleep(0)
                began = time.monotonic()
        return b"".join(pieces)


def create_app(routes: Sequence[Route], *, max_body_bytes: int = MAX_BODY_BYTES, cors_origins: str = "") -> Starlette:
    """Return an application of these routes whose errors are a line of text that quotes nothing of the request.

    Args:
        max_body_bytes: of a request to a route without a limit of its own.
    """

    async def not_found(_: Request, __: Exception) -> Response:
        return PlainTextResponse(f"try {' '.join(route.path for route in routes)}\n", status_code=404)

    async def refused(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return PlainTextResponse(f"{error.detail}\n", status_code=error.status_code, headers=error.headers)

    async def failed(request: Request, error: Exception) -> Response:
        path = getattr(request.scope.get("route"), "path", "")
        if isinstance(error, DragomanError):  # of a call, whose answer had begun: it is in the book
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
