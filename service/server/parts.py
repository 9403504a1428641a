"""What calls go through in one process: the book of calls, the way to the models, and what faces HTTP clients."""

import asyncio
from concurrent.futures import Executor

from service.addresses import is_loopback
from service.calls.authentication import authenticator
from service.calls.book import CallBook
from service.config import ListenConfig, ServerConfig
from service.http.app import create_app
from service.http.calls import HttpCalls
from service.http.console.routes import Console
from service.http.deepl import DeepL
from service.http.deepl_documents import DeepLDocuments
from service.http.deepl_glossaries import DeepLGlossaries
from service.http.libretranslate import LibreTranslate
from service.http.operations import routes_of
from service.http.server import HttpServer
from service.http.translated_files import FileTranslator
from service.http.whole_server import WholeServer, health_pages, metrics_pages
from service.queue.admission import Admission
from service.registry.catalogue import Catalogue
from service.registry.glossaries import Glossaries
from service.registry.uploaded_glossaries import UploadedGlossaries
from service.telemetry.metrics import Metrics
from service.telemetry.observers import CallObserver, SlowCalls, load_traces
from service.translation.account import Account
from service.translation.routing import Router
from service.translation.translator import Translator


class CallParts:
    """The book and the router of one process."""

    def __init__(
        self,
        config: ServerConfig,
        catalogue: Catalogue,
        admission: Admission,
        metrics: Metrics,
        account: Account,
        executor: Executor,
    ) -> None:
        """Make all parts, or raise ValueError: the file of API keys, a glossary or a library cannot be used.

        Args:
            executor: for texts that are too long for the event loop.
        """
        traces_class = load_traces(config.telemetry)
        self._traces = traces_class.to(config.telemetry.otlp_endpoint or "") if traces_class else None
        observers: list[CallObserver] = [self._traces] if self._traces else []
        slow_s = config.telemetry.slow_request_s
        self.book = CallBook(
            metrics,
            authenticator=authenticator(config.security),
            observers=observers,
            slow_calls=None if slow_s is None else SlowCalls(slow_s, count=metrics.families.slow_requests.inc),
        )
        glossaries = Glossaries(config.models.glossaries, period_s=config.models.watch_period_s)
        self.translator = Translator(catalogue, admission, account, config.limits, executor, glossaries)
        self.router = Router(self.translator, executor)

    async def close_traces(self) -> None:
        """Send the traces that are still to be sent."""
        if self._traces:
            await asyncio.to_thread(self._traces.close)


class HttpParts:
    """The HTTP port of one process; refuses calls until `calls.refusal` is None."""

    def __init__(self, config: ServerConfig, parts: CallParts, whole: WholeServer) -> None:
        """Listen nowhere yet; calls go through `parts`, and `whole` knows what is asked about the whole server."""
        listen, limits = config.listen, config.limits
        self.calls = HttpCalls(
            parts.book,
            max_request_seconds=limits.max_request_seconds,
            max_body_bytes=limits.max_message_bytes,
            max_file_bytes=limits.max_document_bytes,
            max_file_seconds=limits.max_document_seconds,
            refuse=parts.translator.refusal,
        )
        files = FileTranslator(parts.router)
        libretranslate = LibreTranslate(parts.router, files, limits, whole, config.security)
        glossaries = UploadedGlossaries(config.models.uploaded_glossaries)
        operations = [
            *libretranslate.operations(),
            *DeepL(parts.router, whole, glossaries).operations(),
            *DeepLDocuments(files, whole, glossaries, self.calls.work_on).operations(),
            *DeepLGlossaries(parts.router, glossaries).operations(),
        ]
        routes = [
            *([] if listen.metrics_port is not None else metrics_pages(whole)),
            *health_pages(whole),
            *routes_of(self.calls, operations),
            *libretranslate.pages(),
            *(Console(parts.router, files, whole).routes(self.calls) if has_console(listen) else ()),
        ]
        self.server = HttpServer(
            create_app(routes, cors_origins=listen.cors_origins), max_connections=listen.max_http_connections
        )


def has_console(listen: ListenConfig) -> bool:
    """Whether the page at / is served: as `listen.console` says, else where only this machine can see it."""
    return is_loopback(listen.http_host) if listen.console is None else listen.console
