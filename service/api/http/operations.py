"""The operations of the HTTP protocols: a record for each, beside the method that answers it.

A service is an object with such methods.  From the records come the routes (`handlers.py`) and the description in
OpenAPI: at /spec as JSON, and at /docs as a page that loads nothing from other servers.
"""

import base64
import hashlib
import html
import json
import math
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cache
from typing import Any, TypeAlias, TypeVar

from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import JsonSchemaMode
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from service.api.http.fields import Fields
from service.call import Call
from service.errors import DragomanError, InvalidInput, Overloaded
from service.records import Priority
from service.telemetry.metrics import server_version

JSON, URLENCODED, MULTIPART = "application/json", "application/x-www-form-urlencoded", "multipart/form-data"
STATUSES = {
    "INVALID_ARGUMENT": 400,
    "NOT_FOUND": 404,
    "UNAUTHENTICATED": 403,
    "PERMISSION_DENIED": 403,
    "FAILED_PRECONDITION": 409,
    "RESOURCE_EXHAUSTED": 429,
    "DEADLINE_EXCEEDED": 504,
    "UNAVAILABLE": 503,
}  # others: 500
_UNAVAILABLE_RETRY_S = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    """A request as the method of an operation gets it."""

    fields: Fields  # of the query and the body
    priority: Priority | None
    request: Request  # whose body has been read


Behaviour: TypeAlias = Callable[[HttpRequest, Call], Awaitable[Response]]
_Method = TypeVar("_Method", bound=Callable[..., Awaitable[Response]])


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """The names and statuses of a protocol for what all protocols have."""

    name: str  # in metrics: NAME/METHOD
    error_field: str = "error"  # of the answer, with the message
    text_field: str = "text"  # of the request, with the texts
    key_field: str = ""  # of the request, where an API key may be; empty: nowhere
    statuses: Mapping[str, int] = field(default_factory=dict)  # by the code of an error, other than in STATUSES

    def answer_to(self, error: DragomanError) -> Response:
        """Return the response that says what went wrong."""
        status = self.statuses.get(error.code, STATUSES.get(error.code, 500))
        headers = {}
        if isinstance(error, Overloaded):
            headers["retry-after"] = str(max(1, math.ceil(error.retry_after_s)))
        elif status == STATUSES["UNAVAILABLE"]:
            headers["retry-after"] = str(_UNAVAILABLE_RETRY_S)
        message = str(error)
        if isinstance(error, InvalidInput):
            message = error.about(f"{self.text_field}[{error.index}]")
        return self.error(message, status, headers)

    def error(self, message: str, status: int, headers: Mapping[str, str] | None = None) -> Response:
        """Return the response with this message and status."""
        return JSONResponse({self.error_field: message}, status, headers)


@dataclass(frozen=True, slots=True)
class Operation:
    """A method over HTTP: its path, fields, answer and limits."""

    dialect: Dialect
    path: str
    summary: str = ""
    answer: Any = None  # type of what is answered; None: nothing
    _: KW_ONLY
    body: type[BaseModel] | None = None  # of the fields that are read
    kinds: Sequence[str] = (JSON, URLENCODED, MULTIPART)  # of bodies
    verbs: Sequence[str] = ("POST",)
    is_work: bool = True  # whether the models work for it, so that it can be refused when they have too much
    needs_key: bool = True  # whether a caller without a key is refused where there are keys; a bad key always is
    takes_files: bool = False  # whether the limits are those of files
    status: int = 200  # of the answer to a request that succeeded
    name: str = ""  # of the method that answers

    @property
    def label(self) -> str:
        """Its name in the metrics."""
        return f"{self.dialect.name}/{self.name}"


def operation(*given: Any, **options: Any) -> Callable[[_Method], _Method]:
    """Return the decorator of a method that answers an `Operation` with these fields."""
    described = Operation(*given, **options)

    def decorate(method: _Method) -> _Method:
        method.__dict__["operation"] = replace(described, name=method.__name__)
        return method

    return decorate


def operations_of(service: object) -> list[tuple[Operation, Behaviour]]:
    """Return the operations of a service with the methods that answer them, in their order."""
    methods = [(name, method) for name, method in vars(type(service)).items() if hasattr(method, "operation")]
    return [(method.operation, getattr(service, name)) for name, method in methods]


def answer_with(model: BaseModel, headers: dict[str, str] | None = None, status: int = 200) -> Response:
    """Return the response with this record; what is None is left out."""
    return Response(model.model_dump_json(by_alias=True, exclude_none=True), status, headers, JSON)


_ERRORS = {
    "400": "what was asked for cannot be done as it is",
    "403": "no API key, or none that is good for this",
    "404": "there is none",
    "409": "the model needs more memory than the server may take",
    "413": "the body is too large",
    "429": "too much work waits: try again after Retry-After seconds",
    "500": "an error of the server; its log has it under the request's id",
    "503": "the server is starting or stopping: try again after Retry-After seconds",
    "504": "the deadline passed",
}
_INTRODUCTION = """Translation over HTTP, in the words of LibreTranslate and of DeepL.

An API key, where the server asks for one, is sent as `Authorization: Bearer KEY`, as `Authorization: DeepL-Auth-Key
KEY`, or in the field `api_key` of LibreTranslate.  `X-Request-Id` names a request: the answer has it, and so has the
server's log.  `X-Request-Timeout-Ms` is the caller's deadline, `X-Priority` is `interactive` or `batch`.  A caller that
closes its connection cancels its request."""


def description_pages(*services: object) -> list[Route]:
    """Return the routes to the description of the operations of these services."""

    @cache
    def description() -> dict[str, Any]:
        return describe([one for service in services for one, _ in operations_of(service)])

    async def get_spec(_: Request) -> Response:
        return Response(json.dumps(description()), media_type=JSON)

    async def get_docs(_: Request) -> Response:
        return HTMLResponse(_page(description()), headers=_PAGE_HEADERS)

    return [Route("/spec", get_spec), Route("/docs", get_docs)]


def describe(operations: Sequence[Operation]) -> dict[str, Any]:
    """Return the description of operations in OpenAPI 3.1."""
    schemas: dict[str, Any] = {}
    paths: dict[str, Any] = {}
    for one in operations:
        body = _schema(one.body, "validation", one.dialect, schemas) if one.body else None
        answer = _schema(one.answer, "serialization", one.dialect, schemas)
        for verb in one.verbs:
            paths.setdefault(one.path, {})[verb.lower()] = _operation(one, verb, body, answer)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Dragoman", "version": server_version(), "description": _INTRODUCTION},
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "deepl": {"type": "apiKey", "in": "header", "name": "Authorization"},
            },
        },
    }


def _schema(kind: Any, mode: JsonSchemaMode, dialect: Dialect, schemas: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a type, and add those that it refers to, under names with that of the dialect."""
    template = f"#/components/schemas/{dialect.name}.{{model}}"
    schema = TypeAdapter(kind).json_schema(mode=mode, ref_template=template)
    schemas |= {f"{dialect.name}.{name}": one for name, one in schema.pop("$defs", {}).items()}
    return schema


def _operation(one: Operation, verb: str, body: dict[str, Any] | None, answer: dict[str, Any]) -> dict[str, Any]:
    error = {"type": "object", "properties": {one.dialect.error_field: {"type": "string"}}}
    media = {bytes: "application/octet-stream", str: "text/tab-separated-values"}.get(one.answer, JSON)
    content = {} if one.answer is None else {"content": {media: {"schema": answer}}}
    responses: dict[str, Any] = {str(one.status): {"description": "done", **content}}
    for status, meaning in _ERRORS.items():
        if status == "404" and one.dialect.statuses.get("NOT_FOUND", 404) != 404:
            continue
        responses[status] = {"description": meaning, "content": {JSON: {"schema": error}}}
    described: dict[str, Any] = {
        "operationId": f"{one.dialect.name}_{one.name}_{verb.lower()}",
        "tags": [one.dialect.name],
        "summary": one.summary,
        "security": [{}, {"bearer": []}, {"deepl": []}],
        "responses": responses,
    }
    if names := re.findall(r"{(\w+)}", one.path):
        described["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names
        ]
    if body is not None and verb == "GET":  # a listing, of which no field is required
        described["parameters"] = [
            {"name": name, "in": "query", "schema": field} for name, field in body["properties"].items()
        ]
    elif body is not None and verb == "POST":
        is_required = bool(body.get("required"))
        described["requestBody"] = {"required": is_required, "content": {kind: {"schema": body} for kind in one.kinds}}
    return described


_STYLE = """body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
code,pre{font-family:ui-monospace,monospace}pre{overflow:auto;padding:.75rem;border:1px solid;border-radius:.3rem}
h2{margin-top:2.5rem}table{border-collapse:collapse}td,th{text-align:left;padding:.2rem 1rem .2rem 0;vertical-align:top}
:root{color-scheme:light dark}"""
_STYLE_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_PAGE_HEADERS = {  # no script, and nothing from elsewhere
    "content-security-policy": f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
}


def _page(description: dict[str, Any]) -> str:
    """Return the description as a page without scripts."""
    introduction = "".join(f"<p>{html.escape(part)}</p>" for part in description["info"]["description"].split("\n\n"))
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Dragoman: HTTP</title>',
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head><body><main>',
        f"<h1>Dragoman over HTTP</h1>{introduction}",
        '<p>The same for programs: <a href="/spec">/spec</a>, OpenAPI 3.1.</p>',
    ]
    for path, operations in description["paths"].items():
        for verb, one in operations.items():
            parts += [f"<h2><code>{verb.upper()} {html.escape(path)}</code></h2><p>{html.escape(one['summary'])}</p>"]
            parts += _fields_of(one)
    parts += ["<h2>Statuses</h2><table>"]
    parts += [f"<tr><td><code>{status}</code></td><td>{meaning}</td></tr>" for status, meaning in _ERRORS.items()]
    return "".join([*parts, "</table></main></body></html>"])


def _fields_of(operation: dict[str, Any]) -> list[str]:
    """Return the table of an operation's fields."""
    fields = {one["name"]: one["schema"] for one in operation.get("parameters", ())}
    if content := operation.get("requestBody", {}).get("content"):
        fields = next(iter(content.values()))["schema"]["properties"]
    rows = [
        f"<tr><td><code>{html.escape(name)}</code></td><td>{html.escape(field.get('description', ''))}</td></tr>"
        for name, field in fields.items()
    ]
    return ["<table>", *rows, "</table>"] if rows else []
