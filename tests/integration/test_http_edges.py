"""HTTP at a server of several edges, all of which listen on its port: each answers for the whole server."""

from collections.abc import Iterator
from http.client import HTTPConnection
from urllib.parse import urlsplit

import pytest

from service.api.api_keys import generate_key
from service.cli.keys import NewKey, append_entry, entry_of
from tests.fakes.edges import TWO_EDGES, http_to_each_edge
from tests.fakes.http_requests import ask, post, post_multipart
from tests.fakes.server_process import ServerProcess, start

TEXT = {"q": "The cat sleeps.", "source": "en", "target": "de"}


@pytest.fixture(scope="module")
def key() -> str:
    return generate_key()


@pytest.fixture(scope="module")
def server(echo_bundle, key, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    keys = tmp_path_factory.mktemp("keys") / "keys.toml"
    append_entry(keys, entry_of(NewKey(name="shop"), key))
    running = start(echo_bundle, tmp_path_factory.mktemp("server"), DRAGOMAN_SECURITY__API_KEYS=str(keys), **TWO_EDGES)
    yield running
    running.process.kill()
    running.process.wait()


@pytest.fixture
def edges(server) -> Iterator[list[HTTPConnection]]:
    """A connection to each."""
    with http_to_each_edge(server) as connections:
        yield connections


def test_each_edge_translates_and_all_say_what_was_counted(server, edges, key):
    deepl = {"Authorization": f"DeepL-Auth-Key {key}"}

    def characters_by(edge: HTTPConnection) -> int:
        return int(ask(edge, "GET", "/v2/usage", headers=deepl).json()["character_count"])

    before = characters_by(edges[0])
    answers = [post(edge, "/translate", api_key=key, **TEXT) for edge in edges]

    assert [answer.json()["translatedText"] for answer in answers] == [TEXT["q"]] * 2
    for edge in edges:
        page = ask(edge, "GET", "/metrics").body.decode()
        assert 'dragoman_requests_total{code="OK",method="libretranslate/translate",model="echo"} 2.0' in page
        assert characters_by(edge) == before + 2 * len(TEXT["q"])


def test_each_edge_says_whether_the_server_is_ready(server, edges):
    for path, body in (("/healthz", b"alive\n"), ("/readyz", b"ready\n"), ("/health", b'{"status":"ok"}')):
        assert [ask(edge, "GET", path).body for edge in edges] == [body] * 2


def test_file_that_one_edge_has_translated_is_fetched_from_another(server, edges, key):
    wish = [("source", "en"), ("target", "de"), ("api_key", key)]
    answer = post_multipart(edges[0], "/translate_file", wish, ("a.txt", b"The cat sleeps.\n"))
    path = urlsplit(answer.json()["translatedFileUrl"]).path

    assert ask(edges[1], "GET", path).body == b"The cat sleeps.\n"


def test_console_of_each_edge_shows_the_whole_server(server, edges, key):
    bearer = {"Authorization": f"Bearer {key}"}
    shown = [ask(edge, "GET", "/console/live").json() for edge in edges]

    assert shown[0] == shown[1]
    assert shown[0].keys() == {"queued", "rows", "tokens"}
    assert [ask(edge, "GET", "/console/card?model=echo", headers=bearer).status for edge in edges] == [404] * 2
