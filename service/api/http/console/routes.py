"""The routes of the console: its files (`files/`), and the data that its page asks for.

The page is told in JSON; places are in code points, as in the records.
"""

import asyncio
import base64
import json
import time
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from dataclasses import replace
from importlib.resources import files
from typing import Annotated, Any

from pydantic import BaseModel, Field, InstanceOf
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from service.api.http.console.sentences import sentences_of, translate_sentences
from service.api.http.fields import File, checked
from service.api.http.files import FileTranslator, TranslatedFile
from service.api.http.operations import Dialect, HttpRequest, operation
from service.api.http.server_status import ServerStatus
from service.call import PHASES, Call
from service.errors import InvalidInput, NotFound
from service.models.codec import too_long
from service.records import (
    AttentionHeads,
    Link,
    ModelInfo,
    ScorePair,
    ScoreRequest,
    TextFormat,
    TextWarning,
    TranslateOptions,
    Translation,
    TranslationRequest,
)
from service.text.languages import closeness
from service.translate.router import Router, left_as_it_is
from service.translate.routes import offered
from service.translate.scoring import score


def line(value: dict[str, Any]) -> bytes:
    """Return a line of newline-delimited JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def describe_translation(translation: Translation) -> dict[str, Any]:
    """Return the outcome of a sentence."""
    error = translation.error
    if error is not None:
        return {"error": error.about("the text") if isinstance(error, InvalidInput) else str(error)}
    return {
        "text": translation.text,
        "pivot": translation.pivot_language,
        "warnings": describe_warnings(translation.pivot_warnings),
        "segments": [
            {
                "source": segment.source,
                "target": segment.target,
                "quality": None if segment.quality is None else round(segment.quality, 3),
                "warnings": describe_warnings(segment.warnings),
                "links": describe_links(segment.links),
            }
            for segment in translation.segments
        ],
    }


def describe_warnings(warnings: Iterable[TextWarning]) -> list[dict[str, str]]:
    """Return the warnings of a translation."""
    return [{"kind": warning.kind.value, "message": warning.message} for warning in warnings]


def describe_links(links: Iterable[Link]) -> list[tuple[int, int, int, int]]:
    """Return, for each link, where its word of the source and its word of the translation begin and end."""
    return [(*link.source, *link.target) for link in links]


def describe_heads(heads: AttentionHeads) -> dict[str, Any]:
    """Return the weights as base64 of bytes [layers, heads, queries, memory]; 255 stands for 1."""
    return {
        "source": heads.source,
        "target": heads.target,
        "num_heads": heads.weights.num_heads,
        "encoder": base64.b64encode(heads.weights.encoder).decode(),
        "cross": base64.b64encode(heads.weights.cross).decode(),
    }


def describe_model(info: ModelInfo) -> dict[str, Any]:
    """Return the description of a model."""
    alike = ("name", "version", "precision", "device", "has_scorer", "has_head_weights")
    return {
        **{name: getattr(info, name) for name in alike},
        "source": info.source_language,
        "target": info.target_language,
        "beam_size": info.default_options.beam_size,
    }


def describe_end(models: dict[str, str], call: Call) -> dict[str, Any]:
    """Return what ends a translation: who made it, by versions of models, and where the time went, in milliseconds."""
    timings = {phase: round(getattr(call, f"{phase}_s") * 1e3, 2) for phase in PHASES}
    total = round((time.monotonic() - call.started) * 1e3, 2)
    return {"model": ",".join(models), "version": ",".join(models.values()), "timings": {**timings, "total": total}}


NUM_ALTERNATIVES = 6
DIALECT = Dialect(name="console", text_field="text")
_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-cache",
}


class _Languages(BaseModel):
    source: Annotated[str, Field(max_length=64)] = ""  # BCP 47; empty: to be detected
    target: Annotated[str, Field(max_length=64)] = ""


class _Text(_Languages):
    text: str
    format: TextFormat = TextFormat.PLAIN
    known: list[str] = []  # sentences whose translations the page has ...
    known_language: str = ""  # ... if they are in this language


class _Beginning(_Languages):
    text: str
    prefix: str = ""  # what the translations have to begin with


class _Document(_Languages):
    file: InstanceOf[File]


class _Pair(_Languages):
    text: str
    translation: str
    heads: bool = False


class JsonLines(Response):
    """An answer that is sent line by line, as they come; an error before the first line is an answer of its own."""

    def __init__(self, lines: AsyncGenerator[bytes]) -> None:
        super().__init__(media_type="application/x-ndjson")
        self._lines = lines

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(name, value) for name, value in self.raw_headers if name != b"content-length"]
        start = {"type": "http.response.start", "status": 200, "headers": headers}
        has_started = False
        async with aclosing(self._lines) as lines:
            async for one in lines:
                if not has_started:
                    await send(start)
                    has_started = True
                await send({"type": "http.response.body", "body": one, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


class Console:
    """Answers the requests of the page."""

    def __init__(self, router: Router, files: FileTranslator, server: ServerStatus) -> None:
        """Answer nothing yet."""
        self._router = router
        self._files = files
        self._server = server

    def pages(self) -> list[Route]:
        """Return the routes that are no calls."""
        return [*_file_routes(), Route("/console/live", self.live)]

    @operation(DIALECT, "/console/translate")
    async def translate(self, asked: HttpRequest, call: Call) -> Response:
        """Return lines: the language and the sentences, then each translation as it is done, then model and times."""
        return JsonLines(self._translation_lines(checked(_Text, asked.fields), asked, call))

    async def _translation_lines(self, text: _Text, asked: HttpRequest, call: Call) -> AsyncGenerator[bytes]:
        limit = self._router.translator.limits.max_characters
        if len(text.text) > limit:
            raise too_long(len(text.text), "characters", limit, "text")
        language, detected, stays = text.source, None, False
        if not language:
            judged = await self._router.judge(text.text, text.target, call)
            detected, stays = judged.found._asdict(), judged.stays
            language = judged.found.language if stays else judged.source
        spans = await asyncio.to_thread(sentences_of, text.text, language, text.format)
        yield line({"language": language, "detected": detected, "sentences": spans})
        known = set(text.known) if text.known_language == language else set()
        wanted = list(dict.fromkeys(text.text[begin:end] for begin, end in spans))
        wanted = [sentence for sentence in wanted if sentence not in known]
        if stays:
            other = None if closeness(language, text.target) is not None else language
            for sentence in wanted:
                yield line({"sentence": sentence, **describe_translation(left_as_it_is(sentence, other))})
            wanted = []
        request = replace(_request(text, asked, language), format=text.format, return_alignments=True)
        models = dict[str, str]()
        async with aclosing(translate_sentences(wanted, request, self._router, call)) as results:
            async for index, result in results:
                if result.model:
                    models[result.model] = result.model_version
                yield line({"sentence": wanted[index], **describe_translation(result.translations[0])})
        yield line(describe_end(models, call))

    @operation(DIALECT, "/console/document", takes_files=True)
    async def document(self, asked: HttpRequest, call: Call) -> Response:
        """Return lines: how far the document is, again and again, then its name to be fetched by, warnings, remarks."""
        return JsonLines(self._document_lines(checked(_Document, asked.fields), asked, call))

    async def _document_lines(self, body: _Document, asked: HttpRequest, call: Call) -> AsyncGenerator[bytes]:
        wish = replace(_request(body, asked, body.source), allows_same_language=True)
        with self._files.room(call):
            async with aclosing(self._files.translate(body.file, wish, call)) as steps:
                async for step in steps:
                    if isinstance(step, TranslatedFile):
                        name = await self._server.keep(step.file)
                        yield line({"file": name, "report": step.report, "remarks": step.remarks})
                    else:
                        yield line(step._asdict())

    @operation(DIALECT, "/console/alternatives")
    async def alternatives(self, asked: HttpRequest, call: Call) -> Response:
        """Return translations of a sentence that begin with the same words and then each with another one."""
        begun = checked(_Beginning, asked.fields)
        number = min(NUM_ALTERNATIVES, self._router.translator.limits.max_beam_size)
        options = TranslateOptions(beam_size=number, num_hypotheses=number, return_alternatives=True)
        request = _request(begun, asked, begun.source)
        request = replace(request, texts=(begun.text,), target_prefixes=(begun.prefix,), options=options)
        (translation,) = (await self._router.translate(request, call)).translations
        if translation.error is not None:
            raise translation.error
        texts = dict.fromkeys(hypothesis.text for hypothesis in translation.hypotheses)
        return JSONResponse({"alternatives": list(texts)})

    @operation(DIALECT, "/console/score")
    async def score(self, asked: HttpRequest, call: Call) -> Response:
        """Return which words of a translation belong to which of the text, and what each attention head looks at."""
        pair = checked(_Pair, asked.fields)
        request = ScoreRequest(
            pairs=[ScorePair(pair.text, pair.translation)],
            source_language=pair.source,
            target_language=pair.target,
            priority=asked.priority,
            return_alignments=True,
            return_heads=pair.heads,
        )
        (scored,) = (await score(self._router.translator, request, call)).scores
        if scored.error is not None:
            raise scored.error
        tokens = [{"text": token.text, "log_probability": round(token.log_probability, 3)} for token in scored.tokens]
        heads = None if scored.heads is None else describe_heads(scored.heads)
        return JSONResponse({"links": describe_links(scored.links), "tokens": tokens, "heads": heads})

    @operation(DIALECT, "/console/models", verbs=("GET",), is_work=False)
    async def models(self, _: HttpRequest, call: Call) -> Response:
        """Return the models that the caller may use, and what can be translated into what."""
        infos = self._router.infos(call)
        targets = {one.code: one.targets for one in offered(infos)}
        return JSONResponse({"models": [describe_model(info) for info in infos], "targets": targets})

    @operation(DIALECT, "/console/card", verbs=("GET",), is_work=False)
    async def card(self, asked: HttpRequest, call: Call) -> Response:
        """Return the card of a model that the caller may use."""
        name = str(asked.fields.get("model", ""))
        card = await self._server.card_of(name) if name in {info.name for info in self._router.infos(call)} else None
        if card is None:
            raise NotFound(f"there is no card of a model {name[:40]!a}")
        return PlainTextResponse(card)

    async def live(self, _: Request) -> Response:
        """Return the load of the server: sentences that wait, rows in the batch, target tokens since the start."""
        return JSONResponse(await self._server.busyness(), headers={"cache-control": "no-store"})


def _request(languages: _Languages, asked: HttpRequest, source: str) -> TranslationRequest:
    return TranslationRequest(source_language=source, target_language=languages.target, priority=asked.priority)


def _file_routes() -> list[Route]:
    """Return the routes of the page and what belongs to it, read once."""
    routes = []
    for file in files(__package__).joinpath("files").iterdir():
        suffix = file.name[file.name.rindex(".") :]
        path = "/" if file.name == "index.html" else f"/console/{file.name}"
        response = Response(file.read_bytes(), media_type=_TYPES[suffix], headers=_HEADERS)
        routes.append(Route(path, response, methods=["GET"]))  # without, a response as endpoint gets them all
    return routes
