"""The work on one segment: to token ids, through the engine, back to text, with everything in it that is not language.

Knows neither asyncio nor the engine; see `tasks.py` for how the work gets done.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from service.engine.job import FinishReason, JobResult, SearchParams
from service.errors import InternalError, TooLong
from service.records import (
    Link,
    ModelInfo,
    Segmentation,
    Span,
    Term,
    TermUse,
    TextFormat,
    TextWarning,
    TranslatedText,
    TranslationRequest,
    WarningKind,
)
from service.registry.model_info import TextCodec, untranslated
from service.text.clauses import cut
from service.text.document import Segment
from service.text.sentences import rewrap
from service.translation.tasks import Reply, Rounds, Task, together

_MAX_TOKENS_PER_CHARACTER = 4  # one character that is known by its bytes alone; one that stands for a phrase has 18


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How the texts of a request are translated."""

    codec: TextCodec
    params: SearchParams
    source_language: str  # BCP 47
    target_language: str
    segmentation: Segmentation = Segmentation.SENTENCE
    text_format: TextFormat = TextFormat.PLAIN
    terms: tuple[Term, ...] = ()
    wants_links: bool = False
    can_score: bool = False  # whether the model's bundle has a graph for it
    max_tokens: int  # of a segment; longer ones are translated in pieces


def settings_of(request: TranslationRequest, info: ModelInfo, codec: TextCodec, params: SearchParams) -> Settings:
    """Return how a model is to translate the texts of a request."""
    return Settings(
        codec=codec,
        params=params,
        source_language=info.source_language,
        target_language=info.target_language,
        segmentation=request.options.segmentation or Segmentation.SENTENCE,
        text_format=request.format,
        terms=request.terms,
        wants_links=request.return_alignments,
        can_score=info.has_scorer,
        max_tokens=info.reliable_source_tokens or info.max_source_tokens,
    )


class SegmentOutcome(NamedTuple):
    """What became of a segment."""

    hypotheses: tuple[TranslatedText, ...] = ()  # as they stand in the text, best first
    warnings: tuple[TextWarning, ...] = ()
    quality: float | None = None
    links: tuple[Link, ...] = ()  # source: in the text of the request; target: in the best hypothesis
    terms: tuple[TermUse, ...] = ()
    source_tokens: int = 0
    row_steps: int = 0
    error: InternalError | None = None  # then there is no hypothesis

    def place(self, link: Link, begin: int) -> Link:
        """Return a link of this segment whose best hypothesis begins at `begin` of the text's."""
        return Link(link.source, Span(begin + link.target.begin, begin + link.target.end))


def translate_whole(segment: Segment, index: int, settings: Settings, prefix: str = "") -> Rounds[SegmentOutcome]:
    """Return what the model makes of a text as it is; raises InvalidInput if that has more tokens than fit."""
    codec = settings.codec
    ids = tuple(codec.encode(segment.text, index))
    if not ids:
        return SegmentOutcome(hypotheses=(untranslated(segment.text),))
    prefix_ids = tuple(codec.tokenize(prefix)[:-1]) if prefix else ()
    (reply,) = yield [Task(ids, settings.params, prefix_ids)]
    return _plain_outcome(reply, len(ids), codec)


def translate_segment(segment: Segment, index: int, settings: Settings) -> Rounds[SegmentOutcome]:
    """Return the translation of a segment.

    Args:
        segment: of the text.
        index: the text's place in its request; only for errors.
        settings: of the request.
    """
    if not any(map(str.isalpha, segment.text)):
        return SegmentOutcome(hypotheses=(untranslated(segment.source),))
    outcome = yield from _translate_plain(segment, segment.text, index, settings)
    if segment.tags:
        texts = [replace(hypothesis, text=rewrap(segment, hypothesis.text)) for hypothesis in outcome.hypotheses]
        return outcome._replace(hypotheses=tuple(texts))
    return outcome


def _translate_plain(segment: Segment, text: str, index: int, settings: Settings) -> Rounds[SegmentOutcome]:
    """Return the translation of a text without spans and tags; one that is too long is translated in pieces."""
    codec = settings.codec
    ids = tuple(codec.tokenize(text, index))
    if not ids:
        return SegmentOutcome(hypotheses=(untranslated(text),))
    if len(ids) <= settings.max_tokens:
        (reply,) = yield [Task(ids, settings.params)]
        return _plain_outcome(reply, len(ids), codec)
    if len(ids) > _MAX_TOKENS_PER_CHARACTER * len(text):
        limit = f"at most {_MAX_TOKENS_PER_CHARACTER} for each character are accepted"
        raise TooLong(f"has {len(ids)} tokens in {len(text)} characters, {limit}", field=f"texts[{index}]", index=index)
    pieces = cut(text, lambda piece: len(codec.tokenize(piece)), settings.max_tokens, language=settings.source_language)
    outcomes = yield from together([_translate_piece(piece, settings) for piece in pieces])
    warning = TextWarning(WarningKind.SPLIT, f"{len(ids)} tokens were translated in {len(pieces)} pieces", segment.span)
    return joined(outcomes)._replace(warnings=(warning,))


def _translate_piece(piece: str, settings: Settings) -> Rounds[SegmentOutcome]:
    """Return the translation of a piece of a sentence, with the white space at its ends."""
    begin, end = len(piece) - len(piece.lstrip()), len(piece.rstrip())
    ids = tuple(settings.codec.tokenize(piece))
    if not ids or len(ids) > settings.codec.max_source_tokens or not any(map(str.isalpha, piece)):
        return SegmentOutcome(hypotheses=(untranslated(piece),))
    (reply,) = yield [Task(ids, settings.params)]
    outcome = _plain_outcome(reply, len(ids), settings.codec)
    texts = [replace(one, text=piece[:begin] + one.text + piece[end:]) for one in outcome.hypotheses]
    return outcome._replace(hypotheses=tuple(texts))


def _plain_outcome(reply: Reply, source_tokens: int, codec: TextCodec) -> SegmentOutcome:
    result = reply.result
    if not isinstance(result, JobResult):
        return SegmentOutcome(source_tokens=source_tokens, error=result)
    return SegmentOutcome(
        hypotheses=codec.decode(result.hypotheses), source_tokens=source_tokens, row_steps=reply.row_steps
    )


def join_hypotheses(parts: Sequence[str | tuple[TranslatedText, ...]]) -> tuple[TranslatedText, ...]:
    """Return the hypotheses of a text: the n-th joins the n-th of each part that has some, or its last.

    The score is the mean by target tokens.
    """
    choices = [part for part in parts if not isinstance(part, str)]
    joined = []
    for rank in range(max([len(hypotheses) for hypotheses in choices], default=1)):
        chosen = [part if isinstance(part, str) else part[min(rank, len(part) - 1)] for part in parts]
        hypotheses = [part for part in chosen if not isinstance(part, str)]
        target_tokens = sum([hypothesis.target_tokens for hypothesis in hypotheses])
        weighted = sum([hypothesis.score * hypothesis.target_tokens for hypothesis in hypotheses])
        is_cut = any(hypothesis.finish_reason is FinishReason.LENGTH for hypothesis in hypotheses)
        joined.append(
            TranslatedText(
                text="".join([part if isinstance(part, str) else part.text for part in chosen]),
                score=weighted / target_tokens if target_tokens else 0.0,
                finish_reason=FinishReason.LENGTH if is_cut else FinishReason.END_OF_SENTENCE,
                target_tokens=target_tokens,
            )
        )
    return tuple(joined)


def joined(outcomes: Sequence[SegmentOutcome]) -> SegmentOutcome:
    """Return the outcome of a segment from those of its pieces."""
    error = next((outcome.error for outcome in outcomes if outcome.error is not None), None)
    return SegmentOutcome(
        hypotheses=() if error else join_hypotheses([outcome.hypotheses for outcome in outcomes]),
        source_tokens=sum([outcome.source_tokens for outcome in outcomes]),
        row_steps=sum([outcome.row_steps for outcome in outcomes]),
        error=error,
    )
