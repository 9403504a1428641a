"""The fields of a request, from its query and its body, which is JSON or a form; and the warnings of an answer.

The forms are those of HTML: urlencoded, and multipart, in which files come.  The messages of LibreTranslate and DeepL
have no place for warnings: an additional field has them, which their clients ignore, and so has a header.
"""

import asyncio
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from email.message import Message
from itertools import islice, pairwise
from typing import Any, TypeAlias, TypeVar
from urllib.parse import parse_qsl

from pydantic import BaseModel, TypeAdapter, ValidationError
from starlette.requests import Request

from service.call import Call
from service.errors import InvalidInput
from service.records import Translation, WarningKind

MAX_FIELDS = 10_000  # of a form
_MAX_HEADER_BYTES = 8 << 10  # of a part of a form
_INLINE_BYTES = 64 << 10  # a larger body is parsed in a thread

Fields: TypeAlias = Mapping[str, Any]
_OBJECT = TypeAdapter(dict[str, Any])
_Model = TypeVar("_Model", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class File:
    """A file in a form."""

    name: str  # as its sender calls it
    content: bytes


async def read_fields(request: Request, body: bytes) -> Fields:
    """Return what a request says; a field of the body goes before one of the query.

    A field that a form has several times is a list.  A body without a type is JSON if it has a text at all.

    Raises:
        InvalidInput: the body is not what its type says.
    """
    content_type = request.headers.get("content-type", "")
    if len(body) <= _INLINE_BYTES:
        of_body = _parse(body, content_type)
    else:
        of_body = await asyncio.to_thread(_parse, body, content_type)
    query = _joined(_urlencoded(request.scope["query_string"], "the query"))
    return {**query, **of_body}


def checked(model: type[_Model], fields: Fields) -> _Model:
    """Return the fields as a record of this kind; raises InvalidInput, which names the field at fault."""
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        field, *inner = error.errors(include_url=False, include_input=False)[0]["loc"]
        indices = [part for part in inner if isinstance(part, int)]  # the others name the type that was tried
        name = ".".join(map(str, [field, *indices]))
        raise InvalidInput(f"{name}: {_what(error)}", field=name) from None


def _what(error: ValidationError) -> str:
    """Return what is wrong first; quotes nothing."""
    return error.errors(include_url=False, include_input=False, include_context=False)[0]["msg"].removeprefix(
        "Value error, "
    )


def _parse(body: bytes, content_type: str) -> dict[str, Any]:
    if not body.strip():
        return {}
    kind = content_type.partition(";")[0].strip().lower()
    match kind:
        case "application/x-www-form-urlencoded":
            return _joined(_urlencoded(body, "the body"))
        case "multipart/form-data":
            return _joined(_multipart(body, content_type))
    try:
        return _OBJECT.validate_json(body)
    except ValidationError as error:
        message = "the body is not a JSON object, or its content-type is wrong"
        raise InvalidInput(f"{message}: {_what(error)}", field="") from None


def _urlencoded(data: bytes, what: str) -> list[tuple[str, Any]]:
    try:
        text = data.decode()  # curl -d "q=schläft" escapes nothing
        return list(parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=MAX_FIELDS))
    except ValueError as error:
        reason = "it is not UTF-8" if isinstance(error, UnicodeError) else error
        raise InvalidInput(f"{what} is not urlencoded: {reason}", field="") from None


def _multipart(body: bytes, content_type: str) -> list[tuple[str, Any]]:
    """Return the parts of a form (RFC 7578) by their names.

    Whoever has no key may send one, since a form is where LibreTranslate's clients put their key: so the parts are
    counted before anything is made of them, and a part has no parts.
    """
    header = Message()
    header["content-type"] = content_type
    boundary = re.escape((header.get_boundary() or "").encode("latin-1", "replace"))
    # The expression begins with a literal, so that a large file is searched in milliseconds, which nothing interrupts.
    lines = re.finditer(rb"--" + boundary + rb"(--)?[ \t]*+(?=\r\n|\Z)", body)
    delimiters = (one for one in lines if one.start() == 0 or body[one.start() - 2 : one.start()] == b"\r\n")
    found = list(islice(delimiters, MAX_FIELDS + 2))
    last = next((number for number, one in enumerate(found) if one[1]), None)
    if not boundary or not last:
        raise InvalidInput(f"the body is not multipart/form-data with 1 to {MAX_FIELDS:,} fields", field="")
    return [_part(body[one.end() : following.start() - 2]) for one, following in pairwise(found[: last + 1])]


def _part(part: bytes) -> tuple[str, Any]:
    head, _, content = part.partition(b"\r\n\r\n")
    if len(head) > _MAX_HEADER_BYTES:
        limit = f"at most {_MAX_HEADER_BYTES:,} are accepted"
        raise InvalidInput(f"the header of a part of the body has {len(head):,} bytes, {limit}", field="")
    header = Message()
    for line in head.decode("utf-8", "replace").split("\r\n"):  # names of files are in UTF-8
        key, _, value = line.partition(":")
        header[key] = value.strip()
    name, file_name = header.get_param("name", header="content-disposition"), header.get_filename()
    if not isinstance(name, str):
        raise InvalidInput("a part of the body has no name", field="")
    if file_name is not None:
        return name, File(file_name, content)
    try:
        return name, content.decode()
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{name[:40]} is not valid UTF-8 at byte {error.start}", field=name) from None


def _joined(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    fields: dict[str, list[Any]] = {}
    for name, value in pairs:
        fields.setdefault(name, []).append(value)
    return {name: values[0] if len(values) == 1 else values for name, values in fields.items()}


class KindOfWarning(BaseModel):
    """Something that went wrong with a text, once or more often."""

    kind: WarningKind
    count: int
    message: str  # of the first


def warnings_of(translation: Translation) -> list[KindOfWarning] | None:
    """Return what went wrong with a text, by kind; None: nothing that the server noticed."""
    return by_kind((warning.kind, warning.message) for warning in translation.warnings) or None


def by_kind(warnings: Iterable[tuple[WarningKind, str]]) -> list[KindOfWarning]:
    """Return kinds and messages as one record for each kind."""
    found: dict[WarningKind, KindOfWarning] = {}
    for kind, message in warnings:
        if kind in found:
            found[kind].count += 1
        else:
            found[kind] = KindOfWarning(kind=kind, count=1, message=message)
    return list(found.values())


def warn_of(translations: Iterable[Translation], call: Call) -> None:
    """Have the header of the answer to a call list the warnings of these translations."""
    call.warn(warning.kind for translation in translations for warning in translation.warnings)
