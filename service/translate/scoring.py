"""The other use case: what a model thinks of translations that the caller has.

    admission -> model -> token ids of both sides -> an engine, in one pass for each pair -> usage

Each pair succeeds or fails for itself.  Knows no protocol, and not where the scheduler process runs.
"""

import time
from collections.abc import Sequence
from typing import NamedTuple

from service.call import Call
from service.engine.wire import Job, JobResult, Settled
from service.errors import FailedPrecondition, InvalidInput, TooLong
from service.models.call_scheduler import Work
from service.models.catalogue import ServedModel, for_request
from service.models.codec import TextCodec, too_long
from service.records import (
    MAX_SHOWN_TOKENS,
    AttentionHeads,
    Link,
    ModelInfo,
    PairScore,
    ScoredToken,
    ScorePair,
    ScoreRequest,
    ScoreResult,
    Span,
)
from service.scheduler.admission import Reservation
from service.text.alignment import links, matrix, word_attention
from service.translate.translator import INLINE_CHARACTERS, Translator


class _Encoded(NamedTuple):
    """A pair in token ids, with the place of each token."""

    source_ids: tuple[int, ...]  # ends with end-of-sentence
    source_spans: list[Span]
    target_ids: tuple[int, ...]  # without end-of-sentence
    target_spans: list[Span]
    num_given: int  # tokens at the beginning of the target that are no text, and are not scored


async def score(translator: Translator, request: ScoreRequest, call: Call) -> ScoreResult:
    """Return one score per pair, in order; a pair that is too long, or has no source, carries its own error.

    Raises:
        FailedPrecondition: the model's bundle has no graph for it.
        NotFound, InvalidInput, Overloaded, DeadlineExceeded, Unavailable: as `Translator.translate`.
    """
    call.priority = call.caller.allowed(request.priority)
    with translator.admit(len(request.pairs), call, field="pairs") as reservation:
        model = translator.find_model(request, call)
        require_scorer(model.info)
        if request.return_heads and not model.info.has_head_weights:
            raise _needs_graphs(model.info, "does not show its attention", "draws graphs that do")
        with model.in_use:
            scores = await _scores(translator, model, request, call, reservation)
    call.finished_texts = len(scores)
    result = ScoreResult(scores=scores, model=model.info.name, model_version=model.info.version)
    translator.usage_meter.scored(request, result, call)
    return result


async def _scores(
    translator: Translator, model: ServedModel, request: ScoreRequest, call: Call, reservation: Reservation
) -> list[PairScore]:
    if not model.is_loaded:
        await translator.scheduler.load(model, call, reservation)
    num_characters = sum([len(source) + len(target) for source, target in request.pairs])
    reservation.take_characters(num_characters)
    if num_characters > INLINE_CHARACTERS:  # refused before it costs anything
        translator.scheduler.refuse_early(model, call, reservation)
    call.phase, started = "tokenize", time.monotonic()
    info, codec = for_request(model.info, model.codec, request.source_language, request.target_language)
    pairs = list(enumerate(request.pairs))
    encoded = await translator.in_executor(
        lambda: [_encode(pair, index, request, info, codec) for index, pair in pairs], num_characters
    )
    call.tokenize_s = time.monotonic() - started
    good = [one for one in encoded if isinstance(one, _Encoded)]
    call.source_tokens = sum([len(one.source_ids) for one in good])
    params, shows_heads = model.default_params, request.return_heads
    jobs = [Job(one.source_ids, params, scored_ids=one.target_ids, shows_heads=shows_heads) for one in good]
    work = Work(jobs, characters=num_characters)
    results = iter(await translator.scheduler.run(model, work, call, reservation) if jobs else ())
    call.phase, started = "detokenize", time.monotonic()
    settled = [(one, next(results)) if isinstance(one, _Encoded) else one for one in encoded]
    scores = await translator.in_executor(
        lambda: [_score(pair, one, request) for pair, one in zip(request.pairs, settled, strict=True)], num_characters
    )
    call.detokenize_s = time.monotonic() - started
    return scores


def require_scorer(info: ModelInfo) -> None:
    """Raise FailedPrecondition if the model cannot score and align translations."""
    if not info.has_scorer:
        raise _needs_graphs(info, "cannot score or align translations", "draws the graph for that")


def _needs_graphs(info: ModelInfo, lack: str, remedy: str) -> FailedPrecondition:
    return FailedPrecondition(f"the model {info.name} {info.version} {lack}: `python -m export BUNDLE BUNDLE` {remedy}")


def _encode(
    pair: ScorePair, index: int, request: ScoreRequest, info: ModelInfo, codec: TextCodec
) -> _Encoded | InvalidInput:
    most = info.default_options.max_target_tokens
    assert most is not None, "the default options of a model are complete"
    field = f"pairs[{index}].source"
    try:
        codec.encode(pair.source)  # checks its length
        source_ids, source_spans = codec.tokenize_with_spans(pair.source)
        if not source_ids:
            return InvalidInput(f"{field} is blank: there is nothing to score", field=field)
        field = f"pairs[{index}].target"
        codec.check(pair.target)
        target_ids, target_spans = codec.target_with_spans(pair.target)
        if len(target_ids) >= most:  # end-of-sentence counts
            raise too_long(len(target_ids) + 1, "tokens", most)
        longest = max(len(source_ids), len(target_ids) + 1)
        if request.return_heads and longest > MAX_SHOWN_TOKENS:
            message = f"has {longest} tokens, attention is shown of at most {MAX_SHOWN_TOKENS}"
            raise TooLong(message, field="", index=0)
    except InvalidInput as error:
        return type(error)(error.about(field), field=field)
    return _Encoded(tuple(source_ids), source_spans, tuple(target_ids), target_spans, len(codec.target_prefix))


def _score(pair: ScorePair, settled: tuple[_Encoded, Settled] | InvalidInput, request: ScoreRequest) -> PairScore:
    if isinstance(settled, InvalidInput):
        return PairScore(error=settled)
    encoded, outcome = settled
    if not isinstance(outcome, JobResult):
        return PairScore(error=outcome, source_tokens=len(encoded.source_ids))
    assert outcome.scores is not None, "a job that scores has scores"
    source_pieces = _pieces(pair.source, encoded.source_spans, len(encoded.source_ids))
    pieces = _pieces(pair.target, encoded.target_spans, len(encoded.target_ids) + 1)
    weights, found = outcome.scores.heads, list[Link]()
    if request.return_alignments:
        rows = matrix(outcome.scores.attention, len(encoded.source_ids))
        found = links(word_attention(rows, pair.source, encoded.source_spans, pair.target, encoded.target_spans))
    return PairScore(
        tokens=tuple(map(ScoredToken, pieces, outcome.scores.log_probs))[encoded.num_given :],
        links=tuple(found),
        heads=AttentionHeads(source_pieces, pieces, weights) if weights is not None else None,
        source_tokens=len(encoded.source_ids),
    )


def _pieces(text: str, spans: Sequence[Span], num_tokens: int) -> tuple[str, ...]:
    """Return what each token covers of the text, nothing for those at the end that cover none."""
    return (*[text[begin:end] for begin, end in spans], *[""] * (num_tokens - len(spans)))
