"""Scores of given translations over gRPC, and from both clients."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from protos import translation_pb2 as pb
from service.client import Client
from service.errors import FailedPrecondition, InvalidInput, NotFound
from service.records import Link, Priority, Span
from tests.fakes.calls import SCORE, Calls, calling, failure
from tests.fakes.echo_bundle import ModelRepository
from tests.fakes.echo_runner import BEST, WORSE
from tests.fakes.server_process import ServerProcess, start


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """English to German with a scorer, German to English without one."""
    repository = ModelRepository(tmp_path_factory.mktemp("models"))
    repository.put("en-de", "1", languages=("en", "de"))
    repository.put("de-en", "1", languages=("de", "en"), has_scorer=False)
    return repository.directory


@pytest.fixture(scope="module")
def server(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with start(None, tmp_path_factory.mktemp("server"), DRAGOMAN_MODELS__DIRECTORY=str(models)) as server:
        yield server


async def scored(calls: Calls, request: pb.ScoreRequest) -> pb.ScoreResponse:
    return pb.ScoreResponse.FromString(await calls.method(SCORE)(request.SerializeToString(), timeout=120.0))


def request_of(*pairs: tuple[str, str], **fields: Any) -> pb.ScoreRequest:
    pairs_sent = [pb.ScorePair(source=source, target=target) for source, target in pairs]
    return pb.ScoreRequest(pairs=pairs_sent, **{"model": "en-de", **fields})


async def test_every_token_of_a_given_translation_gets_its_log_probability(server):
    async with calling(server.address) as calls:
        answer = await scored(calls, request_of(("Hi.", "Hi."), ("Hi.", "Ho."), ("", "x"), return_alignments=True))

    assert (answer.model, answer.model_version) == ("en-de", "1")
    same, other, bad = answer.scores
    assert [token.text for token in same.tokens] == ["", "H", "i", ".", ""]  # a word mark comes first
    assert [token.log_probability for token in same.tokens] == [BEST] * 5
    assert [token.log_probability for token in other.tokens] == [BEST, BEST, WORSE, BEST, BEST]
    assert other.log_probability == pytest.approx(4 * BEST + WORSE)
    assert [(link.source.begin, link.target.begin) for link in same.links] == [(0, 0), (2, 2)]
    assert (same.status.code, bad.status.code) == (0, grpc.StatusCode.INVALID_ARGUMENT.value[0])
    assert bad.status.message == "pairs[2].source is blank: there is nothing to score"


@pytest.mark.parametrize(
    ("request_sent", "code", "message"),
    [
        (request_of(), grpc.StatusCode.INVALID_ARGUMENT, "pairs has 0 entries, from 1 to 256 are accepted"),
        (request_of(("a", "b"), model="x"), grpc.StatusCode.NOT_FOUND, "there is no model 'x'"),
        (request_of(("a", "b"), model="de-en"), grpc.StatusCode.FAILED_PRECONDITION, "model de-en 1 cannot score or"),
    ],
)
async def test_what_cannot_be_scored_is_refused(server, request_sent, code, message):
    async with calling(server.address) as calls:
        error = await failure(scored(calls, request_sent))

    assert error.code() is code
    assert message in str(error.details())


def test_client_returns_scores_and_raises_what_the_server_says(server):
    with Client(server.address) as client:
        result = client.score([("Hi.", "Hi.")], model="en-de", priority=Priority.BATCH, return_alignments=True)
        has_scorer = {model.name: model.has_scorer for model in client.models()}
        with pytest.raises(FailedPrecondition, match="python -m export"):
            client.score([("Hi.", "Hi.")], source_language="de")
        with pytest.raises(NotFound):
            client.score([("Hi.", "Hi.")], model="x")
        with pytest.raises(InvalidInput, match=r"pairs\[0\]\.target is not valid Unicode"):
            client.score([("Hi.", "\ud800")])

    (score,) = result.scores
    assert score.log_probability == pytest.approx(5 * BEST)
    assert score.links == (Link(Span(0, 2), Span(0, 2)), Link(Span(2, 3), Span(2, 3)))
    assert has_scorer == {"en-de": True, "de-en": False}
