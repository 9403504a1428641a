"""Messages of dragoman.v1 as a client writes and reads them: records to requests, replies to records.

`service/api/grpc/messages.py` is the other side.
"""

from collections.abc import Iterable
from dataclasses import asdict, fields
from typing import Any

from model.languages import Language
from protos import translation_pb2 as pb
from service.api.grpc.messages import (
    ALIKE,
    FINISH_REASONS,
    FORMATS,
    PRIORITIES,
    SEGMENTATIONS,
    WARNING_KINDS,
    decode_options,
)
from service.api.grpc.status import decode_error
from service.engine.wire import FinishReason
from service.errors import DragomanError, InternalError, InvalidInput
from service.records import (
    DetectedLanguage,
    Link,
    ModelInfo,
    PairScore,
    ScoredToken,
    ScoreRequest,
    ScoreResult,
    Span,
    Term,
    TermUse,
    TextFormat,
    TextWarning,
    Timings,
    TranslatedSegment,
    TranslatedText,
    TranslateOptions,
    Translation,
    TranslationRequest,
    TranslationResult,
    WarningKind,
)

_FINISH_REASONS_OF: dict[int, FinishReason] = {number: reason for reason, number in FINISH_REASONS.items()}
_WARNING_KINDS_OF: dict[int, WarningKind] = {number: kind for kind, number in WARNING_KINDS.items()}
# Plain text is not written, so that earlier servers read the same request.
_FORMATS = {**FORMATS, TextFormat.PLAIN: pb.TEXT_FORMAT_UNSPECIFIED}
_TIMINGS = tuple(field.name for field in fields(Timings))


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
        "priority": PRIORITIES[request.priority],
        "format": _FORMATS[request.format],
        "return_alignments": request.return_alignments,
        "glossary": glossary,
    }


def _encode_options(options: TranslateOptions) -> pb.TranslateOptions | None:
    given = {name: value for name, value in asdict(options).items() if value is not None and value != ()}
    if options.segmentation is not None:
        given["segmentation"] = SEGMENTATIONS[options.segmentation]
    try:
        return pb.TranslateOptions(**given) if given else None
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"options cannot be sent: {error}; given are {given}", field="options") from error


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
        priority=PRIORITIES[request.priority],
        return_alignments=request.return_alignments,
    )


def check_encodable(text: object, name: str) -> None:
    """Raise InvalidInput, with the text's name, if UTF-8 cannot carry it, and TypeError if it is no text."""
    if not isinstance(text, str):
        raise TypeError(f"{name} is of type {type(text).__name__}, every text must be a str")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        message = f"{name} is not valid Unicode: {error.reason} at character {error.start}"
        raise InvalidInput(message, field=name) from error


def decode_result(message: pb.TranslateResponse, num_texts: int) -> TranslationResult:
    """Return the record of the response to so many texts.

    Raises:
        InternalError: it has more or fewer, so that nobody knows which translation is whose.
    """
    _check_number(len(message.translations), num_texts, "translations")
    return TranslationResult(
        translations=tuple(decode_translation(item, index) for index, item in enumerate(message.translations)),
        model=message.model,
        model_version=message.model_version,
        timings=Timings(**{name: getattr(message.timings, name) for name in _TIMINGS}),
        beam_size=message.beam_size,
    )


def _check_number(number: int, num_texts: int, what: str) -> None:
    if number != num_texts:
        raise InternalError(
            f"the answer has {number} {what} for {num_texts} texts: "
            "the server, or something on the way to it, is not Dragoman, or is broken"
        )


def decode_translation(message: pb.Translation, index: int | None = None) -> Translation:
    """Return the record of one text's outcome; `index` is the text's place in its request, None in a stream."""
    if message.status.code:
        return Translation(error=_decode_text_error(message.status, index))
    return Translation(
        hypotheses=_decode_hypotheses(message.hypotheses),
        source_tokens=message.source_tokens,
        segments=tuple(_decode_segment(segment) for segment in message.segments),
        detected_language=message.detected_language,
        detection_confidence=message.detection_confidence,
        pivot_language=message.pivot_language,
        pivot_warnings=_decode_warnings(message.warnings) if message.pivot_language else (),
        terms=tuple(
            TermUse(Term(use.source, use.target), _decode_span(use.span), use.is_honoured) for use in message.terms
        ),
    )


def _decode_text_error(status: pb.Status, index: int | None) -> DragomanError:
    """Return the error of one text; it is about the text at `index` if its message begins with that place."""
    error = decode_error(status.code, status.message)
    subject = f"texts[{index}]"
    if isinstance(error, InvalidInput) and status.message.startswith(f"{subject} "):
        return InvalidInput(status.message.removeprefix(f"{subject} "), field=subject, index=index)
    return error


def _decode_hypotheses(messages: Iterable[pb.Hypothesis]) -> tuple[TranslatedText, ...]:
    return tuple(
        TranslatedText(
            text=hypothesis.text,
            score=hypothesis.score,
            finish_reason=_FINISH_REASONS_OF.get(hypothesis.finish_reason, FinishReason.END_OF_SENTENCE),
            target_tokens=hypothesis.target_tokens,
        )
        for hypothesis in messages
    )


def _decode_segment(message: pb.Segment) -> TranslatedSegment:
    return TranslatedSegment(
        source=_decode_span(message.source),
        target=_decode_span(message.target),
        hypotheses=_decode_hypotheses(message.hypotheses),
        warnings=_decode_warnings(message.warnings),
        quality=message.quality if message.HasField("quality") else None,
        links=_decode_links(message.links),
    )


def _decode_warnings(messages: Iterable[pb.TextWarning]) -> tuple[TextWarning, ...]:
    return tuple(
        TextWarning(_WARNING_KINDS_OF[warning.kind], warning.message, _decode_span(warning.source))
        for warning in messages
        if warning.kind in _WARNING_KINDS_OF  # others are of a later version
    )


def _decode_links(messages: Iterable[pb.Link]) -> tuple[Link, ...]:
    return tuple(Link(_decode_span(link.source), _decode_span(link.target)) for link in messages)


def _decode_span(message: pb.Span) -> Span:
    return Span(message.begin, message.end)


def decode_scores(message: pb.ScoreResponse, num_pairs: int) -> ScoreResult:
    """Return the record of the response to so many pairs; raises InternalError if it has more or fewer."""
    _check_number(len(message.scores), num_pairs, "scores")
    return ScoreResult(
        scores=tuple([_decode_score(score) for score in message.scores]),
        model=message.model,
        model_version=message.model_version,
    )


def _decode_score(message: pb.PairScore) -> PairScore:
    if message.status.code:
        return PairScore(error=decode_error(message.status.code, message.status.message))
    return PairScore(
        tokens=tuple([ScoredToken(token.text, token.log_probability) for token in message.tokens]),
        links=_decode_links(message.links),
    )


def decode_detected(message: pb.DetectLanguageResponse, num_texts: int) -> list[DetectedLanguage]:
    """Return the languages of so many texts; raises InternalError if there are more or fewer."""
    _check_number(len(message.languages), num_texts, "languages")
    return [DetectedLanguage(one.language, one.confidence) for one in message.languages]


def decode_models(message: pb.ListModelsResponse) -> list[ModelInfo]:
    """Return the records of a list of models."""
    return [
        ModelInfo(
            **{name: getattr(model, name) for name in ALIKE},
            default_options=decode_options(model.default_options),
            languages=_decode_languages(model),
        )
        for model in message.models
    ]


def _decode_languages(model: pb.Model) -> tuple[Language, ...]:
    """Return the languages of a model of several; the record of another one has only its two."""
    if len(model.languages) <= 2:
        return ()
    return tuple(
        Language(code=one.bcp47, flores=one.flores, is_source=one.is_source, is_target=one.is_target)
        for one in model.languages
    )
