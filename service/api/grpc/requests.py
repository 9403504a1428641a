"""Requests of dragoman.v1: records to messages and back, for the server and for the client.

`encode_` makes a message, `decode_` a record.  `replies.py` does the same for what the server answers.
"""

from collections.abc import Iterable
from dataclasses import asdict
from enum import Enum
from typing import Any

from protos import translation_pb2 as pb
from service.errors import InvalidInput
from service.records import (
    NO_OPTIONS,
    Priority,
    ScorePair,
    ScoreRequest,
    Segmentation,
    Term,
    TextFormat,
    TranslateOptions,
    TranslationRequest,
)


def numbers_of(kinds: type[Enum], prefix: str) -> dict[Any, Any]:
    """Return the contract's number of each kind, whose name there begins with `prefix`."""
    return {kind: getattr(pb, f"{prefix}_{kind.name}") for kind in kinds}


_PRIORITIES = {None: pb.PRIORITY_UNSPECIFIED, **numbers_of(Priority, "PRIORITY")}
_PRIORITIES_OF: dict[int, Priority | None] = {number: priority for priority, number in _PRIORITIES.items()}
# Plain text is not written, so that earlier servers read the same request.
_FORMATS = {**numbers_of(TextFormat, "TEXT_FORMAT"), TextFormat.PLAIN: pb.TEXT_FORMAT_UNSPECIFIED}
_FORMATS_OF: dict[int, TextFormat] = {number: name for name, number in _FORMATS.items()}
_SEGMENTATIONS = numbers_of(Segmentation, "SEGMENTATION")
_SEGMENTATIONS_OF: dict[int, Segmentation] = {number: name for name, number in _SEGMENTATIONS.items()}
_OPTIONAL = tuple(name for name, field in pb.TranslateOptions.DESCRIPTOR.fields_by_name.items() if field.has_presence)


def encode_request(request: TranslationRequest) -> pb.TranslateRequest:
    """Return the message.

    Raises:
        InvalidInput: a text or option that the wire cannot carry (a lone surrogate, a negative beam).
    """
    for index, text in enumerate(request.texts):
        check_encodable(text, f"texts[{index}]")
    return pb.TranslateRequest(texts=request.texts, target_prefixes=request.target_prefixes, **_encode_shared(request))


def encode_settings(request: TranslationRequest) -> pb.StreamSettings:
    """Return the settings of a stream; raises as `encode_request`."""
    return pb.StreamSettings(**_encode_shared(request))


def _encode_shared(request: TranslationRequest) -> dict[str, Any]:
    """Return the fields that a request and the settings of a stream have in common."""
    glossary = None
    if request.glossary_name or request.terms:
        terms = [pb.Term(source=term.source, target=term.target) for term in request.terms]
        glossary = pb.Glossary(name=request.glossary_name, terms=terms)
    return {
        "source_language": request.source_language,
        "target_language": request.target_language,
        "model": request.model,
        "options": _encode_options(request.options),
        "priority": _PRIORITIES[request.priority],
        "format": _FORMATS[request.format],
        "return_alignments": request.return_alignments,
        "glossary": glossary,
    }


def _encode_options(options: TranslateOptions) -> pb.TranslateOptions | None:
    given = {name: value for name, value in asdict(options).items() if value is not None and value != ()}
    if options.segmentation is not None:
        given["segmentation"] = _SEGMENTATIONS[options.segmentation]
    try:
        return pb.TranslateOptions(**given) if given else None
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"options cannot be sent: {error}; given are {given}", field="options") from error


def check_encodable(text: object, name: str) -> None:
    """Raise InvalidInput, with the text's name, if UTF-8 cannot carry it, and TypeError if it is no text."""
    if not isinstance(text, str):
        raise TypeError(f"{name} is of type {type(text).__name__}, every text must be a str")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        message = f"{name} is not valid Unicode: {error.reason} at character {error.start}"
        raise InvalidInput(message, field=name) from error


def decode_request(message: pb.TranslateRequest | pb.StreamSettings) -> TranslationRequest:
    """Return the record of a request, or of a stream's settings, which have no texts."""
    texts, target_prefixes = tuple[str, ...](), tuple[str, ...]()
    if isinstance(message, pb.TranslateRequest):
        texts, target_prefixes = tuple(message.texts), tuple(message.target_prefixes)
    text_format, terms, glossary_name = TextFormat.PLAIN, tuple[Term, ...](), ""
    if message.format:
        text_format = _FORMATS_OF.get(message.format, TextFormat.PLAIN)
    if message.HasField("glossary"):
        glossary_name = message.glossary.name
        terms = tuple(Term(term.source, term.target) for term in message.glossary.terms)
    return TranslationRequest(
        texts=texts,
        model=message.model if message.HasField("model") else None,
        source_language=message.source_language,
        target_language=message.target_language,
        options=decode_options(message.options) if message.HasField("options") else NO_OPTIONS,
        priority=_PRIORITIES_OF.get(message.priority),  # None also for a class of a later version
        format=text_format,
        return_alignments=message.return_alignments,
        glossary_name=glossary_name,
        terms=terms,
        target_prefixes=target_prefixes,
    )


def decode_options(message: pb.TranslateOptions) -> TranslateOptions:
    """Return the record of these options; what the message does not have is None."""
    given: dict[str, Any] = {name: getattr(message, name) for name in _OPTIONAL if message.HasField(name)}
    given["segmentation"] = _SEGMENTATIONS_OF.get(message.segmentation)
    return TranslateOptions(**given, suppressed_phrases=tuple(message.suppressed_phrases))


def encode_stream_texts(texts: Iterable[tuple[int, str]]) -> pb.TranslateStreamRequest:
    """Return the message with these ids and texts."""
    return pb.TranslateStreamRequest(texts=[pb.StreamText(id=number, text=text) for number, text in texts])


def encode_score_request(request: ScoreRequest) -> pb.ScoreRequest:
    """Return the message; raises InvalidInput for a text that the wire cannot carry."""
    for index, pair in enumerate(request.pairs):
        for side, text in zip(pair._fields, pair, strict=True):
            check_encodable(text, f"pairs[{index}].{side}")
    return pb.ScoreRequest(
        pairs=[pb.ScorePair(source=pair.source, target=pair.target) for pair in request.pairs],
        source_language=request.source_language,
        target_language=request.target_language,
        model=request.model,
        priority=_PRIORITIES[request.priority],
        return_alignments=request.return_alignments,
    )


def decode_score_request(message: pb.ScoreRequest) -> ScoreRequest:
    """Return the record of a request."""
    return ScoreRequest(
        pairs=tuple([ScorePair(pair.source, pair.target) for pair in message.pairs]),
        model=message.model if message.HasField("model") else None,
        source_language=message.source_language,
        target_language=message.target_language,
        priority=_PRIORITIES_OF.get(message.priority),
        return_alignments=message.return_alignments,
    )
