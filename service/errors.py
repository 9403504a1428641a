"""Every error the service answers with, and nothing about how it is sent.

    DragomanError
    |-- InvalidInput            the caller's mistake: do not retry
    |   `-- TooLong             a text over the limit
    |-- NotFound                no such model, language pair, glossary or document
    |-- Unimplemented           no such method
    |-- Unauthenticated         no valid API key where one is asked for
    |-- PermissionDenied        the key may not do this
    |-- FailedPrecondition      the state of the server or of its models forbids it, such as loading a broken model
    |-- Overloaded              queue or budget full: retry after `retry_after_s`
    |   `-- OutOfMemory         accepted, and then an engine had too little memory
    |-- DeadlineExceeded        the deadline passed before the answer was there
    |-- Unavailable             starting, draining, or the engine was lost: retry
    `-- InternalError           a bug, or a model that produced no numbers

`code` is the name of the gRPC status, whatever the protocol.  A message says what is wrong, what was given and what
is accepted.
"""

import copyreg
from typing import Any, ClassVar, NamedTuple, Self


class Wait(NamedTuple):
    """How long one caller's next text would wait, as estimated at one moment."""

    at: float  # time.monotonic()
    ahead_s: float  # of work that goes before it
    finish_s: float  # until it is done


class DragomanError(Exception):
    """Base of all errors below; `str(error)` is safe to show to a client."""

    code: ClassVar[str] = "INTERNAL"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle type, message and attributes; the default calls the constructor with the message alone, which fails
        where there are keyword-only arguments.
        """
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]


class InvalidInput(DragomanError):
    """The request cannot be served as it is.

    `field` names the part at fault, as in the proto.  If that is one of several texts, `index` is its place, and the
    message begins with the verb: each protocol names the text in its own way with `about`.
    """

    code = "INVALID_ARGUMENT"

    def __init__(self, message: str, *, field: str, index: int | None = None) -> None:
        super().__init__(message)
        self.field = field
        self.index = index

    def at(self, index: int) -> Self:
        """Say which of several texts is at fault, where whoever raised the error did not know."""
        self.field, self.index = f"{self.field}[{index}]", index
        return self

    def about(self, subject: str) -> str:
        """Return the message with this subject if the error is about one of several texts."""
        message = str(self.args[0])
        return message if self.index is None else f"{subject} {message}"

    def __str__(self) -> str:
        return self.about(f"texts[{self.index}]")


class TooLong(InvalidInput):
    """A text has more characters or tokens than are accepted."""


class NotFound(DragomanError):
    """The server does not have what the request names: a model, a language pair, a glossary or a document."""

    code = "NOT_FOUND"


class Unimplemented(DragomanError):
    """This server has no such method."""

    code = "UNIMPLEMENTED"


class Unauthenticated(DragomanError):
    """The call carries no API key, or none that the server knows."""

    code = "UNAUTHENTICATED"


class PermissionDenied(DragomanError):
    """The caller is known and may not do this."""

    code = "PERMISSION_DENIED"


class FailedPrecondition(DragomanError):
    """What was asked for cannot be done in the server's state; repeating it changes nothing."""

    code = "FAILED_PRECONDITION"


class Overloaded(DragomanError):
    """Refused at admission so that accepted work keeps its latency."""

    code = "RESOURCE_EXHAUSTED"

    def __init__(self, message: str, *, reason: str, retry_after_s: float) -> None:
        super().__init__(message)
        self.reason = reason
        self.retry_after_s = retry_after_s
        self.wait: Wait | None = None  # what a text of usual length would have to wait, if that is why


class OutOfMemory(Overloaded):
    """The texts that ran together were too many for the memory; the next time they may run with others."""

    def __init__(self, message: str, *, retry_after_s: float) -> None:
        super().__init__(message, reason="out_of_memory", retry_after_s=retry_after_s)


class DeadlineExceeded(DragomanError):
    """The caller's deadline, or the server's own limit, passed."""

    code = "DEADLINE_EXCEEDED"

    def __init__(self, message: str, *, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason  # that of `Overloaded` where a text of a stream would have been too late


class Unavailable(DragomanError):
    """Not now, here; the same request can succeed later or elsewhere.

    `reason` is for the metrics, and only calls that were refused before they cost anything have one.
    """

    code = "UNAVAILABLE"

    def __init__(self, message: str, *, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason


class InternalError(DragomanError):
    """The service's own fault."""
