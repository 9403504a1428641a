"""The pages for machines as the real server has them, and the ports that they are on."""

import asyncio
from http.client import HTTPConnection

import pytest
from prometheus_client.parser import text_string_to_metric_families

from protos import translation_pb2 as pb
from service.addresses import Address
from service.telemetry.metrics import Metrics
from tests.fakes.calls import LIST_MODELS, calling
from tests.fakes.http_requests import ask


async def test_metrics_parse_and_hold_what_is_documented(server):
    async with calling(server.address) as calls:
        await calls.texts("Hi.")

    status, body = await asyncio.to_thread(server.get, "/metrics")

    families = {family.name: family for family in text_string_to_metric_families(body)}
    documented = {definition.name.removesuffix("_total") for definition in Metrics().families}
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
        await calls.method(LIST_MODELS)(b"", timeout=120.0)

    assert [translation.status.code for translation in response.translations] == [0, 0, 3, 0]
    assert [now - then for now, then in zip(counts(), before, strict=True)] == [14, 14, 4, 1, 2, 1, 1, 1]


@pytest.mark.promise("F6")
@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("/healthz", (200, "alive\n")),
        ("/readyz", (200, "ready\n")),
    ],
)
def test_pages(server, path, answer):
    assert server.get(path) == answer


async def test_http_port_can_be_switched_off(start_server):
    server = start_server(DRAGOMAN_LISTEN__HTTP="false")

    async with calling(server.address) as calls:
        assert await calls.texts("a") == ["a"]
    assert server.listening_ports() == {server.grpc_port}
    assert "http_port" not in server.log_text()


def test_metrics_can_have_a_port_of_their_own(start_server):
    server = start_server("--set", "listen.metrics_port=0")
    (metrics_port,) = server.listening_ports() - {server.grpc_port, server.http_port}

    elsewhere = ask(server.http_port, "GET", "/metrics")

    assert (elsewhere.status, elsewhere.body) == (404, b"there is no such page; /docs describes those that there are\n")
    assert server.metrics_port == metrics_port
    assert "dragoman_ready 1.0" in server.get("/metrics")[1]
    assert f'"metrics_port": {metrics_port}' in server.log_text()


@pytest.mark.promise("I9")
async def test_both_ports_of_one_process_are_reached_at_ipv4_and_ipv6(start_server):
    server = start_server(DRAGOMAN_LISTEN__GRPC_HOST="::", DRAGOMAN_LISTEN__HTTP_HOST="::")
    for address in ("127.0.0.1", "::1"):
        connection = HTTPConnection(address, server.http_port, timeout=120.0)
        answer = await asyncio.to_thread(ask, connection, "GET", "/readyz")
        connection.close()
        async with calling(str(Address(address, server.grpc_port))) as calls:
            assert await calls.texts("Hi.") == ["Hi."]

        assert answer.status == 200
