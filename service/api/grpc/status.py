"""Errors of `service.errors` as gRPC statuses, and back: code, message, and details that a program can read.

The details follow google.rpc: ErrorInfo always, BadRequest for a bad field, RetryInfo and the pushback trailer for a
refusal that may be repeated.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias, TypeVar

import grpc
from google.protobuf.any_pb2 import Any
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import DecodeError, Message
from google.rpc import error_details_pb2, status_pb2

from service.errors import (
    DeadlineExceeded,
    DragomanError,
    FailedPrecondition,
    InternalError,
    InvalidInput,
    NotFound,
    Overloaded,
    PermissionDenied,
    Unauthenticated,
    Unavailable,
)

ERROR_DOMAIN = "dragoman"
MAX_MESSAGE_CHARACTERS = 1_000  # statuses travel in trailers, which clients limit to some kilobytes
_DETAILS_KEPT = 256
_DETAILS_KEY = "grpc-status-details-bin"
_PUSHBACK_KEY = "grpc-retry-pushback-ms"

_Detail = TypeVar("_Detail", bound=Message)
Metadata: TypeAlias = Iterable[tuple[str, str | bytes]]

_ERRORS: dict[grpc.StatusCode, type[DragomanError]] = {
    grpc.StatusCode[kind.code]: kind
    for kind in (
        NotFound,
        Unauthenticated,
        PermissionDenied,
        FailedPrecondition,
        DeadlineExceeded,
        Unavailable,
        InternalError,
    )
}
_ERRORS[grpc.StatusCode.CANCELLED] = Unavailable  # not by the caller itself, whose own cancel is no error
_CODE_OF_NUMBER: dict[int, grpc.StatusCode] = {code.value[0]: code for code in grpc.StatusCode}


@dataclass(frozen=True, slots=True)
class WireStatus:
    """What an aborted call carries."""

    code: grpc.StatusCode
    message: str
    trailers: tuple[tuple[str, str | bytes], ...]


def code_of(error: DragomanError) -> grpc.StatusCode:
    """Return the status code of an error."""
    return grpc.StatusCode[error.code]


def code_number(error: DragomanError) -> int:
    """Return the status code of an error as google.rpc.Code."""
    number: int = code_of(error).value[0]
    return number


def to_wire(error: DragomanError) -> WireStatus:
    """Return the status that a call with this error ends with."""
    code, message = code_of(error), str(error)[:MAX_MESSAGE_CHARACTERS]
    # Parts of a message, serialised and put one behind the other, are the message serialised.
    details = status_pb2.Status(code=code.value[0], message=message).SerializeToString()
    if isinstance(error, InvalidInput):
        details += _error_info(code.name, error.field) + _bad_request(error.field, message)
    elif isinstance(error, Overloaded):
        delay_ms = round(error.retry_after_s * 1e3)
        details += _error_info(error.reason, None) + _retry_info(delay_ms)
        return WireStatus(code, message, ((_PUSHBACK_KEY, str(delay_ms)), (_DETAILS_KEY, details)))
    else:
        details += _error_info(code.name, None)
    return WireStatus(code, message, ((_DETAILS_KEY, details),))


# Refusals are many when time is short, and much alike: what they share is made once.


@lru_cache(maxsize=_DETAILS_KEPT)
def _error_info(reason: str, field: str | None) -> bytes:
    metadata = {} if field is None else {"field": field}
    return _serialized(error_details_pb2.ErrorInfo(reason=reason, domain=ERROR_DOMAIN, metadata=metadata))


@lru_cache(maxsize=_DETAILS_KEPT)
def _retry_info(delay_ms: int) -> bytes:
    delay = Duration()
    delay.FromMilliseconds(delay_ms)
    return _serialized(error_details_pb2.RetryInfo(retry_delay=delay))


def _bad_request(field: str, message: str) -> bytes:
    violation = error_details_pb2.BadRequest.FieldViolation(field=field, description=message)
    return _serialized(error_details_pb2.BadRequest(field_violations=[violation]))


def _serialized(detail: Message) -> bytes:
    """Return a Status that has nothing but this detail as bytes."""
    packed = Any()
    packed.Pack(detail)
    data: bytes = status_pb2.Status(details=[packed]).SerializeToString()
    return data


def to_error(code: grpc.StatusCode, message: str, trailers: Metadata = ()) -> DragomanError:
    """Return the error that a status stands for; a status without one is an `InternalError`."""
    info = _unpacked(_status_of(trailers).details, error_details_pb2.ErrorInfo())
    match code:
        case grpc.StatusCode.INVALID_ARGUMENT:
            return InvalidInput(message, field=info.metadata.get("field", ""))
        case grpc.StatusCode.RESOURCE_EXHAUSTED:
            return Overloaded(message, reason=info.reason, retry_after_s=_retry_after_s(trailers))
    kind = _ERRORS.get(code)
    return kind(message) if kind else InternalError(f"{code.name}: {message}")


def decode_error(number: int, message: str) -> DragomanError:
    """Return the error that a google.rpc.Code and a message stand for."""
    return to_error(_CODE_OF_NUMBER.get(number, grpc.StatusCode.UNKNOWN), message)


def _retry_after_s(trailers: Metadata) -> float:
    """Return the seconds that the server asks to wait: its pushback, else its RetryInfo, else 0."""
    for key, value in trailers:
        if key == _PUSHBACK_KEY and (digits := str(value)).isdecimal():
            return int(digits) / 1_000
    info = _unpacked(_status_of(trailers).details, error_details_pb2.RetryInfo())
    return float(info.retry_delay.ToNanoseconds()) / 1e9


def _unpacked(details: Iterable[Any], empty: _Detail) -> _Detail:
    """Return the first detail of this kind, the empty one if there is none."""
    found = type(empty)()
    return next((found for detail in details if detail.Unpack(found)), empty)


def _status_of(trailers: Metadata) -> status_pb2.Status:
    for key, value in trailers:
        if key == _DETAILS_KEY and isinstance(value, bytes):
            try:
                return status_pb2.Status.FromString(value)
            except DecodeError:
                break
    return status_pb2.Status()
