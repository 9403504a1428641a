"""DeepL's documents: one request brings a file, others ask how far it is, and the last one fetches it."""

import math
import time
from contextlib import aclosing
from dataclasses import replace
from pathlib import PurePath
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, InstanceOf, WithJsonSchema
from starlette.responses import Response

from service.api.http.deepl import DIALECT, IGNORED_KEY, RESOURCES, GlossaryFields
from service.api.http.fields import File, checked
from service.api.http.files import KEPT_S, FileTranslator, JobStatus, Progress, TranslatedFile, download
from service.api.http.handlers import HttpCalls
from service.api.http.operations import MULTIPART, HttpRequest, answer_with, operation
from service.api.http.server_status import ServerStatus
from service.call import Call
from service.documents.formats import SUFFIXES, format_of
from service.errors import DragomanError, InvalidInput, NotFound, Unavailable
from service.records import TranslationRequest
from service.translate.glossaries import UploadedGlossaries


class DocumentBody(GlossaryFields):
    """A document to translate; further parameters of DeepL's are accepted, and ignored."""

    model_config = ConfigDict(extra="allow")

    file: Annotated[
        InstanceOf[File],
        WithJsonSchema({"type": "string", "format": "binary", "description": f"One of {' '.join(SUFFIXES)}."}),
    ]
    filename: Annotated[str | None, Field(description="Name of the file, if the part has none.")] = None
    target_lang: Annotated[str, Field(min_length=1, description="Language to translate into, such as DE.")]
    source_lang: Annotated[str | None, Field(description="Language of the document; without: detected.")] = None
    output_format: Annotated[str | None, Field(description="The format of the document: there is no other.")] = None
    auth_key: Annotated[str | None, Field(description="API key, in clients before 2025.")] = None


class KeyBody(BaseModel):
    """What shows that a document is the caller's."""

    document_key: Annotated[str, Field(min_length=1, description="As the answer to the upload has it.")]
    auth_key: Annotated[str | None, Field(description="API key, in clients before 2025.")] = None


class Handle(BaseModel):
    """A document on the server."""

    document_id: str
    document_key: str


class Status(BaseModel):
    """How far a document is."""

    document_id: str
    status: str
    seconds_remaining: int | None = None
    billed_characters: int | None = None
    error_message: str | None = None


_ONE = "/v2/document/{document_id}"


class DeepLDocuments:
    """Answers requests about documents."""

    def __init__(
        self, files: FileTranslator, server: ServerStatus, glossaries: UploadedGlossaries, calls: HttpCalls
    ) -> None:
        """Answer nothing yet; `calls` take the work that goes on after an answer."""
        self._files = files
        self._server = server
        self._glossaries = glossaries
        self._calls = calls

    @operation(
        DIALECT, "/v2/document", "Send a document", Handle, body=DocumentBody, kinds=(MULTIPART,), takes_files=True
    )
    async def document(self, asked: HttpRequest, call: Call) -> Response:
        """Answer at once: the file is translated after the answer."""
        body = checked(DocumentBody, asked.fields)
        file = replace(body.file, name=body.filename or body.file.name)
        try:
            format_of(PurePath(file.name))
        except ValueError as error:
            raise InvalidInput(f"file: {error}", field="file") from None
        suffix = PurePath(file.name).suffix[1:].lower()
        if body.output_format not in (None, "", suffix):
            message = f"output_format is {body.output_format[:20]!a}: a document comes back in its own format, {suffix}"
            raise InvalidInput(message, field="output_format")
        name, terms = await self._glossaries.named(body.glossaries(), call.caller, body.target_lang)
        wish = TranslationRequest(
            source_language=body.source_lang or "",
            target_language=body.target_lang,
            glossary_name=name,
            terms=terms,
            priority=asked.priority,
            allows_same_language=True,
        )
        self._files.check(wish, call)
        document_id, key = await self._server.begin_document(call.caller.identity)
        self._calls.work_on(
            call, f"{DIALECT.name}/document_work", lambda own: self._translate(document_id, file, wish, own)
        )
        ignored = ", ".join(sorted(name for name in body.model_extra or () if name.isidentifier()))
        return answer_with(
            Handle(document_id=document_id, document_key=key), {IGNORED_KEY: ignored[:200]} if ignored else None
        )

    async def _translate(self, document_id: str, file: File, wish: TranslationRequest, call: Call) -> None:
        """Translate a document, and say how far it is."""
        status = JobStatus("error", message="the server is stopping, or the document took too long")
        try:
            async with self._files.waited_room(call), aclosing(self._files.translate(file, wish, call)) as steps:
                async for step in steps:
                    if isinstance(step, TranslatedFile):
                        kept = await self._server.keep(step.file)
                        status = JobStatus("done", None, step.characters, "", kept, call.warnings, step.remarks)
                    else:
                        left_s = _seconds_left(step, time.monotonic() - call.started)
                        await self._server.note_document(document_id, JobStatus("translating", left_s))
        except DragomanError as error:
            status = JobStatus("error", message=str(error))
            raise
        finally:
            await self._server.note_document(document_id, status)

    @operation(RESOURCES, _ONE, "Ask how far a document is", Status, body=KeyBody, is_work=False)
    async def document_status(self, asked: HttpRequest, call: Call) -> Response:
        document_id, status = await self._found(asked)
        return answer_with(
            Status(
                document_id=document_id,
                status=status.state,
                seconds_remaining=status.seconds_remaining,
                billed_characters=status.characters,
                error_message=status.message or None,
            )
        )

    @operation(RESOURCES, f"{_ONE}/result", "Fetch a document", bytes, body=KeyBody, is_work=False)
    async def document_result(self, asked: HttpRequest, call: Call) -> Response:
        _, status = await self._found(asked)
        if status.state == "error":
            raise InvalidInput(status.message, field="document_id")
        if status.state != "done":
            raise Unavailable("the document is not ready: ask for its status")
        file = await self._server.find(status.file)
        if file is None:
            raise NotFound(f"the document was deleted: the server keeps translated files for {KEPT_S / 60:g} minutes")
        call.warnings = status.warnings
        return download(file, status.remarks)

    async def _found(self, asked: HttpRequest) -> tuple[str, JobStatus]:
        document_id = str(asked.request.path_params["document_id"])
        status = await self._server.find_document(document_id, checked(KeyBody, asked.fields).document_key)
        if status is None:
            kept = f"the server keeps documents for {KEPT_S / 60:g} minutes"
            raise NotFound(f"there is no document with this id and key; {kept}")
        return document_id, status


def _seconds_left(progress: Progress, passed_s: float) -> int | None:
    """Return how long the rest takes if it is like what is done; None: nothing is done."""
    if not progress.done:
        return None
    return math.ceil(passed_s * (progress.total - progress.done) / progress.done)
