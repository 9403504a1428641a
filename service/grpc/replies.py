"""Wire messages to records and statuses to errors, as the client needs them.

Pure functions; no channel, no call.  The server's side of the same is `servicer.py` and `status.py`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict

import grpc
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

from protos import translation_pb2 as pb
from service.engine.job import FinishReason
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
from service.grpc import priorities
from service.queue.callers import Priority
from service.records import (
    ModelInfo,
    Timings,
    TranslatedText,
    TranslateOptions,
    TranslateReply,
    Translation,
)

Metadata = Iterable[tuple[str, str | bytes]]

_DETAILS_KEY = "grpc-status-details-bin"
_PUSHBACK_KEY = "grpc-retry-pushback-ms"
_REASONS = {
    pb.FINISH_REASON_END_OF_SENTENCE: FinishReason.END_OF_SENTENCE,
    pb.FINISH_REASON_LENGTH: FinishReason.LENGTH,
}
_KINDS: dict[grpc.StatusCode, type[DragomanError]] = {
    grpc.StatusCode.NOT_FOUND: NotFound,
    grpc.StatusCode.UNAUTHENTICATED: Unauthenticated,
    grpc.StatusCode.PERMISSION_DENIED: PermissionDenied,
    grpc.StatusCode.FAILED_PRECONDITION: FailedPrecondition,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineExceeded,
    grpc.StatusCode.UNAVAILABLE: Unavailable,
    grpc.StatusCode.CANCELLED: Unavailable,  # by the server or something between: the caller's own cancel is no error
    grpc.StatusCode.INTERNAL: InternalError,
}


def to_request(
    texts: Sequence[str],
    *,
    options: TranslateOptions | None = None,
    model: str | None = None,
    source_language: str = "",
    target_language: str = "",
    priority: Priority | None = None,
) -> pb.TranslateRequest:
    """The message for these texts.

    Raises:
        InvalidInput: a text or option that the wire cannot carry (a lone surrogate, a negative beam).
    """
    _check_encodable(texts)
    return pb.TranslateRequest(
        texts=texts,
        source_language=source_language,
        target_language=target_language,
        model=model,
        options=_to_options_message(options),
        priority=priorities.to_wire(priority),
    )


def to_stream_settings(
    *,
    options: TranslateOptions | None = None,
    model: str | None = None,
    source_language: str = "",
    target_language: str = "",
    priority: Priority | None = None,
) -> pb.StreamSettings:
    """The message for these settings.

    Raises:
        InvalidInput: an option that the wire cannot carry.
    """
    return pb.StreamSettings(
        source_language=source_language,
        target_language=target_language,
        model=model,
        options=_to_options_message(options),
        priority=priorities.to_wire(priority),
    )


def to_stream_texts(texts: Iterable[tuple[int, str]]) -> pb.TranslateStreamRequest:
    """The message for these ids and texts."""
    return pb.TranslateStreamRequest(texts=[pb.StreamText(id=number, text=text) for number, text in texts])


def check_encodable(text: object, name: str) -> None:
    """Raise InvalidInput, with the text's name, if UTF-8 cannot carry it, and TypeError if it is no text."""
    if not isinstance(text, str):
        raise TypeError(f"{name} is of type {type(text).__name__}, every text must be a str")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        message = f"{name} is not valid Unicode: {error.reason} at character {error.start}"
        raise InvalidInput(message, field=name) from error


def _to_options_message(options: TranslateOptions | None) -> pb.TranslateOptions | None:
    given = {name: value for name, value in asdict(options or TranslateOptions()).items() if value is not None}
    try:
        return pb.TranslateOptions(**given) if given else None
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"options cannot be sent: {error}; given are {given}", field="options") from error


def _check_encodable(texts: Sequence[str]) -> None:
    for index, text in enumerate(texts):
        check_encodable(text, f"texts[{index}]")


def to_reply(response: pb.TranslateResponse, num_texts: int) -> TranslateReply:
    """The records of the response to so many texts.

    Raises:
        InternalError: it has more or fewer, so that nobody knows which translation is whose.
    """
    if len(response.translations) != num_texts:
        raise InternalError(
            f"the answer has {len(response.translations)} translations for {num_texts} texts: "
            "the server, or something on the way to it, is not Dragoman, or is broken"
        )
    timings = response.timings
    return TranslateReply(
        translations=tuple(to_translation(item) for item in response.translations),
        model=response.model,
        model_version=response.model_version,
        timings=Timings(**{name: getattr(timings, name) for name in Timings.__slots__}),
        beam_size=response.beam_size,
    )


def to_translation(item: pb.Translation) -> Translation:
    """The record of one text's outcome."""
    if item.status.code != grpc.StatusCode.OK.value[0]:
        return Translation(error=to_error(_code_of(item.status.code), item.status.message))
    hypotheses = tuple(
        TranslatedText(
            text=hypothesis.text,
            score=hypothesis.score,
            finish_reason=_REASONS.get(hypothesis.finish_reason, FinishReason.END_OF_SENTENCE),
            target_tokens=hypothesis.target_tokens,
        )
        for hypothesis in item.hypotheses
    )
    return Translation(hypotheses=hypotheses, source_tokens=item.source_tokens)


def to_models(response: pb.ListModelsResponse) -> list[ModelInfo]:
    """The records of a model list."""
    return [
        ModelInfo(
            name=model.name,
            version=model.version,
            source_language=model.source_language,
            target_language=model.target_language,
            precision=model.precision,
            device=model.device,
            default_options=to_options(model.default_options),
            max_source_tokens=model.max_source_tokens,
            max_beam_size=model.max_beam_size,
            has_shortlist=model.has_shortlist,
        )
        for model in response.models
    ]


def to_options(options: pb.TranslateOptions) -> TranslateOptions:
    """The record of these options; what the message does not have is None."""
    names = TranslateOptions.__slots__
    return TranslateOptions(**{name: getattr(options, name) for name in names if options.HasField(name)})


def to_error(code: grpc.StatusCode, message: str, trailers: Metadata = ()) -> DragomanError:
    """The error of `service.errors` that a status stands for; statuses without one are `InternalError`."""
    details = _details_of(trailers)
    match code:
        case grpc.StatusCode.INVALID_ARGUMENT:
            return InvalidInput(message, field=details.metadata.get("field", ""))
        case grpc.StatusCode.RESOURCE_EXHAUSTED:
            return Overloaded(message, reason=details.reason, retry_after_s=_retry_after_s(trailers))
    kind = _KINDS.get(code)
    return kind(message) if kind else InternalError(f"{code.name}: {message}")


def _code_of(number: int) -> grpc.StatusCode:
    return next((code for code in grpc.StatusCode if code.value[0] == number), grpc.StatusCode.UNKNOWN)


def _details_of(trailers: Metadata) -> error_details_pb2.ErrorInfo:
    """The ErrorInfo of a status, empty if there is none."""
    info = error_details_pb2.ErrorInfo()
    for detail in _status_of(trailers).details:
        if detail.Unpack(info):
            return info
    return error_details_pb2.ErrorInfo()


def _retry_after_s(trailers: Metadata) -> float:
    """Seconds the server asks to wait: its pushback, else its RetryInfo, else 0."""
    for key, value in trailers:
        if key == _PUSHBACK_KEY and (digits := str(value)).isdecimal():
            return int(digits) / 1_000
    info = error_details_pb2.RetryInfo()
    for detail in _status_of(trailers).details:
        if detail.Unpack(info):
            return float(info.retry_delay.ToNanoseconds()) / 1e9
    return 0.0


def _status_of(trailers: Metadata) -> status_pb2.Status:
    for key, value in trailers:
        if key == _DETAILS_KEY and isinstance(value, bytes):
            try:
                return status_pb2.Status.FromString(value)
            except DecodeError:
                break
    return status_pb2.Status()
