"""A server of several edges, all of which listen on its ports: each answers for the whole server."""

import os
import signal
from collections.abc import Iterator
from http.client import HTTPConnection
from urllib.parse import urlsplit

import grpc
import pytest

from protos import admin_pb2 as admin
from protos import translation_pb2 as pb
from tests.fakes.calls import SCORE, TRANSLATE, calling, code_of, eventually
from tests.fakes.echo_bundle import ModelRepository
from tests.fakes.echo_runner import BEST
from tests.fakes.edges import TWO_EDGES, calling_each_edge, http_to_each_edge
from tests.fakes.http_requests import ask, post, post_multipart
from tests.fakes.secured_server import Keys, keys, with_key
from tests.fakes.server_process import ServerProcess, start
from tests.fakes.streams import LONG, all_of, end_of, message, opened

__all__ = ["keys"]

ADMIN = "/dragoman.admin.v1.AdminService"
ENGLISH, FRENCH = "The cat sleeps.", "Le chat dort dans la cuisine."
TEXT = {"q": ENGLISH, "source": "en", "target": "de"}


@pytest.fixture(scope="module")
def server(keys: Keys, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """English to German and French to English, for callers with a key, at all addresses of this machine."""
    repository = ModelRepository(tmp_path_factory.mktemp("models"))
    for name in ("en-de", "fr-en"):
        repository.put(name, "1", languages=tuple(name.split("-")))
    with start(
        None,
        tmp_path_factory.mktemp("server"),
        DRAGOMAN_MODELS__DIRECTORY=str(repository.directory),
        DRAGOMAN_LIMITS__TRANSLATION_CACHE_MB="1",
        DRAGOMAN_SECURITY__API_KEYS=str(keys.file),
        DRAGOMAN_LISTEN__GRPC_HOST="localhost",
        DRAGOMAN_LISTEN__HTTP_HOST="localhost",
        **TWO_EDGES,
    ) as running:
        yield running


@pytest.fixture
def edges(server) -> Iterator[list[HTTPConnection]]:
    """A connection to each."""
    with http_to_each_edge(server) as connections:
        yield connections


def test_each_edge_translates_and_all_say_what_was_counted(server, edges, keys):
    deepl = {"Authorization": f"DeepL-Auth-Key {keys.shop}"}

    def characters_by(edge: HTTPConnection) -> int:
        return int(ask(edge, "GET", "/v2/usage", headers=deepl).json()["character_count"])

    before = characters_by(edges[0])
    answers = [post(edge, "/translate", api_key=keys.shop, **TEXT) for edge in edges]

    assert [answer.json()["translatedText"] for answer in answers] == [ENGLISH] * 2
    for edge in edges:
        page = ask(edge, "GET", "/metrics").body.decode()
        assert 'dragoman_requests_total{code="OK",method="libretranslate/translate",model="en-de"} 2.0' in page
        assert characters_by(edge) == before + 2 * len(ENGLISH)


async def test_each_edge_finds_the_models_of_each_text_detects_and_scores(server, keys):
    key, pair = with_key(keys.shop), pb.ScorePair(source="Hi.", target="Hi.")
    async with calling_each_edge(server) as all_calls:
        for (calls,) in all_calls.values():
            answer = await calls.translate(FRENCH, ENGLISH, target_language="de", metadata=key)
            score = pb.ScoreRequest(pairs=[pair], model="en-de").SerializeToString()
            scored = pb.ScoreResponse.FromString(await calls.method(SCORE)(score, metadata=key, timeout=120.0))

            assert [item.hypotheses[0].text for item in answer.translations] == [FRENCH, ENGLISH]
            assert [item.detected_language for item in answer.translations] == ["fr", "en"]
            assert [item.pivot_language for item in answer.translations] == ["en", ""]
            assert [token.log_probability for token in scored.scores[0].tokens] == [BEST] * 5


async def test_edges_share_what_was_answered(server: ServerProcess, keys: Keys):
    def asked(result: str) -> float:
        return server.metric("dragoman_translation_cache_sentences_total", result=result)

    before = asked("hit"), asked("miss")
    async with calling_each_edge(server) as all_calls:
        for (calls,) in all_calls.values():
            await calls.translate(
                "A sentence that nobody has sent before.", model="en-de", metadata=with_key(keys.shop)
            )

    assert (asked("hit") - before[0], asked("miss") - before[1]) == (1.0, 1.0)


@pytest.mark.promise("G6")
async def test_edge_that_is_killed_costs_its_own_calls_and_the_next_one_knows_what_it_knew(start_server):
    """What was in flight leaves engine, gauges and limits, and is counted."""
    slow = {"DRAGOMAN_TELEMETRY__SLOW_REQUEST_S": "0.001"}  # every call is
    ports = {"DRAGOMAN_LISTEN__METRICS_PORT": "0", "DRAGOMAN_LISTEN__ADMIN_PORT": "0"}  # of the scheduler process
    server = start_server(**TWO_EDGES, **ports, **slow, DRAGOMAN_LIMITS__MAX_STREAMS="2")

    def in_flight() -> tuple[float, float, float]:
        calls = server.metric("dragoman_requests_in_flight", method=TRANSLATE[1:])
        return calls, server.metric("dragoman_streams"), server.metric("dragoman_running_jobs")

    async with calling(server.admin_address) as operator, calling_each_edge(server) as connections:
        (victim, (lost,)), (_, (kept,)) = connections.items()
        with server.held():
            held, other = [lost.translate(LONG) for _ in range(3)], kept.translate(LONG)
            streams = [await opened(calls, message((1, LONG))) for calls in (lost, kept)]
            await eventually(lambda: in_flight() == (4, 2, 6))
            status = admin.GetStatusResponse.FromString(await operator.method(f"{ADMIN}/GetStatus")(b""))
            refused = await end_of(kept.translate_stream())

            os.kill(victim, signal.SIGKILL)

            assert [await code_of(call) for call in held] == [grpc.StatusCode.UNAVAILABLE] * 3
            await eventually(lambda: in_flight()[:2] == (1, 1))
        assert (await other).translations[0].hypotheses[0].text == LONG
        await eventually(lambda: in_flight() == (0, 1, 0))
        next_one = await opened(kept, message((2, "in the place of the lost one")))
        for stream in (streams[1], next_one):
            await stream.done_writing()
        assert [[*await all_of(stream)] for stream in (streams[1], next_one)] == [[1], [2]]
        await operator.method(f"{ADMIN}/SetLogLevel")(admin.SetLogLevelRequest(level="error").SerializeToString())
        await eventually(lambda: len({*server.edge_pids(), victim}) == 3)
        logged = server.log_text().count('"slow_request"')
    async with calling_each_edge(server) as connections:
        assert [await one.texts("a") for calls in connections.values() for one in calls] == [["a"], ["a"]]

    assert (status.num_requests, status.log_level) == (6, "info")
    assert [request.phase for request in status.requests] == ["decode"] * 6
    assert refused.details() == "2 streams are open, at most 2 may be"
    assert server.metric("dragoman_requests_total", code="UNAVAILABLE") == 4
    assert server.metric("dragoman_cancelled_total", where="decode") == 4
    assert server.metric("dragoman_token_budget_used_ratio") == 0
    assert (server.log_text().count('"slow_request"'), logged > 0) == (logged, True)


def test_each_edge_says_whether_the_server_is_ready(server, edges):
    for path, body in (("/healthz", b"alive\n"), ("/readyz", b"ready\n"), ("/health", b'{"status":"ok"}')):
        assert [ask(edge, "GET", path).body for edge in edges] == [body] * 2


def test_file_that_one_edge_has_translated_is_fetched_from_another(edges, keys):
    wish = [("source", "en"), ("target", "de"), ("api_key", keys.shop)]
    answer = post_multipart(edges[0], "/translate_file", wish, ("a.txt", b"The cat sleeps.\n"))
    path = urlsplit(answer.json()["translatedFileUrl"]).path

    assert ask(edges[1], "GET", path).body == b"The cat sleeps.\n"
