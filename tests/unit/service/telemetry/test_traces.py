"""Spans of calls: what they say, whom they belong to, and what happens without the libraries."""

import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from service.call import PHASES, Call, Caller
from service.config import load_config
from service.telemetry import load_traces

pytest.importorskip("opentelemetry.sdk", reason="the extra otel is not installed")

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

from service.telemetry.traces import Traces

ROOT = Path(__file__).parents[4]
TRACE_ID = 0x0AF7651916CD43DD8448EB211C80319C
CALLER = {"traceparent": f"00-{TRACE_ID:032x}-b7ad6b7169203331-01"}


def ended(code: str = "OK", headers: dict[str, str] | None = None, *, is_translated: bool = True) -> Call:
    return Call(
        method="dragoman.v1.TranslationService/Translate",
        request_id="r1",
        caller=Caller(name="shop"),
        trace_headers=headers or {},
        started=0.0,
        deadline=60.0,
        model="m",
        code=code,
        duration_s=0.07,
        phase="detokenize" if is_translated else "admission",
        texts=2,
        source_tokens=9,
        tokenize_s=0.001,
        queue_s=0.02,
        encode_s=0.003,
        decode_s=0.04,
        detokenize_s=0.005,
    )


def spans_of(*calls: Call) -> tuple[ReadableSpan, ...]:
    exporter = InMemorySpanExporter()
    traces = Traces(exporter)
    for call in calls:
        traces(call)
    traces.close()
    return exporter.get_finished_spans()


def test_a_call_is_a_span_with_what_is_known_of_it():
    (span,) = spans_of(ended(is_translated=False))

    assert (span.name, span.kind) == ("dragoman.v1.TranslationService/Translate", SpanKind.SERVER)
    attributes = dict(span.attributes or {})
    assert (attributes["dragoman.request_id"], attributes["dragoman.client"]) == ("r1", "shop")
    assert (attributes["rpc.response.status_code"], attributes["dragoman.texts"]) == ("OK", 2)
    assert span.start_time is not None
    assert span.end_time == span.start_time + 70_000_000


def test_phases_follow_each_other_within_the_call():
    *phases, call = sorted(spans_of(ended()), key=lambda span: span.kind is SpanKind.SERVER)

    assert [span.name for span in phases] == list(PHASES)
    assert {span.parent.span_id for span in phases if span.parent} == {call.context.span_id}
    assert phases[0].start_time == call.start_time
    assert all(before.end_time == after.start_time for before, after in pairwise(phases))
    lengths_ms = [((span.end_time or 0) - (span.start_time or 0)) / 1e6 for span in phases]
    assert lengths_ms == [1.0, 20.0, 3.0, 40.0, 5.0]


@pytest.mark.parametrize("headers", [{}, {"traceparent": "nonsense"}, {"traceparent": "00-" + "0" * 32 + "-1-01"}])
def test_without_a_good_parent_a_call_begins_a_trace(headers):
    (call,) = spans_of(ended(headers=headers, is_translated=False))

    assert call.parent is None


def test_what_the_caller_does_not_record_is_not_recorded():
    not_sampled = {"traceparent": CALLER["traceparent"][:-2] + "00"}

    assert spans_of(ended(headers=not_sampled)) == ()


def test_traces_go_nowhere_by_default_and_nothing_is_loaded():
    assert load_traces(load_config(None).telemetry) is None

    code = (
        "import sys, service.server.parts\n"
        "sys.exit(' '.join(name for name in sys.modules if name.startswith('opentelemetry')) or None)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_without_the_libraries_the_error_says_what_to_install(monkeypatch):
    for name in [name for name in sys.modules if name.startswith(("opentelemetry", "service.telemetry.traces"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)

    with pytest.raises(ValueError, match=r"`pip install opentelemetry-sdk .*` \(extra `otel`\)"):
        load_traces(load_config(None, {"telemetry.otlp_endpoint": "http://127.0.0.1:1"}).telemetry)
