"""What a model makes of a text without tags: search, in pieces where it is too long, and links between words.

Capitals are lowered for the model and raised again.  Knows nothing of what must be kept, but that it stays as it is.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from service.engine.wire import FinishReason, Hypothesis, Job, JobResult, SearchParams
from service.errors import InternalError, TooLong
from service.models.info import TextCodec, for_request, untranslated
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
from service.text.clauses import cut
from service.text.glossary import Glossary
from service.text.quality import Issue
from service.text.readable import go_on, is_capitals, raise_case, recase
from service.translate.search import Searches

_MAX_TOKENS_PER_CHARACTER = 4  # one character that is known by its bytes alone; one that stands for a phrase has 18
# What SentencePiece decodes an unknown token to, and bytes that are no character.
_UNKNOWN = re.compile("[\u2047\ufffd]")


class Settings(NamedTuple):
    """How the texts of a request are translated."""

    codec: TextCodec
    params: SearchParams
    searches: Searches
    source_language: str  # BCP 47
    target_language: str
    max_tokens: int  # of a segment; longer ones are translated in pieces
    segmentation: Segmentation = Segmentation.SENTENCE
    text_format: TextFormat = TextFormat.PLAIN
    glossary: Glossary | None = None
    wants_links: bool = False
    can_score: bool = False  # whether the model's bundle has a graph for it


def settings_of(
    request: TranslationRequest,
    info: ModelInfo,
    codec: TextCodec,
    params: SearchParams,
    searches: Searches,
    glossary: Glossary | None = None,
) -> Settings:
    """Return how a model, with its codec, is to translate the texts of a request, with these terms."""
    info, codec = for_request(info, codec, request.source_language, request.target_language)
    return Settings(
        codec=codec,
        params=params,
        searches=searches,
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

    async def links(self, settings: Settings) -> list[list[Link]]:
        """Return the links between the words of the text and of each hypothesis; none where they cannot be had."""
        if not (settings.can_score and self.source_ids):
            return [[] for _ in self.hypotheses]
        asked = [Job(self.source_ids, settings.params, scored_ids=one.token_ids) for one in self.found]
        results = await settings.searches.search(asked)
        _, source_spans = settings.codec.tokenize_with_spans(self.seen)
        found = []
        for hypothesis, result in zip(self.found, results, strict=True):
            links = list[Link]()
            if isinstance(result, JobResult) and result.forced is not None:
                target, target_spans = settings.codec.decode_with_spans(hypothesis.token_ids)
                attention = matrix(result.forced.attention, len(self.source_ids))
                links = word_links(word_attention(attention, self.seen, source_spans, target, target_spans))
                if self.is_raised:
                    links = [link._replace(target=_raised(target, link.target, self.kept, settings)) for link in links]
            found.append(links)
        return found


async def translate_raw(
    text: str, index: int, settings: Settings, params: SearchParams, *, kept: tuple[str, ...] = (), limit: int = 0
) -> RawTranslation:
    """Return what the model makes of a text; in pieces if it has more tokens than the model is reliable for.

    Args:
        text: has language in it.
        index: of the caller's text in its request; only for errors.
        settings: of the request.
        params: how to search.
        kept: parts of the text whose case must not change.
        limit: of a piece's tokens; 0: the model's.
    """
    codec = settings.codec
    limit = limit or settings.max_tokens
    is_raised = is_capitals(_without(text, kept))
    seen = text
    if is_raised:
        seen = recase(text, _counter(codec), language=settings.source_language, spans=_places(text, kept))
    ids = tuple(codec.tokenize(seen, index))
    if not ids:
        return RawTranslation(hypotheses=(untranslated(text),))
    if len(ids) > limit:
        done = await _in_pieces(seen, len(ids), index, settings, params, kept=kept, limit=limit)
        return done._replace(hypotheses=_in_capitals(done.hypotheses, settings, kept)) if is_raised else done
    (result,) = await settings.searches.search([Job(ids, params, codec.target_prefix)])
    if isinstance(result, InternalError):
        return RawTranslation(source_tokens=len(ids), error=result)
    hypotheses, issues = _cleaned(codec.decode(result.hypotheses))
    return RawTranslation(
        hypotheses=_in_capitals(hypotheses, settings, kept) if is_raised else hypotheses,
        issues=issues,
        source_tokens=len(ids),
        row_steps=result.row_steps,
        seen=seen,
        source_ids=() if issues else ids,  # places in a text that was cleaned are others
        found=result.hypotheses,
        kept=kept,
        is_raised=is_raised,
    )


async def piecewise(
    pieces: Sequence[str], index: int, settings: Settings, params: SearchParams, kept: Sequence[str] = ()
) -> RawTranslation:
    """Return the translation of a text in pieces; `kept`, what has no language and white space at the ends stay."""
    found = await settings.searches.together([_piece(piece, index, settings, params, kept) for piece in pieces])
    error = next((one.error for one in found if one.error is not None), None)
    return RawTranslation(
        hypotheses=() if error else join_hypotheses([one.hypotheses for one in found]),
        issues=tuple(dict.fromkeys([issue for one in found for issue in one.issues])),
        source_tokens=sum([one.source_tokens for one in found]),
        row_steps=sum([one.row_steps for one in found]),
        error=error,
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
        cut = [one.finish_reason for one in hypotheses if one.finish_reason is not FinishReason.END_OF_SENTENCE]
        joined.append(
            TranslatedText(
                text="".join([part if isinstance(part, str) else part.text for part in chosen]),
                score=weighted / target_tokens if target_tokens else 0.0,
                finish_reason=cut[0] if cut else FinishReason.END_OF_SENTENCE,
                target_tokens=target_tokens,
            )
        )
    return tuple(joined)


async def _in_pieces(
    seen: str,
    num_tokens: int,
    index: int,
    settings: Settings,
    params: SearchParams,
    *,
    kept: Sequence[str],
    limit: int,
) -> RawTranslation:
    if num_tokens > _MAX_TOKENS_PER_CHARACTER * len(seen):
        most = f"at most {_MAX_TOKENS_PER_CHARACTER} for each character are accepted"
        message = f"has {num_tokens} tokens in {len(seen)} characters, {most}"
        raise TooLong(message, field=f"texts[{index}]", index=index)
    language, spans = settings.source_language, _places(seen, kept)
    pieces = cut(seen, _counter(settings.codec), limit, language=language, spans=spans)
    done = await piecewise(pieces, index, settings, params)
    warning = (WarningKind.SPLIT, f"{num_tokens} tokens were translated in {len(pieces)} pieces")
    return done._replace(issues=(*done.issues, warning))


async def _piece(
    piece: str, index: int, settings: Settings, params: SearchParams, kept: Sequence[str]
) -> RawTranslation:
    begin, end = len(piece) - len(piece.lstrip()), len(piece.rstrip())
    is_language = piece not in kept and any(map(str.isalpha, piece))
    ids = tuple(settings.codec.tokenize(piece, index)) if is_language else ()
    if not ids or len(ids) > settings.codec.max_source_tokens:
        return RawTranslation(hypotheses=(untranslated(piece),))
    (result,) = await settings.searches.search([Job(ids, params, settings.codec.target_prefix)])
    if isinstance(result, InternalError):
        return RawTranslation(source_tokens=len(ids), error=result)
    hypotheses, issues = _cleaned(settings.codec.decode(result.hypotheses))
    language, count = settings.target_language, _counter(settings.codec)
    texts = [go_on(piece[begin:end], one.text, count, language=language) for one in hypotheses]
    written = [
        replace(one, text=piece[:begin] + text + piece[end:]) for one, text in zip(hypotheses, texts, strict=True)
    ]
    return RawTranslation(hypotheses=tuple(written), issues=issues, source_tokens=len(ids), row_steps=result.row_steps)


def _cleaned(hypotheses: tuple[TranslatedText, ...]) -> tuple[tuple[TranslatedText, ...], tuple[Issue, ...]]:
    """Return the hypotheses without signs for unknown tokens, and what was wrong with them."""
    if not any(_UNKNOWN.search(hypothesis.text) for hypothesis in hypotheses):
        return hypotheses, ()
    texts = [" ".join(_UNKNOWN.sub(" ", hypothesis.text).split()) for hypothesis in hypotheses]
    issue = (WarningKind.UNKNOWN_CHARACTERS, "the model gave tokens without a text, which were left out")
    return tuple([replace(one, text=text) for one, text in zip(hypotheses, texts, strict=True)]), (issue,)


def _in_capitals(
    hypotheses: tuple[TranslatedText, ...], settings: Settings, kept: Sequence[str]
) -> tuple[TranslatedText, ...]:
    language = settings.target_language
    return tuple([replace(one, text=raise_case(one.text, language=language, kept=kept)) for one in hypotheses])


def _places(text: str, kept: Sequence[str]) -> list[Span]:
    """Return where the kept parts stand in the text."""
    return sorted([Span(at, at + len(part)) for part in kept if (at := text.find(part)) >= 0])


def _without(text: str, kept: Sequence[str]) -> str:
    for part in kept:
        text = text.replace(part, " ")
    return text


def _counter(codec: TextCodec) -> Callable[[str], int]:
    return lambda text: len(codec.tokenize(text))


def _raised(target: str, span: Span, kept: Sequence[str], settings: Settings) -> Span:
    """Return the place of a span of a translation once that is in capitals: a "ß" becomes two letters."""
    raised = [len(raise_case(target[:end], language=settings.target_language, kept=kept)) for end in span]
    return Span(*raised)
