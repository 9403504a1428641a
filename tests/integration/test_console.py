"""The console at the real server, whose model says everything again as it is: its files, its answers, its cancels."""

import base64
import http.client
import json
import re
from typing import Any

import pytest

from service.config import ListenConfig
from service.server.frontend import has_console
from tests.fakes.calls import eventually
from tests.fakes.http_requests import Answer, ask, post, post_multipart
from tests.fakes.packages import parts_of, word


def lines_of(answer: Answer) -> list[dict[str, Any]]:
    assert (answer.status, answer.headers["content-type"]) == (200, "application/x-ndjson")
    return [json.loads(line) for line in answer.body.splitlines()]


def test_page_and_all_that_belongs_to_it_come_from_here_and_run_nothing_else(server):
    page = ask(server.http_port, "GET", "/")
    named = re.findall(r'(?:src|href)="([^"#]+)"', page.body.decode())
    main = ask(server.http_port, "GET", "/console/main.js").body.decode()
    modules = [f"/console/{name}" for name in re.findall(r'from "\./([a-z]+\.js)"', main)]

    assert len(modules) > 8
    assert not re.search(rb"<style|<script(?! type=\"module\" src=)| on[a-z]+=| style=", page.body)
    for path in ["/", *named, *modules]:
        answer = ask(server.http_port, "GET", path)
        assert answer.status == 200, path
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"


def test_scripts_write_text_and_never_markup(server):
    page = ask(server.http_port, "GET", "/console/main.js").body.decode()
    for name in ["main.js", *re.findall(r'from "\./([a-z]+\.js)"', page)]:
        script = ask(server.http_port, "GET", f"/console/{name}").body.decode()
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|localStorage", script), (
            name
        )


def test_document_says_how_far_it_is_and_what_seems_wrong_and_can_be_fetched(server):
    file = ("a.docx", word("<w:p><w:r><w:t>The cat sleeps.</w:t></w:r></w:p>"))
    wish = [("source", "en"), ("target", "de")]

    begun, done = lines_of(post_multipart(server.http_port, "/console/document", wish, file))

    assert begun == {"done": 0, "total": 1}
    assert done["report"] == [
        {
            "kind": "copied",
            "message": "the translation is the source",
            "part": "word/document.xml",
            "line": 1,
            "source": "The cat sleeps.",
            "translation": "The cat sleeps.",
        }
    ]
    assert (
        "The cat" in parts_of(ask(server.http_port, "GET", f"/download_file/{done['file']}").body)["word/document.xml"]
    )


def test_sentences_come_one_by_one_and_what_the_page_has_is_left_out(server):
    fields = {"text": "Long long one here. Ok.\n\nHi there.", "source": "en", "target": "de"}

    first, *translations, end = lines_of(post(server.http_port, "/console/translate", **fields))
    known = {"known": ["Ok.", "Hi there."], "known_language": "en"}
    again = lines_of(post(server.http_port, "/console/translate", **fields, **known))
    other = lines_of(post(server.http_port, "/console/translate", **fields, **{**known, "known_language": "fr"}))

    assert first == {"language": "en", "detected": None, "sentences": [[0, 19], [20, 23], [25, 34]]}
    assert {one["sentence"]: one["text"] for one in translations} == {
        text: text for text in ("Long long one here.", "Ok.", "Hi there.")
    }
    assert translations[0]["sentence"] == "Ok."  # the shortest is done first
    assert translations[0]["segments"][0]["links"][0] == [0, 2, 0, 2]
    assert (end["model"], end["version"]) == ("echo", "1.2.3")
    assert end["timings"]["total"] >= end["timings"]["decode"] > 0
    assert [one.get("sentence") for one in again] == [None, "Long long one here.", None]
    assert len(other) == 5


async def test_page_that_asks_for_something_else_frees_the_rows(server):
    connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=120.0)
    text = " ".join(["A sentence of many letters that takes its time."] * 3)
    body = json.dumps({"text": text + " And another one.", "source": "en", "target": "de"})
    before = server.metric("dragoman_requests_total", method="console/translate", code="CANCELLED")
    with server.held():
        connection.request("POST", "/console/translate", body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        assert b"sentences" in response.readline()

        connection.close()
        response.close()

        await eventually(
            lambda: server.metric("dragoman_requests_total", method="console/translate", code="CANCELLED") > before
        )
    await eventually(lambda: server.metric("dragoman_running_jobs") == 0)


def test_score_has_links_and_what_each_head_looks_at(server):
    pair = {"text": "Hi.", "translation": "Ho.", "source": "en", "target": "de"}

    with_heads = post(server.http_port, "/console/score", **pair, heads=True).json()
    without = post(server.http_port, "/console/score", **pair).json()

    heads = with_heads["heads"]
    assert (heads["source"], heads["target"]) == (["", *"Hi.", ""], ["", *"Ho.", ""])
    num_source, num_target = len(heads["source"]), len(heads["target"])
    assert len(base64.b64decode(heads["encoder"])) == num_source**2
    assert len(base64.b64decode(heads["cross"])) == num_source * num_target
    assert (without["heads"], without["links"]) == (None, with_heads["links"])


@pytest.mark.parametrize(
    ("path", "fields", "status", "message"),
    [
        ("translate", {}, 400, "text: Field required"),
        ("translate", {"text": "Hi.", "source": "en", "target": "xx"}, 200, ""),  # each sentence has its own error
        ("translate", {"text": "x" * 10_001, "target": "de"}, 400, "has 10001 characters, at most 10000"),
        ("translate", {"text": "Hi. " * 2_501, "source": "en", "target": "de"}, 400, "has 10004 characters"),
        ("score", {"text": "", "translation": "", "source": "en", "target": "de"}, 400, "is blank"),
        ("alternatives", {"text": "Hi.", "source": "en", "target": "xx"}, 404, "no model"),
    ],
)
def test_bad_requests_are_told_what_is_wrong(server, path, fields, status, message):
    answer = post(server.http_port, f"/console/{path}", **fields)

    assert answer.status == status
    assert message in answer.body.decode()


def test_models_languages_and_load_are_told(server):
    models = ask(server.http_port, "GET", "/console/models").json()
    card = ask(server.http_port, "GET", "/console/card?model=../../etc")
    before = ask(server.http_port, "GET", "/console/live").json()
    post(server.http_port, "/console/translate", text="Once more.", source="en", target="de")
    after = ask(server.http_port, "GET", "/console/live").json()

    assert [(model["name"], model["source"], model["target"]) for model in models["models"]] == [("echo", "en", "de")]
    assert models["targets"] == {"en": ["de"]}
    assert (card.status, card.json()) == (404, {"error": "there is no card of a model '../../etc'"})
    assert before.keys() == {"queued", "rows", "tokens"}
    assert after["tokens"] - before["tokens"] == len("Once more.") + 2


@pytest.mark.parametrize(
    ("host", "setting", "expected"),
    [
        *(("127.0.0.1", None, True), ("::1", None, True), ("localhost", None, True), ("0.0.0.0", None, False)),
        *(("10.0.0.7", None, False), ("0.0.0.0", True, True), ("127.0.0.1", False, False)),
    ],
)
def test_page_is_for_this_machine_unless_a_setting_says_so(host, setting, expected):
    assert has_console(ListenConfig(http_host=host, console=setting)) is expected
