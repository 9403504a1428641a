"""Messages of the method Score to records, and back; as `codec.py` for the others."""

from protos import translation_pb2 as pb
from service.api.grpc.codec import PRIORITIES, PRIORITIES_OF, check_encodable, check_number, decode_span
from service.api.grpc.status import code_number, decode_error
from service.records import Link, PairScore, ScoredToken, ScorePair, ScoreRequest, ScoreResult


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


def decode_score_request(message: pb.ScoreRequest) -> ScoreRequest:
    """Return the record of a request."""
    return ScoreRequest(
        pairs=tuple([ScorePair(pair.source, pair.target) for pair in message.pairs]),
        model=message.model if message.HasField("model") else None,
        source_language=message.source_language,
        target_language=message.target_language,
        priority=PRIORITIES_OF.get(message.priority),
        return_alignments=message.return_alignments,
    )


def encode_scores(result: ScoreResult) -> pb.ScoreResponse:
    """Return the response."""
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
        written = message.links.add()
        written.source.begin, written.source.end = link.source
        written.target.begin, written.target.end = link.target


def decode_scores(message: pb.ScoreResponse, num_pairs: int) -> ScoreResult:
    """Return the record of the response to so many pairs; raises InternalError if it has more or fewer."""
    check_number(len(message.scores), num_pairs, "scores")
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
        links=tuple([Link(decode_span(link.source), decode_span(link.target)) for link in message.links]),
    )
