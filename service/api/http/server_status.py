"""What is true of the whole server, whichever process is asked over HTTP, and the pages that say it to machines."""

from typing import Protocol

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from service.api.http.document_jobs import JobStatus
from service.api.http.fields import File
from service.call import Identity
from service.telemetry.metrics import CONTENT_TYPE


class ServerStatus(Protocol):
    """What a frontend asks about the server as a whole; the scheduler process knows the answers."""

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
