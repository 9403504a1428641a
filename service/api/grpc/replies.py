"""Replies of dragoman.v1: records to messages and back, for the server and for the client.

`encode_` makes a message, `decode_` a record.  Errors of whole calls are the matter of `status.py`.
"""

import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, fields

from model.languages import Language
from protos import translation_pb2 as pb
from service.api.grpc.requests import decode_options, numbers_of
from service.api.grpc.status import code_number, decode_error
from service.call import Call
from service.engine.wire import FinishReason
from service.errors import DragomanError, InternalError, InvalidInput
from service.records import (
    DetectedLanguage,
    Link,
    ModelInfo,
    PairScore,
    ScoredToken,
    ScoreResult,
    Span,
    Term,
    TermUse,
    TextWarning,
    Timings,
    TranslatedSegment,
    TranslatedText,
    Translation,
    TranslationResult,
    WarningKind,
)

_FINISH_REASONS = numbers_of(FinishReason, "FINISH_REASON")
_FINISH_REASONS_OF: dict[int, FinishReason] = {number: reason for reason, number in _FINISH_REASONS.items()}
_WARNING_KINDS = numbers_of(WarningKind, "WARNING_KIND")
_WARNING_KINDS_OF: dict[int, WarningKind] = {number: kind for kind, number in _WARNING_KINDS.items()}
_STREAM_SUBJECT = "the text"  # a text of a stream has an id and no place in a list
_TIMINGS = tuple(field.name for field in fields(Timings))
_ALIKE = {  # of a model, in message and record
    field.name for field in fields(ModelInfo) if field.name in pb.Model.DESCRIPTOR.fields_by_name
} - {"default_options", "languages"}


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


def encode_answers(answers: Sequence[tuple[int, TranslationResult]]) -> pb.TranslateStreamResponse:
    """Return the message with these ids and their results, all of one model and with one translation each."""
    message = pb.TranslateStreamResponse(model=answers[0][1].model)
    for number, result in answers:
        answer = message.translations.add(id=number, model_version=result.model_version, beam_size=result.beam_size)
        _write_translation(answer.translation, result.translations[0], None)
    return message


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
        _write_link(message.links.add(), link)


def _write_warning(message: pb.TextWarning, warning: TextWarning) -> None:
    message.kind = _WARNING_KINDS[warning.kind]
    message.message = warning.message
    _write_span(message.source, warning.source)


def _write_link(message: pb.Link, link: Link) -> None:
    _write_span(message.source, link.source)
    _write_span(message.target, link.target)


def _write_span(message: pb.Span, span: Span) -> None:
    message.begin, message.end = span


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


def encode_scores(result: ScoreResult) -> pb.ScoreResponse:
    """Return the response to a request for scores."""
    message = pb.ScoreResponse(model=result.model, model_version=result.model_version)
    for score in result.scores:
        _write_score(message.scores.add(), score)
    return message


def _write_score(message: pb.PairScore, score: PairScore) -> None:
    if score.error is not None:
        message.status.code = code_number(score.error)
        message.status.message = str(score.error)
        return
    message.status.SetInParent()
    message.log_probability = score.log_probability
    for token in score.tokens:
        message.tokens.add(text=token.text, log_probability=token.log_probability)
    for link in score.links:
        _write_link(message.links.add(), link)


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


def encode_detected(languages: Iterable[DetectedLanguage]) -> pb.DetectLanguageResponse:
    """Return the message with the languages of texts."""
    return pb.DetectLanguageResponse(
        languages=[pb.DetectedLanguage(language=one.language, confidence=one.confidence) for one in languages]
    )


def decode_detected(message: pb.DetectLanguageResponse, num_texts: int) -> list[DetectedLanguage]:
    """Return the languages of so many texts; raises InternalError if there are more or fewer."""
    _check_number(len(message.languages), num_texts, "languages")
    return [DetectedLanguage(one.language, one.confidence) for one in message.languages]


def encode_model(info: ModelInfo, languages: Iterable[Language]) -> pb.Model:
    """Return the message that describes a model with these languages, as far as the contract says it."""
    return pb.Model(
        **{name: getattr(info, name) for name in _ALIKE},
        default_options=asdict(info.default_options),
        languages=[
            pb.ModelLanguage(
                bcp47=one.code,
                flores=one.flores,
                iso639_3=one.iso639_3,
                is_source=one.is_source,
                is_target=one.is_target,
            )
            for one in languages
        ],
    )


def decode_models(message: pb.ListModelsResponse) -> list[ModelInfo]:
    """Return the records of a list of models."""
    return [
        ModelInfo(
            **{name: getattr(model, name) for name in _ALIKE},
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
