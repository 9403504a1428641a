"""What travels between Serve's proxies and the replicas: bytes as the client sent them, and the time it allows.

Knows neither Serve nor the server.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import grpc
from grpc_health.v1 import health_pb2

from protos import translation_pb2 as pb
from service.api.status import WireStatus, to_wire
from service.errors import Unavailable

_SERVICE = pb.DESCRIPTOR.services_by_name["TranslationService"].full_name
_HEALTH = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name

# Serve calls the method of the replica that has the last part as its name.
TRANSLATE = f"/{_SERVICE}/Translate"
TRANSLATE_STREAM = f"/{_SERVICE}/TranslateStream"
LIST_MODELS = f"/{_SERVICE}/ListModels"
CHECK = f"/{_HEALTH}/Check"
WATCH = f"/{_HEALTH}/Watch"

CLIENT_HEADER = "x-dragoman-client"  # in which a replica tells its server who calls
_OF_SERVE = {"application", "request_id", "multiplexed_model_id", "session_id"}
_OF_THE_CHANNEL = ("grpc-", "user-agent", ":")
_DETAILS_KEY = "grpc-status-details-bin"
_PASSING = {  # what Serve itself says with these codes; its own messages are traces, or name what only Ray knows
    grpc.StatusCode.INTERNAL: "the replica that had the call is gone",
    grpc.StatusCode.NOT_FOUND: "Serve does not know the application yet, or metadata `application` has to name it",
}

Metadata = Iterable[tuple[str, str | bytes]]


@dataclass(frozen=True, slots=True)
class ForwardedCall:
    """A call as the proxy hands it on; of a stream of requests, what comes before them."""

    message: bytes
    timeout_s: float | None  # what is left of the client's deadline; None: it set none


@dataclass(frozen=True, slots=True)
class Encoded:
    """An answer's bytes, as what Serve takes for a message."""

    data: bytes

    def SerializeToString(self) -> bytes:  # noqa: N802 - protobuf's name
        """Those bytes."""
        return self.data


def forwarded_metadata(metadata: Metadata, client: str) -> tuple[tuple[str, str | bytes], ...]:
    """What a replica's server is told of a client's metadata, and whose call it is."""
    kept = [
        (key, value)
        for key, value in metadata
        if key not in _OF_SERVE and key != CLIENT_HEADER and not key.startswith(_OF_THE_CHANNEL)
    ]
    return (*kept, (CLIENT_HEADER, client))


def final_status(code: grpc.StatusCode, message: str, trailers: Metadata) -> WireStatus:
    """What the client is told where Serve has this status.

    A server's own statuses have details.  INTERNAL without any is Serve's word for a replica that died with the call,
    NOT_FOUND that for an application of which a proxy has not heard yet: such calls can be sent again.
    """
    kept = tuple(trailers)
    if code not in _PASSING or any(key == _DETAILS_KEY for key, _ in kept):
        return WireStatus(code, message, kept)
    passing = to_wire(Unavailable(_PASSING[code]))
    return replace(passing, trailers=(*passing.trailers, *kept))


def status_code(code: Any) -> grpc.StatusCode:
    """The code of a gRPC context: a member, a number, or None as long as nobody has set it, which is OK."""
    if code is None:
        return grpc.StatusCode.OK
    if isinstance(code, grpc.StatusCode):
        return code
    return next((member for member in grpc.StatusCode if member.value[0] == code), grpc.StatusCode.UNKNOWN)
