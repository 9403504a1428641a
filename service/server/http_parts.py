"""What faces HTTP clients in one process: the dialects, the console and the pages for machines, on one port."""

from service.addresses import is_loopback
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
from service.registry.uploaded_glossaries import UploadedGlossaries
from service.server.call_parts import CallParts


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
            refuse=parts.pipeline.refusal,
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
