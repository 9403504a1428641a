"""What a model makes of a text without tags: a raw translation, and the words in it that belong together.

translate_raw   one search for a text, or one for each of its pieces where it is too long
links           one more, for the words that belong together
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from service.engine.wire import FinishReason, Hypothesis, Job, JobResult, SearchParams
from service.errors import InternalError, TooLong
from service.models.catalogue import for_request
from service.models.codec import TextCodec, untranslated
from service.records import (
    Link,
    ModelInfo,
    Segmentation,
    Span,
    TextFormat,
    TranslatedText,
    TranslationRequest,
    WarningKind,
)
from service.text.alignment import links as word_links
from service.text.alignment import matrix, word_attention
from service.text.normalization import go_on, is_capitals, raise_case, recase
from service.text.number_check import without
from service.text.quality import Issue
from service.text.segmentation import cut
from service.translate.glossaries import Glossary
from service.translate.search_batcher import SearchBatcher

_MAX_TOKENS_PER_CHARACTER = 4  # a character that is spelled in bytes has 4; one that stands for a phrase has 18
# What SentencePiece decodes an unknown token to, and bytes that are no character.
_UNKNOWN = re.compile("[\u2047\ufffd]")


class Settings(NamedTuple):
    """How the texts of a request are translated."""

    codec: TextCodec
    params: SearchParams
    batcher: SearchBatcher
    source_language: str  # BCP 47
    target_language: str
    max_tokens: int  # of a segment; longer ones are translated in pieces
    segmentation: Segmentation = Segmentation.SENTENCE
    text_format: TextFormat = TextFormat.PLAIN
    glossary: Glossary | None = None
    wants_links: bool = False
    can_score: bool = False  # whether the model's bundle has a graph for it

    @property
    def languages(self) -> tuple[str, str]:
        """Source and target."""
        return self.source_language, self.target_language

    def num_tokens(self, text: str) -> int:
        """Return how many tokens a text has."""
        return len(self.codec.tokenize(text))


def settings_of(
    request: TranslationRequest,
    info: ModelInfo,
    codec: TextCodec,
    params: SearchParams,
    glossary: Glossary | None,
    batcher: SearchBatcher,
) -> Settings:
    """Return how a model, with its codec, is to translate the texts of a request, with these terms."""
    info, codec = for_request(info, codec, request.source_language, request.target_language)
    return Settings(
        codec=codec,
        params=params,
        batcher=batcher,
        source_language=info.source_language,
        target_language=info.target_language,
        segmentation=request.options.segmentation or Segmentation.SENTENCE,
        text_format=request.format,
        glossary=glossary,
        wants_links=request.return_alignments,
        can_score=info.has_scorer,
        max_tokens=info.reliable_source_tokens or info.max_source_tokens,
    )


class RawTranslation(NamedTuple):
    """What a model makes of a text."""

    hypotheses: tuple[TranslatedText, ...] = ()  # best first
    issues: tuple[Issue, ...] = ()
    source_tokens: int = 0
    row_steps: int = 0
    error: InternalError | None = None  # then there is no hypothesis
    seen: str = ""  # what the model saw: the text, perhaps in other case
    source_ids: tuple[int, ...] = ()  # of that; empty where it was translated in pieces
    found: tuple[Hypothesis, ...] = ()  # as the model gave them
    kept: tuple[str, ...] = ()
    is_raised: bool = False  # whether the hypotheses are in capitals again


async def translate_raw(text: str, settings: Settings, *, kept: tuple[str, ...] = ()) -> RawTranslation:
    """Return what the model makes of a text; in pieces if it has more tokens than the model is reliable for.

    Capitals are lowered for the model, and raised again.

    Args:
        text: has language in it.
        settings: of the request, or of another try.
        kept: parts of the text whose case must not change.
    """
    seen, is_raised = text, is_capitals(without(text, kept) if kept else text)
    if is_raised:
        seen = recase(text, settings.num_tokens, language=settings.source_language, spans=_places(text, kept))
    ids = tuple(settings.codec.tokenize(seen))
    if not ids:
        return RawTranslation(hypotheses=(untranslated(text),))
    if len(ids) > settings.max_tokens:
        done = await _in_pieces(seen, len(ids), settings, kept)
    else:
        done = await _searched(ids, settings, seen, kept, is_raised=is_raised)
    if not is_raised:
        return done
    language = settings.target_language
    raised = [replace(one, text=raise_case(one.text, language=language, kept=kept)) for one in done.hypotheses]
    return done._replace(hypotheses=tuple(raised))


async def _searched(
    ids: tuple[int, ...], settings: Settings, seen: str, kept: tuple[str, ...] = (), *, is_raised: bool = False
) -> RawTranslation:
    """Return what one search finds, without the signs of unknown tokens."""
    (result,) = await settings.batcher.search([Job(ids, settings.params, settings.codec.target_prefix)])
    if isinstance(result, InternalError):
        return RawTranslation(source_tokens=len(ids), error=result)
    hypotheses, issues = settings.codec.decode(result.hypotheses), tuple[Issue, ...]()
    if any(_UNKNOWN.search(one.text) for one in hypotheses):
        hypotheses = tuple([replace(one, text=" ".join(_UNKNOWN.sub(" ", one.text).split())) for one in hypotheses])
        issues = ((WarningKind.UNKNOWN_CHARACTERS, "the model gave tokens without a text, which were left out"),)
    return RawTranslation(
        hypotheses=hypotheses,
        issues=issues,
        source_tokens=len(ids),
        row_steps=result.row_steps,
        source_ids=() if issues else ids,  # places in a text that was cleaned are others
        found=result.hypotheses,
        seen=seen,
        kept=kept,
        is_raised=is_raised,
    )


async def links(raw: RawTranslation, settings: Settings) -> list[list[Link]]:
    """Return the links between the words of the text and of each hypothesis; none where they cannot be had."""
    if not (settings.can_score and raw.source_ids):
        return [[] for _ in raw.hypotheses]
    asked = [Job(raw.source_ids, settings.params, scored_ids=one.token_ids) for one in raw.found]
    results = await settings.batcher.search(asked)
    _, source_spans = settings.codec.tokenize_with_spans(raw.seen)
    found = []
    for hypothesis, result in zip(raw.found, results, strict=True):
        own = list[Link]()
        if isinstance(result, JobResult) and result.scores is not None:
            target, target_spans = settings.codec.decode_with_spans(hypothesis.token_ids)
            attention = matrix(result.scores.attention, len(raw.source_ids))
            own = word_links(word_attention(attention, raw.seen, source_spans, target, target_spans))
            if raw.is_raised:
                own = [link._replace(target=_raised(target, link.target, raw.kept, settings)) for link in own]
        found.append(own)
    return found


def _raised(target: str, span: Span, kept: Sequence[str], settings: Settings) -> Span:
    """Return the place of a span of a translation once that is in capitals: a "ß" becomes two letters."""
    return Span(*[len(raise_case(target[:end], language=settings.target_language, kept=kept)) for end in span])


async def _in_pieces(seen: str, num_tokens: int, settings: Settings, kept: Sequence[str]) -> RawTranslation:
    if num_tokens > _MAX_TOKENS_PER_CHARACTER * len(seen):
        most = f"at most {_MAX_TOKENS_PER_CHARACTER} for each character are accepted"
        message = f"has {num_tokens} tokens in {len(seen)} characters, {most}"
        raise TooLong(message, field="texts", index=0)
    language, limit = settings.source_language, settings.max_tokens
    pieces = cut(seen, settings.num_tokens, limit, language=language, spans=_places(seen, kept))
    done = await piecewise(pieces, settings)
    warning = (WarningKind.SPLIT, f"{num_tokens} tokens were translated in {len(pieces)} pieces")
    return done._replace(issues=(*done.issues, warning))


async def piecewise(pieces: Sequence[str], settings: Settings, kept: Sequence[str] = ()) -> RawTranslation:
    """Return the translation of a text in pieces; `kept`, what has no language and white space at the ends stay."""
    found = await settings.batcher.together([_piece(piece, settings, kept) for piece in pieces])
    error = next((one.error for one in found if one.error is not None), None)
    return RawTranslation(
        hypotheses=() if error else join_hypotheses([one.hypotheses for one in found]),
        issues=tuple(dict.fromkeys([issue for one in found for issue in one.issues])),
        source_tokens=sum([one.source_tokens for one in found]),
        row_steps=sum([one.row_steps for one in found]),
        error=error,
    )


async def _piece(piece: str, settings: Settings, kept: Sequence[str]) -> RawTranslation:
    begin, end = len(piece) - len(piece.lstrip()), len(piece.rstrip())
    is_language = piece not in kept and any(map(str.isalpha, piece))
    ids = tuple(settings.codec.tokenize(piece)) if is_language else ()
    if not ids or len(ids) > settings.codec.max_source_tokens:
        return RawTranslation(hypotheses=(untranslated(piece),))
    done = await _searched(ids, settings, piece)
    texts = [
        go_on(piece[begin:end], one.text, settings.num_tokens, language=settings.target_language)
        for one in done.hypotheses
    ]
    written = [
        replace(one, text=piece[:begin] + text + piece[end:]) for one, text in zip(done.hypotheses, texts, strict=True)
    ]
    return done._replace(hypotheses=tuple(written))


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
        reasons = [one.finish_reason for one in hypotheses if one.finish_reason is not FinishReason.END_OF_SENTENCE]
        joined.append(
            TranslatedText(
                text="".join([part if isinstance(part, str) else part.text for part in chosen]),
                score=weighted / target_tokens if target_tokens else 0.0,
                finish_reason=reasons[0] if reasons else FinishReason.END_OF_SENTENCE,
                target_tokens=target_tokens,
            )
        )
    return tuple(joined)


def _places(text: str, kept: Sequence[str]) -> list[Span]:
    """Return where the kept parts stand in the text."""
    return sorted([Span(at, at + len(part)) for part in kept if (at := text.find(part)) >= 0])
