"""Bytes to messages of dragoman.v1, messages to records, and back; for the server and for the client.

`encode_` makes a message, `decode_` a record.  gRPC answers UNKNOWN when a deserialiser raises, so those of the server
return a `Malformed` instead, which becomes INVALID_ARGUMENT without the parser's own words.  Errors of whole calls are
the matter of `status.py`.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias, TypeVar, cast

import grpc
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message

from protos import translation_pb2 as pb
from service.engine.job import FinishReason
from service.errors import DragomanError, InternalError, InvalidInput
from service.grpc.status import code_number, decode_error
from service.records import (
    NO_OPTIONS,
    Call,
    ModelInfo,
    Priority,
    Timings,
    TranslatedText,
    TranslateOptions,
    Translation,
    TranslationRequest,
    TranslationResult,
)

AnyMessage = TypeVar("AnyMessage", bound=Message)
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"  # only the type stubs can subscript it

_VARINT, _FIXED64, _LENGTH_DELIMITED, _FIXED32 = 0, 1, 2, 5  # protobuf.dev/programming-guides/encoding
_MAX_FIELDS_SCANNED = 10_000  # finding the culprit is a courtesy that must stay cheap

_FINISH_REASONS = {
    FinishReason.END_OF_SENTENCE: pb.FINISH_REASON_END_OF_SENTENCE,
    FinishReason.LENGTH: pb.FINISH_REASON_LENGTH,
}
_FINISH_REASONS_OF: dict[int, FinishReason] = {number: reason for reason, number in _FINISH_REASONS.items()}
_PRIORITIES = {
    None: pb.PRIORITY_UNSPECIFIED,
    Priority.INTERACTIVE: pb.PRIORITY_INTERACTIVE,
    Priority.BATCH: pb.PRIORITY_BATCH,
}
_PRIORITIES_OF: dict[int, Priority | None] = {number: priority for priority, number in _PRIORITIES.items()}
_STREAM_SUBJECT = "the text"  # a text of a stream has an id and no place in a list


@dataclass(frozen=True, slots=True)
class Malformed:
    """A request that is no message of its type."""

    message: str
    field: str = ""


def deserializer(message_type: type[AnyMessage]) -> Callable[[bytes], AnyMessage | Malformed]:
    """A function from bytes to a message, or to what is wrong with them."""

    def deserialize(data: bytes) -> AnyMessage | Malformed:
        try:
            return message_type.FromString(data)
        except DecodeError:
            return _explain(data, cast("Descriptor", message_type.DESCRIPTOR))

    return deserialize


def unary(behaviour: Any, request: type[Message]) -> Handler:
    """Return the handler of a method with one request and one response."""
    return grpc.unary_unary_rpc_method_handler(
        behaviour, request_deserializer=deserializer(request), response_serializer=_serialize
    )


def stream(behaviour: Any, request: type[Message]) -> Handler:
    """Return the handler of a method with a stream of requests and one of responses."""
    return grpc.stream_stream_rpc_method_handler(
        behaviour, request_deserializer=deserializer(request), response_serializer=_serialize
    )


def encode_request(request: TranslationRequest) -> pb.TranslateRequest:
    """Return the message.

    Raises:
        InvalidInput: a text or option that the wire cannot carry (a lone surrogate, a negative beam).
    """
    for index, text in enumerate(request.texts):
        check_encodable(text, f"texts[{index}]")
    return pb.TranslateRequest(
        texts=request.texts,
        source_language=request.source_language,
        target_language=request.target_language,
        model=request.model,
        options=_encode_options(request.options),
        priority=_PRIORITIES[request.priority],
    )


def encode_settings(request: TranslationRequest) -> pb.StreamSettings:
    """Return the settings of a stream; raises as `encode_request`."""
    return pb.StreamSettings(
        source_language=request.source_language,
        target_language=request.target_language,
        model=request.model,
        options=_encode_options(request.options),
        priority=_PRIORITIES[request.priority],
    )


def decode_request(message: pb.TranslateRequest | pb.StreamSettings) -> TranslationRequest:
    """Return the record of a request, or of a stream's settings, which have no texts."""
    return TranslationRequest(
        texts=tuple(message.texts) if isinstance(message, pb.TranslateRequest) else (),
        model=message.model if message.HasField("model") else None,
        source_language=message.source_language,
        target_language=message.target_language,
        options=_decode_options(message.options) if message.HasField("options") else NO_OPTIONS,
        priority=_PRIORITIES_OF.get(message.priority),  # None also for a class of a later version
    )


def encode_stream_texts(texts: Iterable[tuple[int, str]]) -> pb.TranslateStreamRequest:
    """Return the message with these ids and texts."""
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


def encode_result(result: TranslationResult, call: Call) -> pb.TranslateResponse:
    """Return the response, with the time that the call has taken so far."""
    message = pb.TranslateResponse(model=result.model, model_version=result.model_version, beam_size=result.beam_size)
    for index, translation in enumerate(result.translations):
        _write_translation(message.translations.add(), translation, index)
    timings = message.timings
    timings.tokenize_ms = call.tokenize_s * 1e3
    timings.queue_ms = call.queue_s * 1e3
    timings.encode_ms = call.encode_s * 1e3
    timings.decode_ms = call.decode_s * 1e3
    timings.detokenize_ms = call.detokenize_s * 1e3
    timings.total_ms = (time.monotonic() - call.started) * 1e3
    return message


def decode_result(message: pb.TranslateResponse, num_texts: int) -> TranslationResult:
    """Return the record of the response to so many texts.

    Raises:
        InternalError: it has more or fewer, so that nobody knows which translation is whose.
    """
    if len(message.translations) != num_texts:
        raise InternalError(
            f"the answer has {len(message.translations)} translations for {num_texts} texts: "
            "the server, or something on the way to it, is not Dragoman, or is broken"
        )
    timings = message.timings
    return TranslationResult(
        translations=tuple(decode_translation(item, index) for index, item in enumerate(message.translations)),
        model=message.model,
        model_version=message.model_version,
        timings=Timings(
            tokenize_ms=timings.tokenize_ms,
            queue_ms=timings.queue_ms,
            encode_ms=timings.encode_ms,
            decode_ms=timings.decode_ms,
            detokenize_ms=timings.detokenize_ms,
            total_ms=timings.total_ms,
        ),
        beam_size=message.beam_size,
    )


def encode_answers(answers: Sequence[tuple[int, TranslationResult]]) -> pb.TranslateStreamResponse:
    """Return the message with these ids and their results, all of one model and with one translation each."""
    message = pb.TranslateStreamResponse(model=answers[0][1].model)
    for number, result in answers:
        answer = message.translations.add(id=number, model_version=result.model_version, beam_size=result.beam_size)
        _write_translation(answer.translation, result.translations[0], None)
    return message


def decode_translation(message: pb.Translation, index: int | None = None) -> Translation:
    """Return the record of one text's outcome; `index` is the text's place in its request, None in a stream."""
    if message.status.code:
        return Translation(error=_decode_text_error(message.status, index))
    hypotheses = tuple(
        TranslatedText(
            text=hypothesis.text,
            score=hypothesis.score,
            finish_reason=_FINISH_REASONS_OF.get(hypothesis.finish_reason, FinishReason.END_OF_SENTENCE),
            target_tokens=hypothesis.target_tokens,
        )
        for hypothesis in message.hypotheses
    )
    return Translation(hypotheses=hypotheses, source_tokens=message.source_tokens)


def encode_model(info: ModelInfo) -> pb.Model:
    """Return the message that describes a model."""
    return pb.Model(**asdict(info))


def decode_models(message: pb.ListModelsResponse) -> list[ModelInfo]:
    """Return the records of a list of models."""
    return [
        ModelInfo(
            name=model.name,
            version=model.version,
            source_language=model.source_language,
            target_language=model.target_language,
            precision=model.precision,
            device=model.device,
            default_options=_decode_options(model.default_options),
            max_source_tokens=model.max_source_tokens,
            max_beam_size=model.max_beam_size,
            has_shortlist=model.has_shortlist,
        )
        for model in message.models
    ]


def _encode_options(options: TranslateOptions) -> pb.TranslateOptions | None:
    given = {name: value for name, value in asdict(options).items() if value is not None}
    try:
        return pb.TranslateOptions(**given) if given else None
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"options cannot be sent: {error}; given are {given}", field="options") from error


def _decode_options(message: pb.TranslateOptions) -> TranslateOptions:
    """Return the record of these options; what the message does not have is None."""
    has = message.HasField
    return TranslateOptions(
        beam_size=message.beam_size if has("beam_size") else None,
        num_hypotheses=message.num_hypotheses if has("num_hypotheses") else None,
        length_penalty=message.length_penalty if has("length_penalty") else None,
        patience=message.patience if has("patience") else None,
        max_target_tokens=message.max_target_tokens if has("max_target_tokens") else None,
        use_shortlist=message.use_shortlist if has("use_shortlist") else None,
        allow_smaller_beam=message.allow_smaller_beam if has("allow_smaller_beam") else None,
    )


# With upb, setting the fields of a message that is part of another costs half of making it and copying it there.


def _write_translation(message: pb.Translation, translation: Translation, index: int | None) -> None:
    """Write one text's outcome; `index` is the text's place in its request, None in a stream."""
    message.source_tokens = translation.source_tokens
    error = translation.error
    if error is not None:
        message.status.code = code_number(error)
        subject = _STREAM_SUBJECT if index is None else f"texts[{index}]"
        message.status.message = error.about(subject) if isinstance(error, InvalidInput) else str(error)
        return
    message.status.SetInParent()
    for hypothesis in translation.hypotheses:
        written = message.hypotheses.add()
        written.text = hypothesis.text
        written.score = hypothesis.score
        written.finish_reason = _FINISH_REASONS[hypothesis.finish_reason]
        written.target_tokens = hypothesis.target_tokens


def _decode_text_error(status: pb.Status, index: int | None) -> DragomanError:
    """Return the error of one text; it is about the text at `index` if its message begins with that place."""
    error = decode_error(status.code, status.message)
    subject = f"texts[{index}]"
    if isinstance(error, InvalidInput) and status.message.startswith(f"{subject} "):
        return InvalidInput(status.message.removeprefix(f"{subject} "), field=subject, index=index)
    return error


def _serialize(response: Message) -> bytes:
    return response.SerializeToString()


def _explain(data: bytes, descriptor: Descriptor) -> Malformed:
    try:
        for name, value in _string_fields(data, descriptor):
            try:
                value.decode("utf-8")
            except UnicodeDecodeError:
                return Malformed(f"{name} is not valid UTF-8", field=name)
    except (IndexError, ValueError):
        pass  # the bytes are no protobuf at all
    return Malformed(f"the request is not a valid {descriptor.full_name} message")


def _string_fields(data: bytes, descriptor: Descriptor) -> Iterator[tuple[str, bytes]]:
    """Name ("texts[1]", "model") and bytes of the message's own string fields."""
    counts: dict[int, int] = {}
    for number, value in _length_delimited_fields(data):
        known = descriptor.fields_by_number.get(number)
        if known is None or known.type != FieldDescriptor.TYPE_STRING:
            continue
        index = counts.get(number, 0)
        counts[number] = index + 1
        yield f"{known.name}[{index}]" if known.is_repeated else known.name, value


def _length_delimited_fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Number and bytes of each length-delimited field.

    Raises:
        IndexError, ValueError: the bytes do not follow the wire format.
    """
    position = 0
    for _ in range(_MAX_FIELDS_SCANNED):
        if position == len(data):
            return
        tag, position = _read_varint(data, position)
        kind = tag & 7
        if kind == _VARINT:
            _, position = _read_varint(data, position)
        elif kind == _LENGTH_DELIMITED:
            length, position = _read_varint(data, position)
            yield tag >> 3, data[position : position + length]
            position += length
        elif kind in (_FIXED64, _FIXED32):
            position += 8 if kind == _FIXED64 else 4
        else:
            raise ValueError(f"wire type {kind}")
        if position > len(data):
            raise IndexError("field runs past the end")


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 64, 7):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise ValueError("varint is too long")
