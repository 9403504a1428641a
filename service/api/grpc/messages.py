"""Messages of dragoman.v1 as the server reads and writes them: requests to records, records to replies.

`service/client/messages.py` is the other side.  `status.py` converts the errors of whole calls.
"""

import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, fields
from enum import Enum
from typing import Any

from model.languages import Language
from protos import translation_pb2 as pb
from service.api.grpc.status import code_number
from service.call import Call
from service.engine.wire import FinishReason
from service.errors import InvalidInput
from service.records import (
    NO_OPTIONS,
    DetectedLanguage,
    Link,
    ModelInfo,
    PairScore,
    Priority,
    ScorePair,
    ScoreRequest,
    ScoreResult,
    Segmentation,
    Span,
    Term,
    TextFormat,
    TextWarning,
    TranslatedSegment,
    TranslatedText,
    TranslateOptions,
    Translation,
    TranslationRequest,
    TranslationResult,
    WarningKind,
)


def _numbers_of(kinds: type[Enum], prefix: str) -> dict[Any, Any]:
    """Return the contract's number of each kind, whose name there begins with `prefix`."""
    return {kind: getattr(pb, f"{prefix}_{kind.name}") for kind in kinds}


PRIORITIES = {None: pb.PRIORITY_UNSPECIFIED, **_numbers_of(Priority, "PRIORITY")}
FORMATS = _numbers_of(TextFormat, "TEXT_FORMAT")
SEGMENTATIONS = _numbers_of(Segmentation, "SEGMENTATION")
FINISH_REASONS = _numbers_of(FinishReason, "FINISH_REASON")
WARNING_KINDS = _numbers_of(WarningKind, "WARNING_KIND")
# Fields of a model that message and record share.
ALIKE = {field.name for field in fields(ModelInfo) if field.name in pb.Model.DESCRIPTOR.fields_by_name}
ALIKE -= {"default_options", "languages"}
_PRIORITIES_OF: dict[int, Priority | None] = {number: priority for priority, number in PRIORITIES.items()}
_FORMATS_OF: dict[int, TextFormat] = {number: name for name, number in FORMATS.items()}
_SEGMENTATIONS_OF: dict[int, Segmentation] = {number: name for name, number in SEGMENTATIONS.items()}
_OPTIONAL = tuple(name for name, field in pb.TranslateOptions.DESCRIPTOR.fields_by_name.items() if field.has_presence)
_STREAM_SUBJECT = "the text"  # a text of a stream has an id and no place in a list


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
    message.finish_reason = FINISH_REASONS[hypothesis.finish_reason]
    message.target_tokens = hypothesis.target_tokens


def _write_segment(message: pb.Segment, segment: TranslatedSegment) -> None:
    _write_span(message.source, segment.source)
    _write_span(message.target, segment.target)
    for hypothesis in segment.hypotheses:
        _write_hypothesis(message.hypotheses.add(), hypothesis)
    if segment.hypotheses:
        message.score = segment.hypotheses[0].score
        message.finish_reason = FINISH_REASONS[segment.hypotheses[0].finish_reason]
    for warning in segment.warnings:
        _write_warning(message.warnings.add(), warning)
    if segment.quality is not None:
        message.quality = segment.quality
    for link in segment.links:
        _write_link(message.links.add(), link)


def _write_warning(message: pb.TextWarning, warning: TextWarning) -> None:
    message.kind = WARNING_KINDS[warning.kind]
    message.message = warning.message
    _write_span(message.source, warning.source)


def _write_link(message: pb.Link, link: Link) -> None:
    _write_span(message.source, link.source)
    _write_span(message.target, link.target)


def _write_span(message: pb.Span, span: Span) -> None:
    message.begin, message.end = span


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


def encode_detected(languages: Iterable[DetectedLanguage]) -> pb.DetectLanguageResponse:
    """Return the message with the languages of texts."""
    return pb.DetectLanguageResponse(
        languages=[pb.DetectedLanguage(language=one.language, confidence=one.confidence) for one in languages]
    )


def encode_model(info: ModelInfo, languages: Iterable[Language]) -> pb.Model:
    """Return the message that describes a model with these languages, as far as the contract says it."""
    return pb.Model(
        **{name: getattr(info, name) for name in ALIKE},
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
