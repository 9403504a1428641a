"""Messages of Score to records and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protos import translation_pb2 as pb
from service.api.grpc.replies import decode_scores, encode_scores
from service.api.grpc.requests import decode_score_request, encode_score_request
from service.errors import InternalError, InvalidInput
from service.records import Link, PairScore, Priority, ScoredToken, ScorePair, ScoreRequest, ScoreResult, Span

TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
SPANS = st.builds(Span, st.integers(0, 9), st.integers(0, 9))
SCORES = st.builds(
    PairScore,
    tokens=st.lists(st.builds(ScoredToken, TEXT, st.floats(-99, 0, width=32))).map(tuple),
    links=st.lists(st.builds(Link, SPANS, SPANS)).map(tuple),
)


@given(
    st.builds(
        ScoreRequest,
        pairs=st.lists(st.builds(ScorePair, TEXT, TEXT)).map(tuple),
        model=st.none() | TEXT,
        source_language=TEXT,
        target_language=TEXT,
        priority=st.none() | st.sampled_from(Priority),
        return_alignments=st.booleans(),
    )
)
def test_requests_come_back_as_they_were(request_sent):
    data = encode_score_request(request_sent).SerializeToString()

    assert decode_score_request(pb.ScoreRequest.FromString(data)) == request_sent


@given(st.lists(SCORES))
def test_scores_come_back_as_they_were(scores):
    result = ScoreResult(scores=tuple(scores), model="m", model_version="1")
    message = pb.ScoreResponse.FromString(encode_scores(result).SerializeToString())

    assert decode_scores(message, len(scores)) == result
    assert [score.log_probability for score in message.scores] == pytest.approx(
        [score.log_probability for score in scores], rel=1e-5, abs=1e-5
    )


def test_a_pair_s_error_comes_back_with_its_place():
    error = InvalidInput("pairs[0].source is blank", field="pairs[0].source")
    message = encode_scores(ScoreResult(scores=[PairScore(error=error)]))

    (score,) = decode_scores(message, 1).scores

    assert (type(score.error), str(score.error)) == (InvalidInput, "pairs[0].source is blank")
    with pytest.raises(InternalError, match="1 scores"):
        decode_scores(message, 2)


def test_text_that_the_wire_cannot_carry_is_named():
    with pytest.raises(InvalidInput, match=r"pairs\[0\]\.target is not valid Unicode"):
        encode_score_request(ScoreRequest(pairs=[ScorePair("a", "\ud800")]))
