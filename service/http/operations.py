"""The pages for machines: /metrics, /healthz and /readyz."""

import asyncio
import time
from collections.abc import Callable, Iterable

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from service.telemetry.metrics import CONTENT_TYPE

MAX_BLOCKED_S = 0.0005  # the longest that writing a page keeps the event loop from the calls
CROWD = 4  # readers: a page that more of them have shared ...
SHARED_FOR_S = 0.25  # ... is given to those who come this soon after it was begun


class SharedPage:
    """A page that is written once for all who ask while it is written; for a crowd, it lasts a moment longer."""

    def __init__(self, write: Callable[[], Iterable[bytes]], clock: Callable[[], float] = time.monotonic) -> None:
        """Share what `write` yields, piece by piece; between two pieces other tasks may run."""
        self._write = write
        self._clock = clock
        self._page: asyncio.Task[bytes] | None = None
        self._began = 0.0
        self._num_readers = 0

    async def read(self) -> bytes:
        """Return the page; a reader that gives up does not take it from the others."""
        if self._page is None or not self._may_be_shared(self._page):
            self._page, self._began, self._num_readers = asyncio.create_task(self._join()), self._clock(), 0
        self._num_readers += 1
        return await asyncio.shield(self._page)

    def _may_be_shared(self, page: "asyncio.Task[bytes]") -> bool:
        if not page.done():
            return True
        return self._num_readers > CROWD and self._clock() - self._began <= SHARED_FOR_S and page.exception() is None

    async def _join(self) -> bytes:
        pieces, began = [], time.monotonic()
        for piece in self._write():
            pieces.append(piece)
            if time.monotonic() - began > MAX_BLOCKED_S:
                await asyncio.sleep(0)
                began = time.monotonic()
        return b"".join(pieces)


class Operations:
    """Tells Prometheus the numbers, and an orchestrator whether to send calls here and whether to restart."""

    def __init__(
        self, exposition: Callable[[], Iterable[bytes]], *, is_ready: Callable[[], bool], is_alive: Callable[[], bool]
    ) -> None:
        self._metrics = SharedPage(exposition)
        self._is_ready = is_ready
        self._is_alive = is_alive

    def metrics_routes(self) -> list[Route]:
        """Return the route that Prometheus scrapes."""
        return [Route("/metrics", self._get_metrics)]

    def health_routes(self) -> list[Route]:
        """Return the routes of an orchestrator's probes."""
        return [Route("/healthz", self._get_healthz), Route("/readyz", self._get_readyz)]

    async def _get_metrics(self, request: Request) -> Response:
        return Response(await self._metrics.read(), media_type=CONTENT_TYPE)

    async def _get_healthz(self, request: Request) -> Response:
        return _status(self._is_alive(), "alive\n", "no engine for too long\n")

    async def _get_readyz(self, request: Request) -> Response:
        return _status(self._is_ready(), "ready\n", "not ready\n")


def _status(is_good: bool, good: str, bad: str) -> Response:
    return PlainTextResponse(good) if is_good else PlainTextResponse(bad, status_code=503)
