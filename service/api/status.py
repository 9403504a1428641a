"""Domain errors as gRPC statuses: code, message, and details that a program can read.

The details follow google.rpc: ErrorInfo always, BadRequest for a bad field, RetryInfo and the pushback trailer for a
refusal that may be repeated.  `replies.py` reads them on the client's side.
"""

from dataclasses import dataclass

import grpc
from google.protobuf.duration_pb2 import Duration
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
    Unimplemented,
)

ERROR_DOMAIN = "dragoman"
MAX_MESSAGE_CHARACTERS = 1_000  # statuses travel in trailers, which clients limit to some kilobytes

_CODES: dict[type[DragomanError], grpc.StatusCode] = {
    InvalidInput: grpc.StatusCode.INVALID_ARGUMENT,
    NotFound: grpc.StatusCode.NOT_FOUND,
    Unimplemented: grpc.StatusCode.UNIMPLEMENTED,
    Unauthenticated: grpc.StatusCode.UNAUTHENTICATED,
    PermissionDenied: grpc.StatusCode.PERMISSION_DENIED,
    FailedPrecondition: grpc.StatusCode.FAILED_PRECONDITION,
    Overloaded: grpc.StatusCode.RESOURCE_EXHAUSTED,
    DeadlineExceeded: grpc.StatusCode.DEADLINE_EXCEEDED,
    Unavailable: grpc.StatusCode.UNAVAILABLE,
    InternalError: grpc.StatusCode.INTERNAL,
}


@dataclass(frozen=True, slots=True)
class WireStatus:
    """What an aborted call carries."""

    code: grpc.StatusCode
    message: str
    trailers: tuple[tuple[str, str | bytes], ...]


def code_of(error: DragomanError) -> grpc.StatusCode:
    """The status code of an error."""
    return next((code for kind, code in _CODES.items() if isinstance(error, kind)), grpc.StatusCode.INTERNAL)


def code_number(error: DragomanError) -> int:
    """The status code of an error as google.rpc.Code."""
    number: int = code_of(error).value[0]
    return number


def to_wire(error: DragomanError) -> WireStatus:
    """The status a call ends with for this error."""
    code, message = code_of(error), str(error)[:MAX_MESSAGE_CHARACTERS]
    status = status_pb2.Status(code=code.value[0], message=message)
    status.details.add().Pack(_error_info(error, code))
    trailers: list[tuple[str, str | bytes]] = []
    if isinstance(error, InvalidInput):
        violation = error_details_pb2.BadRequest.FieldViolation(field=error.field, description=message)
        status.details.add().Pack(error_details_pb2.BadRequest(field_violations=[violation]))
    if isinstance(error, Overloaded):
        delay_ms = round(error.retry_after_s * 1e3)
        delay = Duration()
        delay.FromMilliseconds(delay_ms)
        status.details.add().Pack(error_details_pb2.RetryInfo(retry_delay=delay))
        trailers.append(("grpc-retry-pushback-ms", str(delay_ms)))
    trailers.append(("grpc-status-details-bin", status.SerializeToString()))
    return WireStatus(code, message, tuple(trailers))


def _error_info(error: DragomanError, code: grpc.StatusCode) -> error_details_pb2.ErrorInfo:
    reason = error.reason if isinstance(error, Overloaded) else code.name
    metadata = {"field": error.field} if isinstance(error, InvalidInput) else {}
    return error_details_pb2.ErrorInfo(reason=reason, domain=ERROR_DOMAIN, metadata=metadata)
