"""The pages for machines as the real server has them, and the ports that they are on."""

import asyncio
import re
import shutil
import socket
import subprocess
import urllib.request
from contextlib import suppress

import grpc
import pytest
from prometheus_client.parser import text_string_to_metric_families

from protos import translation_pb2 as pb
from tests.fakes.calls import LIST_MODELS, calling, code_of, eventually

PROMISED = {
    "dragoman_requests_received",
    "dragoman_requests",
    "dragoman_requests_in_flight",
    "dragoman_request_duration_seconds",
    "dragoman_queue_duration_seconds",
    "dragoman_stage_duration_seconds",
    "dragoman_queue_requests",
    "dragoman_queue_tokens",
    "dragoman_token_budget_used_ratio",
    "dragoman_batch_rows",
    "dragoman_batch_padding_ratio",
    "dragoman_decode_steps",
    "dragoman_engine_busy_seconds",
    "dragoman_source_tokens",
    "dragoman_target_tokens",
    "dragoman_tokens",
    "dragoman_rejected",
    "dragoman_cancelled",
    "dragoman_wasted_steps",
    "dragoman_model_info",
    "dragoman_model_loaded_timestamp_seconds",
    "dragoman_engine_restarts",
    "dragoman_engines",
    "dragoman_engines_missing",
    "dragoman_ready",
    "dragoman_event_loop_lag_seconds",
    "dragoman_build_info",
    "dragoman_encoder_tokens",
    "dragoman_model_reload",
    "dragoman_model_refused",
    "dragoman_slow_requests",
    "dragoman_log_dropped",
    "process_resident_memory_bytes",
    "python_gc_collections",
}


async def test_metrics_parse_and_hold_what_is_promised(server):
    async with calling(server.address) as calls:
        await calls.texts("Hi.")

    status, body = await asyncio.to_thread(server.get, "/metrics")

    families = {family.name: family for family in text_string_to_metric_families(body)}
    assert status == 200
    assert PROMISED - families.keys() == set()
    assert "_created" not in body


async def test_times_of_batch_work_and_of_calls_that_have_no_priority_stand_apart(server):
    families = ("dragoman_request_duration_seconds_count", "dragoman_queue_duration_seconds_count")
    methods = {
        "translate": "dragoman.v1.TranslationService/Translate",
        "list": "dragoman.v1.TranslationService/ListModels",
    }

    def books() -> list[float]:
        batch = [server.metric(name, method=methods["translate"], priority="batch") for name in families]
        return [*batch, server.metric(families[0], method=methods["list"], priority="", code_class="ok")]

    before = books()
    async with calling(server.address) as calls:
        await calls.texts("Hi.", priority=pb.PRIORITY_BATCH)
        await calls.texts("Hi.")
        await calls.method(LIST_MODELS)(b"", timeout=10)

    assert [now - then for now, then in zip(books(), before, strict=True)] == [1, 1, 1]


async def test_work_is_counted(server):
    """Of the text that is too long only the refusal, and of the call itself everything."""
    tokens = ("dragoman_source_tokens_sum", "dragoman_target_tokens_sum", "dragoman_source_tokens_count")
    calls_answered = {"method": "dragoman.v1.TranslationService/Translate", "code": "OK"}

    def books() -> list[float]:
        return [
            *(server.metric(name) for name in tokens),
            server.metric("dragoman_rejected_total", reason="too_long"),
            server.metric("dragoman_requests_total", **calls_answered),
        ]

    before = books()
    async with calling(server.address) as calls:
        response = await calls.translate("Hi.", "", "x" * 20_000, "ok")

    assert [translation.status.code for translation in response.translations] == [0, 0, 3, 0]
    assert [now - then for now, then in zip(books(), before, strict=True)] == [5 + 0 + 4, 5 + 0 + 4, 3, 1, 1]


@pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool: it comes with the Debian package prometheus")
async def test_promtool_has_nothing_to_say(server):
    async with calling(server.address) as calls:
        await calls.texts("Hi.")
    done = await asyncio.to_thread(
        subprocess.run,
        ["promtool", "check", "metrics"],
        input=server.get("/metrics")[1],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stdout + done.stderr) == (0, "")


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


def test_model_is_named_once_with_its_version_and_provider(server):
    body = server.get("/metrics")[1]

    (line,) = [line for line in body.splitlines() if line.startswith("dragoman_model_info{")]
    assert 'model="echo"' in line
    assert 'version="1.2.3"' in line
    assert 'provider="cpu"' in line
    assert line.endswith(" 1.0")


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
