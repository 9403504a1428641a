"""What a real server says of itself to others: traces to a collector, and a log whose disk is full."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

from tests.fakes.calls import calling

otlp = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2", reason="the extra otel")
otlp_grpc = pytest.importorskip(
    "opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc", reason="the extra otel"
)

TRACE = "0af7651916cd43dd8448eb211c80319c"
CALLER = (("traceparent", f"00-{TRACE}-b7ad6b7169203331-01"), ("x-request-id", "mine"))


class Collector:
    def __init__(self) -> None:
        self.requests: list[Any] = []

    def Export(self, request: Any, context: Any) -> Any:  # noqa: N802 - gRPC's name
        self.requests.append(request)
        return otlp.ExportTraceServiceResponse()

    @property
    def spans(self) -> list[Any]:
        scopes = [scope for request in self.requests for part in request.resource_spans for scope in part.scope_spans]
        return [span for scope in scopes for span in scope.spans]


@pytest.fixture
def collector() -> Iterator[tuple[Collector, str]]:
    servicer, server = Collector(), grpc.server(ThreadPoolExecutor(1))
    otlp_grpc.add_TraceServiceServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield servicer, f"http://127.0.0.1:{port}"
    server.stop(None).wait()


async def test_a_call_s_spans_reach_the_collector_before_the_server_ends(start_server, collector):
    received, endpoint = collector

    async def one_life() -> bool:
        server = start_server("--set", f"telemetry.otlp_endpoint={endpoint}")
        async with calling(server.address) as calls:
            await calls.translate("geheim", metadata=CALLER)
        server.terminate()
        assert await asyncio.to_thread(server.wait) == 0
        return bool(received.spans)

    assert await one_life() or await one_life()  # the 2 s a server gives it may be too short for a busy machine, once
    spans = [span for span in received.spans if span.trace_id.hex() == TRACE]
    assert [span.name for span in spans if not span.parent_span_id] == []
    assert {span.name for span in spans} == {
        "dragoman.v1.TranslationService/Translate",
        *("tokenize", "queue", "encode", "decode", "detokenize"),
    }
    assert "geheim" not in str(received.requests)
    assert "mine" in str(received.requests)
