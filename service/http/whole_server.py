"""What is true of the whole server, whichever process is asked over HTTP, and the pages that say it to machines."""

from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from service.call import Identity
from service.http.app import SharedPage
from service.http.document_jobs import DocumentJobs, JobStatus
from service.http.fields import File
from service.http.translated_files import TranslatedFiles
from service.telemetry.metrics import CONTENT_TYPE, Metrics


class WholeServer:
    """The server as its core knows it."""

    def __init__(
        self,
        metrics: Metrics,
        *,
        refresh: Callable[[], Awaitable[None]],
        is_ready: Callable[[], bool],
        is_alive: Callable[[], bool],
        card_of: Callable[[str], str | None],
    ) -> None:
        """Keep no file yet.

        Args:
            refresh: awaited before the metrics are read.
            card_of: name of a model -> its card, in Markdown; None: it has none.
        """
        self._metrics = metrics
        self._refresh = refresh
        self._is_ready = is_ready
        self._is_alive = is_alive
        self._card_of = card_of
        self._page = SharedPage(metrics.exposition, refresh)
        self._files = TranslatedFiles()
        self._jobs = DocumentJobs()

    async def page(self) -> bytes:
        """Return the metrics in Prometheus' text format."""
        return await self._page.read()

    async def is_ready(self) -> bool:
        """Return whether calls are accepted and every model has an engine."""
        return self._is_ready()

    async def is_alive(self) -> bool:
        """Return False when only a restart can help."""
        return self._is_alive()

    async def busyness(self) -> dict[str, float]:
        """Return how many sentences wait, rows in the batch, and target tokens since the start."""
        await self._refresh()
        families = self._metrics.families
        return {
            "queued": _total(families.watched["queue_requests"].collect()),
            "rows": _total(families.watched["live_rows"].collect()),
            "tokens": _total(families.tokens.collect(), direction="target"),
        }

    async def characters_of(self, client: str) -> int:
        """Return how many characters were translated for a client, by its label."""
        await self._refresh()
        return self._metrics.characters_of(client)

    async def card_of(self, model: str) -> str | None:
        """Return the card of a model, in Markdown; None: it has none."""
        return self._card_of(model)

    async def keep(self, file: File) -> str:
        """Keep a translated file for some minutes, and return the name to fetch it by."""
        return self._files.keep(file)

    async def begin_document(self, owner: Identity) -> tuple[str, str]:
        """Return the id and the key of a new document; raises Overloaded if too many are not done."""
        return self._jobs.begin(owner)

    async def note_document(self, name: str, status: JobStatus) -> None:
        """Note how far a document is."""
        self._jobs.note(name, status)

    async def find_document(self, name: str, key: str) -> JobStatus | None:
        """Return how far a document is; None: there is none of this id and key, or no longer."""
        return self._jobs.find(name, key)

    async def find(self, name: str) -> File | None:
        """Return the translated file of this name; None: there is none, or none any more."""
        return self._files.find(name)


class LinkedServer:
    """A `WholeServer` that is in another process: each method asks there."""

    def __init__(self, ask: Callable[..., Awaitable[Any]]) -> None:
        """Ask with `ask`, which takes the method's name and its arguments."""
        self._ask = ask

    def __getattr__(self, method: str) -> Callable[..., Awaitable[Any]]:
        return partial(self._ask, method)


def metrics_pages(whole: WholeServer) -> list[Route]:
    """Return the route of the metrics."""

    async def get_metrics(_: Request) -> Response:
        return Response(await whole.page(), media_type=CONTENT_TYPE)

    return [Route("/metrics", get_metrics)]


def health_pages(whole: WholeServer) -> list[Route]:
    """Return the routes that orchestrators ask."""

    async def get_healthz(_: Request) -> Response:
        is_alive = await whole.is_alive()
        return PlainTextResponse(*(("alive\n", 200) if is_alive else ("no engine for too long\n", 503)))

    async def get_readyz(_: Request) -> Response:
        return PlainTextResponse(*(("ready\n", 200) if await whole.is_ready() else ("not ready\n", 503)))

    return [Route("/healthz", get_healthz), Route("/readyz", get_readyz)]


def _total(metrics: Iterable[Any], **labels: str) -> float:
    """Return the sum of a family's samples that have these labels."""
    samples = [sample for metric in metrics for sample in metric.samples]
    return float(sum(sample.value for sample in samples if labels.items() <= sample.labels.items()))
