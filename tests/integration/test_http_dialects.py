"""What all dialects of HTTP have in common, at the real server: description, metrics, keys, refusals, other origins."""

import asyncio
import json
from contextlib import closing
from http.client import HTTPConnection

from tests.fakes.calls import eventually
from tests.fakes.dialect_server import server
from tests.fakes.http_requests import ask, post, post_form
from tests.fakes.secured_server import guarded, keys

__all__ = ["guarded", "keys", "server"]


def test_description_names_every_operation_and_its_page_asks_for_nothing(server):
    spec = ask(server.http_port, "GET", "/spec").json()
    page = ask(server.http_port, "GET", "/docs")

    assert spec["openapi"] == "3.1.0"
    assert {"/translate", "/translate_file", "/detect", "/languages", "/v2/translate", "/v2/usage"} <= spec[
        "paths"
    ].keys()
    assert all(path in page.body.decode() for path in spec["paths"])
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert not {"<script", "http:", "https:"} & set(page.body.decode().split())
    assert json.dumps(spec).count("#/components/schemas/") == sum(
        json.dumps(spec).count(f'"#/components/schemas/{name}"') for name in spec["components"]["schemas"]
    )


def test_keys_of_all_dialects_are_those_of_the_server(guarded, keys):
    text = {"q": "a", "source": "en", "target": "de"}
    good = post(guarded.http_port, "/translate", api_key=keys.shop, **text)
    deepl = {"Authorization": f"DeepL-Auth-Key {keys.shop}"}
    also_good = post(guarded.http_port, "/v2/translate", deepl, text="abc", target_lang="DE")
    bad = [
        post(guarded.http_port, "/translate", **text),
        post(guarded.http_port, "/translate", api_key="other", **text),
        post(guarded.http_port, "/v2/translate", text="a", target_lang="DE"),
        post_form(guarded.http_port, "/languages", ("api_key", "other")),
        post(guarded.http_port, "/translate", api_key=keys.elsewhere, **text),
    ]

    assert (good.status, also_good.status) == (200, 200)
    assert [answer.status for answer in bad] == [403, 403, 403, 403, 400]
    assert ask(guarded.http_port, "GET", "/languages").status == 200
    assert ask(guarded.http_port, "GET", "/v2/usage", headers=deepl).json()["character_count"] == 4
    assert guarded.metric("dragoman_client_characters_total", client="shop") == 4


async def test_full_server_says_when_to_come_again(start_server):
    server = start_server(DRAGOMAN_LIMITS__MAX_CONCURRENT_REQUESTS="1")
    holder = HTTPConnection("127.0.0.1", server.http_port)
    with server.held(), closing(holder):  # which nobody waits for
        holder.request("POST", "/translate", json.dumps({"q": "many words " * 20, "source": "en", "target": "de"}))
        await eventually(lambda: server.metric("dragoman_running_jobs") == 1)
        refused = [
            await asyncio.to_thread(post, server.http_port, "/translate", q="a", source="en", target="de"),
            await asyncio.to_thread(post, server.http_port, "/v2/translate", text="a", target_lang="DE"),
        ]

    assert [answer.status for answer in refused] == [429, 429]
    assert all(int(answer.headers["retry-after"]) >= 1 for answer in refused)
    assert server.metric("dragoman_requests_total", code="RESOURCE_EXHAUSTED") == 2


def test_pages_of_another_origin_may_call_where_a_setting_says_so(server):
    allowed, unknown = (
        ask(
            server.http_port,
            "OPTIONS",
            "/translate",
            headers={"Origin": origin, "Access-Control-Request-Method": "POST"},
        )
        for origin in ("https://a.example", "https://b.example")
    )

    assert (allowed.status, allowed.headers["access-control-allow-origin"]) == (200, "https://a.example")
    assert "access-control-allow-origin" not in unknown.headers
