"""Messages of dragoman.v1 to records, and back; for the server and for the client.

`encode_` makes a message, `decode_` a record.  Errors of whole calls are the matter of `status.py`.
"""

import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any, cast

from model.languages import Language
from protos import translation_pb2 as pb
from service.api.grpc.status import code_number, decode_error
from service.call import Call
from service.engine.wire import FinishReason
from service.errors import DragomanError, InternalError, InvalidInput
from service.records import (
    NO_OPTIONS,
    DetectedLanguage,
    Link,
    ModelInfo,
    Priority,
    Segmentation,
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

_FINISH_REASONS = {
    FinishReason.END_OF_SENTENCE: pb.FINISH_REASON_END_OF_SENTENCE,
    FinishReason.LENGTH: pb.FINISH_REASON_LENGTH,
    FinishReason.REPETITION: pb.FINISH_REASON_REPETITION,
}
_FINISH_REASONS_OF: dict[int, FinishReason] = {number: reason for reason, number in _FINISH_REASONS.items()}
PRIORITIES = {
    None: pb.PRIORITY_UNSPECIFIED,
    Priority.INTERACTIVE: pb.PRIORITY_INTERACTIVE,
    Priority.BATCH: pb.PRIORITY_BATCH,
}
PRIORITIES_OF: dict[int, Priority | None] = {number: priority for priority, number in PRIORITIES.items()}
_FORMATS = {
    TextFormat.PLAIN: pb.TEXT_FORMAT_PLAIN,
    TextFormat.HTML: pb.TEXT_FORMAT_HTML,
    TextFormat.XML: pb.TEXT_FORMAT_XML,
    TextFormat.XLIFF: pb.TEXT_FORMAT_XLIFF,
}
_FORMATS_OF: dict[int, TextFormat] = {number: name for name, number in _FORMATS.items()}
_SEGMENTATIONS = {one: cast("pb.Segmentation", getattr(pb, f"SEGMENTATION_{one.name}")) for one in Segmentation}
_SEGMENTATIONS_OF: dict[int, Segmentation] = {number: name for name, number in _SEGMENTATIONS.items()}
_WARNING_KINDS = {kind: cast("pb.WarningKind", getattr(pb, f"WARNING_KIND_{kind.name}")) for kind in WarningKind}
_WARNING_KINDS_OF: dict[int, WarningKind] = {number: kind for kind, number in _WARNING_KINDS.items()}
_STREAM_SUBJECT = "the text"  # a text of a stream has an id and no place in a list


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
        priority=PRIORITIES[request.priority],
        format=_encode_format(request.format),
        return_alignments=request.return_alignments,
        glossary=_encode_glossary(request),
        target_prefixes=request.target_prefixes,
    )


def encode_settings(request: TranslationRequest) -> pb.StreamSettings:
    """Return the settings of a stream; raises as `encode_request`."""
    return pb.StreamSettings(
        source_language=request.source_language,
        target_language=request.target_language,
        model=request.model,
        options=_encode_options(request.options),
        priority=PRIORITIES[request.priority],
        format=_encode_format(request.format),
        return_alignments=request.return_alignments,
        glossary=_encode_glossary(request),
    )


def _encode_format(text_format: TextFormat) -> pb.TextFormat:
    """Return the format's number; plain text is not written, so that earlier servers read the same request."""
    return pb.TEXT_FORMAT_UNSPECIFIED if text_format is TextFormat.PLAIN else _FORMATS[text_format]


def _encode_glossary(request: TranslationRequest) -> pb.Glossary | None:
    if not (request.glossary_name or request.terms):
        return None
    terms = [pb.Term(source=term.source, target=term.target) for term in request.terms]
    return pb.Glossary(name=request.glossary_name, terms=terms)


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
        options=_decode_options(message.options) if message.HasField("options") else NO_OPTIONS,
        priority=PRIORITIES_OF.get(message.priority),  # None also for a class of a later version
        format=text_format,
        return_alignments=message.return_alignments,
        glossary_name=glossary_name,
        terms=terms,
        target_prefixes=target_prefixes,
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
    check_number(len(message.translations), num_texts, "translations")
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


def check_number(number: int, num_texts: int, what: str) -> None:
    if number != num_texts:
        raise InternalError(
            f"the answer has {number} {what} for {num_texts} texts: "
            "the server, or something on the way to it, is not Dragoman, or is broken"
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
    return Translation(
        hypotheses=_decode_hypotheses(message.hypotheses),
        source_tokens=message.source_tokens,
        segments=tuple(_decode_segment(segment) for segment in message.segments),
        detected_language=message.detected_language,
        detection_confidence=message.detection_confidence,
        pivot_language=message.pivot_language,
        pivot_warnings=_decode_warnings(message.warnings) if message.pivot_language else (),
        terms=tuple(
            TermUse(Term(use.source, use.target), decode_span(use.span), use.is_honoured) for use in message.terms
        ),
    )


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
        source=decode_span(message.source),
        target=decode_span(message.target),
        hypotheses=_decode_hypotheses(message.hypotheses),
        warnings=_decode_warnings(message.warnings),
        quality=message.quality if message.HasField("quality") else None,
        links=tuple(Link(decode_span(link.source), decode_span(link.target)) for link in message.links),
    )


def _decode_warnings(messages: Iterable[pb.TextWarning]) -> tuple[TextWarning, ...]:
    return tuple(
        TextWarning(_WARNING_KINDS_OF[warning.kind], warning.message, decode_span(warning.source))
        for warning in messages
        if warning.kind in _WARNING_KINDS_OF  # others are of a later version
    )


def decode_span(message: pb.Span) -> Span:
    return Span(message.begin, message.end)


def encode_detected(languages: Iterable[DetectedLanguage]) -> pb.DetectLanguageResponse:
    """Return the message with the languages of texts."""
    return pb.DetectLanguageResponse(
        languages=[pb.DetectedLanguage(language=one.language, confidence=one.confidence) for one in languages]
    )


def decode_detected(message: pb.DetectLanguageResponse, num_texts: int) -> list[DetectedLanguage]:
    """Return the languages of so many texts; raises InternalError if there are more or fewer."""
    check_number(len(message.languages), num_texts, "languages")
    return [DetectedLanguage(one.language, one.confidence) for one in message.languages]


def encode_model(info: ModelInfo, languages: Iterable[Language]) -> pb.Model:
    """Return the message that describes a model with these languages, as far as the contract says it."""
    fields = asdict(info) | {"languages": _encode_languages(languages)}
    return pb.Model(**{name: value for name, value in fields.items() if name in pb.Model.DESCRIPTOR.fields_by_name})


def _encode_languages(languages: Iterable[Language]) -> list[pb.ModelLanguage]:
    return [
        pb.ModelLanguage(
            bcp47=one.code,
            flores=one.flores,
            iso639_3=one.iso639_3,
            is_source=one.is_source,
            is_target=one.is_target,
        )
        for one in languages
    ]


def _decode_languages(model: pb.Model) -> tuple[Language, ...]:
    """Return the languages of a model of several; the record of another one has only its two."""
    if len(model.languages) <= 2:
        return ()
    return tuple(
        Language(code=one.bcp47, flores=one.flores, is_source=one.is_source, is_target=one.is_target)
        for one in model.languages
    )


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
            has_scorer=model.has_scorer,
            runtime=model.runtime,
            runtime_detail=model.runtime_detail,
            languages=_decode_languages(model),
        )
        for model in message.models
    ]


def _encode_options(options: TranslateOptions) -> pb.TranslateOptions | None:
    given = {name: value for name, value in asdict(options).items() if value is not None and value != ()}
    if options.segmentation is not None:
        given["segmentation"] = _SEGMENTATIONS[options.segmentation]
    try:
        return pb.TranslateOptions(**given) if given else None
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"options cannot be sent: {error}; given are {given}", field="options") from error


def _decode_options(message: pb.TranslateOptions) -> TranslateOptions:
    """Return the record of these options; what the message does not have is None."""
    given: dict[str, Any] = {name: getattr(message, name) for name in _OPTIONAL if message.HasField(name)}
    given["segmentation"] = _SEGMENTATIONS_OF.get(message.segmentation)
    return TranslateOptions(**given, suppressed_phrases=tuple(message.suppressed_phrases))


_OPTIONAL = tuple(name for name, field in pb.TranslateOptions.DESCRIPTOR.fields_by_name.items() if field.has_presence)


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
        _write_hypothesis(message.hypotheses.add(), hypothesis)
    for segment in translation.segments:
        _write_segment(message.segments.add(), segment)
    for warning in translation.warnings:
        _write_warning(message.warnings.add(), warning)
    if translation.detected_language:
        message.detected_language = translation.detected_language
        message.detection_confidence = translation.detection_confidence
    if translation.pivot_language:
        message.pivot_language = translation.pivot_language
    for use in translation.terms:
        written = message.terms.add(source=use.term.source, target=use.term.target, is_honoured=use.is_honoured)
        _write_span(written.span, use.span)


def _write_hypothesis(message: pb.Hypothesis, hypothesis: TranslatedText) -> None:
    message.text = hypothesis.text
    message.score = hypothesis.score
    message.finish_reason = _FINISH_REASONS[hypothesis.finish_reason]
    message.target_tokens = hypothesis.target_tokens


def _write_segment(message: pb.Segment, segment: TranslatedSegment) -> None:
    _write_span(message.source, segment.source)
    _write_span(message.target, segment.target)
    for hypothesis in segment.hypotheses:
        _write_hypothesis(message.hypotheses.add(), hypothesis)
    if segment.hypotheses:
        message.score = segment.hypotheses[0].score
        message.finish_reason = _FINISH_REASONS[segment.hypotheses[0].finish_reason]
    for warning in segment.warnings:
        _write_warning(message.warnings.add(), warning)
    if segment.quality is not None:
        message.quality = segment.quality
    for link in segment.links:
        written = message.links.add()
        _write_span(written.source, link.source)
        _write_span(written.target, link.target)


def _write_warning(message: pb.TextWarning, warning: TextWarning) -> None:
    message.kind = _WARNING_KINDS[warning.kind]
    message.message = warning.message
    _write_span(message.source, warning.source)


def _write_span(message: pb.Span, span: Span) -> None:
    message.begin, message.end = span


def _decode_text_error(status: pb.Status, index: int | None) -> DragomanError:
    """Return the error of one text; it is about the text at `index` if its message begins with that place."""
    error = decode_error(status.code, status.message)
    subject = f"texts[{index}]"
    if isinstance(error, InvalidInput) and status.message.startswith(f"{subject} "):
        return InvalidInput(status.message.removeprefix(f"{subject} "), field=subject, index=index)
    return error
