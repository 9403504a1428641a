"""What any frontend can be asked about the whole server, and the pages for machines: metrics and health."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from service.api.http.fields import File
from service.api.http.files import JobStatus
from service.call import Identity
from service.telemetry.metrics import CONTENT_TYPE

MAX_BLOCKED_S = 0.0005  # the longest that writing a page keeps the event loop from the calls
# A page that more readers than this have shared is also given to readers who come soon after it was begun.  Without
# this, a crowd of scrapers keeps the scheduler process writing pages while calls wait.
CROWD = 4
SHARED_FOR_S = 0.25


class ServerStatus(Protocol):
    """What a frontend asks about the whole server; the scheduler process answers."""

    async def page(self) -> bytes:
        """Return the metrics in Prometheus' text format."""
        ...

    async def is_ready(self) -> bool:
        """Return whether calls are accepted and every model has an engine."""
        ...

    async def is_alive(self) -> bool:
        """Return False when only a restart can help."""
        ...

    async def busyness(self) -> dict[str, float]:
        """Return how many sentences wait, rows in the batch, and target tokens since the start."""
        ...

    async def characters_of(self, client: str) -> int:
        """Return how many characters were translated for a client, by its label."""
        ...

    async def card_of(self, model: str) -> str | None:
        """Return the card of a model, in Markdown; None: it has none."""
        ...

    async def keep(self, file: File) -> str:
        """Keep a translated file for some minutes, and return the name to fetch it by."""
        ...

    async def find(self, name: str) -> File | None:
        """Return the translated file of this name; None: there is none, or none any more."""
        ...

    async def begin_document(self, owner: Identity) -> tuple[str, str]:
        """Return the id and the key of a new document; raises Overloaded if too many are not done."""
        ...

    async def note_document(self, name: str, status: JobStatus) -> None:
        """Note how far a document is."""
        ...

    async def find_document(self, name: str, key: str) -> JobStatus | None:
        """Return how far a document is; None: there is none of this id and key, or no longer."""
        ...


def metrics_pages(server: ServerStatus) -> list[Route]:
    """Return the route of the metrics."""

    async def get_metrics(_: Request) -> Response:
        return Response(await server.page(), media_type=CONTENT_TYPE)

    return [Route("/metrics", get_metrics)]


def health_pages(server: ServerStatus) -> list[Route]:
    """Return the routes that orchestrators ask."""

    async def get_healthz(_: Request) -> Response:
        is_alive = await server.is_alive()
        return PlainTextResponse(*(("alive\n", 200) if is_alive else ("no engine for too long\n", 503)))

    async def get_readyz(_: Request) -> Response:
        return PlainTextResponse(*(("ready\n", 200) if await server.is_ready() else ("not ready\n", 503)))

    return [Route("/healthz", get_healthz), Route("/readyz", get_readyz)]


class SharedPage:
    """A page that is written once for all readers that ask meanwhile; for many readers it is kept a moment longer."""

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
