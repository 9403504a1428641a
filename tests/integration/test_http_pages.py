"""The pages for machines as the real server has them, and the ports that they are on."""

import asyncio
import re
import socket
import urllib.request
from contextlib import suppress

import grpc
import pytest
from prometheus_client.parser import text_string_to_metric_families

from protos import translation_pb2 as pb
from service.telemetry.reference import definitions
from tests.fakes.calls import LIST_MODELS, calling, code_of, eventually


async def test_metrics_parse_and_hold_what_is_documented(server):
    async with calling(server.address) as calls:
        await calls.texts("Hi.")

    status, body = await asyncio.to_thread(server.get, "/metrics")

    families = {family.name: family for family in text_string_to_metric_families(body)}
    documented = {definition.name.removesuffix("_total") for definition in definitions()}
    (model,) = families["dragoman_model_info"].samples
    assert status == 200
    assert documented | {"process_resident_memory_bytes", "python_gc_collections"} <= families.keys()
    assert "_created" not in body
    assert (model.labels["model"], model.labels["version"], model.labels["provider"]) == ("echo", "1.2.3", "cpu")


async def test_work_is_counted_by_method_priority_and_outcome(server):
    """Of the text that is too long only the refusal, and of the call itself everything."""
    translate = {"method": "dragoman.v1.TranslationService/Translate"}
    unprioritised = {"method": "dragoman.v1.TranslationService/ListModels", "priority": "", "code_class": "ok"}

    def counts() -> list[float]:
        return [
            server.metric("dragoman_source_tokens_sum"),
            server.metric("dragoman_target_tokens_sum"),
            server.metric("dragoman_source_tokens_count"),
            server.metric("dragoman_rejected_total", reason="too_long"),
            server.metric("dragoman_requests_total", **translate, code="OK"),
            server.metric("dragoman_request_duration_seconds_count", **translate, priority="batch"),
            server.metric("dragoman_queue_duration_seconds_count", **translate, priority="batch"),
            server.metric("dragoman_request_duration_seconds_count", **unprioritised),
        ]

    before = counts()
    async with calling(server.address) as calls:
        response = await calls.translate("Hi.", "", "x" * 20_000, "ok")
        await calls.texts("Hi.", priority=pb.PRIORITY_BATCH)
        await calls.method(LIST_MODELS)(b"", timeout=10)

    assert [translation.status.code for translation in response.translations] == [0, 0, 3, 0]
    assert [now - then for now, then in zip(counts(), before, strict=True)] == [14, 14, 4, 1, 2, 1, 1, 1]


async def test_random_model_names_make_no_new_series(server):
    def models() -> set[str]:
        return set(re.findall(r'[{,]model="([^"]*)"', server.get("/metrics")[1]))

    async with calling(server.address) as calls:
        await code_of(calls.translate("a", model="no such model"))
        before = models()
        codes = await asyncio.gather(*(code_of(calls.translate("a", model=f"model {n}")) for n in range(300)))

    assert set(codes) == {grpc.StatusCode.NOT_FOUND}
    await eventually(lambda: server.metric("dragoman_requests_total", model="_other", code="NOT_FOUND") == 301)
    assert models() == before


@pytest.mark.promise("F6")
@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("/healthz", (200, "alive\n")),
        ("/readyz", (200, "ready\n")),
        ("/healthz?verbose=1", (200, "alive\n")),
        ("/", (404, "try /metrics /healthz /readyz\n")),
        ("/metricsx", (404, "try /metrics /healthz /readyz\n")),
    ],
)
def test_pages(server, path, answer):
    assert server.get(path) == answer


@pytest.mark.promise("G2")
async def test_hanging_scrapers_are_bounded_and_cost_calls_and_probes_nothing(start_server):
    server = start_server(DRAGOMAN_LISTEN__MAX_HTTP_CONNECTIONS="8")
    hanging = [socket.create_connection(("127.0.0.1", server.http_port), timeout=10) for _ in range(8)]
    try:
        for connection in hanging:
            connection.sendall(b"GET /metrics HTTP/1.1\r\n")  # and never the rest
        one_more = await asyncio.to_thread(server.get, "/readyz")
        async with calling(server.address) as calls:
            assert await calls.texts("a") == ["a"]
        assert one_more == (200, "ready\n")
        with suppress(ConnectionError):
            assert hanging[0].recv(1) == b""  # it made room
    finally:
        for connection in hanging:
            connection.close()


async def test_http_port_can_be_switched_off(start_server):
    server = start_server(DRAGOMAN_LISTEN__HTTP="false")

    async with calling(server.address) as calls:
        assert await calls.texts("a") == ["a"]
    assert server.listening_ports() == {server.grpc_port}
    assert "http_port" not in server.log_text()


def test_metrics_can_have_a_port_of_their_own(start_server):
    server = start_server("--set", "listen.metrics_port=0")
    (metrics_port,) = server.listening_ports() - {server.grpc_port, server.http_port}

    assert server.get("/metrics") == (404, "try /healthz /readyz\n")
    with urllib.request.urlopen(f"http://127.0.0.1:{metrics_port}/metrics", timeout=10) as answer:
        assert b"dragoman_ready 1.0" in answer.read()
    assert f'"metrics_port": {metrics_port}' in server.log_text()
