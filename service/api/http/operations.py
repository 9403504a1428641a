"""What a server can be asked over HTTP: one record an operation, beside the method that answers it.

A service is an object with such methods.  From the records come the routes (`calls.py`) and the description
(`openapi.py`).
"""

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, TypeAlias, TypeVar

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from service.api.http.fields import Fields
from service.call import Call
from service.errors import DragomanError, InvalidInput, Overloaded
from service.records import Priority

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
    """What a method is asked."""

    fields: Fields  # of the query and the body
    priority: Priority | None
    request: Request  # whose body has been read


Behaviour: TypeAlias = Callable[[HttpRequest, Call], Awaitable[Response]]
_Method = TypeVar("_Method", bound=Callable[..., Awaitable[Response]])


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """How a protocol says what all of them say."""

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
    """Something that can be asked for."""

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
    status: int = 200  # of the answer that says that it is done
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
    """Return what this service can be asked for, with the methods that answer, in their order."""
    methods = [(name, method) for name, method in vars(type(service)).items() if hasattr(method, "operation")]
    return [(method.operation, getattr(service, name)) for name, method in methods]


def answer_with(model: BaseModel, headers: dict[str, str] | None = None, status: int = 200) -> Response:
    """Return the response with this record; what is None is left out."""
    return Response(model.model_dump_json(by_alias=True, exclude_none=True), status, headers, JSON)
