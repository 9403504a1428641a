"""One page for several processes: sums that never go down, and books that balance when a process is lost."""

import pickle
import re
from random import Random

import pytest
from prometheus_client.parser import text_string_to_metric_families

from service.call import Call
from service.engine.wire import FinishReason
from service.records import Priority, TranslatedText, Translation
from service.telemetry.metrics import Metrics, Snapshot, server_version
from tests.fakes.books import imbalance, sample_of, samples

METHODS = ("One", "Two")
HYPOTHESIS = TranslatedText(text="x", score=-1.0, finish_reason=FinishReason.END_OF_SENTENCE, target_tokens=7)
Samples = dict[tuple[str, ...], float]


def page(metrics: Metrics) -> str:
    return b"".join(metrics.exposition()).decode()


def read(metrics: Metrics, name: str, **labels: str) -> float | None:
    """A sample of `dragoman_{name}`; None where there is no such series."""
    return sample_of(metrics, f"dragoman_{name}", labels)


def sent(metrics: Metrics) -> Snapshot:
    """What arrives of its snapshot in another process."""
    snapshot: Snapshot = pickle.loads(pickle.dumps(metrics.snapshot()))
    return snapshot


def translate(metrics: Metrics, model: str, *, source_tokens: int) -> None:
    call = Call(method="One", started=0.0, deadline=9.0, priority=Priority.BATCH, queue_s=0.002)
    metrics.model(model).answered(call)
    metrics.model(model).text_translated(Translation(hypotheses=(HYPOTHESIS,), source_tokens=source_tokens), 7)


@pytest.fixture
def core() -> Metrics:
    return Metrics(methods=METHODS)


@pytest.fixture
def edge() -> Metrics:
    return Metrics(methods=METHODS)


def test_page_shows_what_all_processes_count(core, edge):
    for metrics, source_tokens in ((core, 5), (edge, 50)):
        metrics.call_received("One")
        metrics.rejected("queue_full")
        translate(metrics, "m", source_tokens=source_tokens)
    for source in ("edge-1", "edge-2"):
        core.heard(source, sent(edge))

    assert read(core, "requests_in_flight", method="One") == 3.0
    assert read(core, "rejected_total", reason="queue_full") == 3.0
    assert read(core, "tokens_total", model="m", direction="source") == 105.0
    assert [read(core, "source_tokens_bucket", model="m", le=bound) for bound in ("8.0", "32.0", "64.0", "+Inf")] == [
        *(1.0, 1.0, 3.0, 3.0)
    ]
    assert (read(core, "source_tokens_sum", model="m"), read(core, "source_tokens_count", model="m")) == (105.0, 3.0)


def test_series_that_only_another_process_has_are_shown(core, edge):
    edge.call_received("Three")
    translate(edge, "m", source_tokens=5)

    core.heard("edge-1", sent(edge))

    assert read(core, "requests_received_total", method="Three") == 1.0
    assert read(core, "queue_duration_seconds_sum", method="One", model="m", priority="batch") == 0.002
    kinds = re.findall(r"^# TYPE (\S+)", page(core), re.MULTILINE)
    assert len(list(text_string_to_metric_families(page(core)))) == len(set(kinds)) == len(kinds)


def test_latest_snapshot_takes_the_place_of_the_earlier_one(core, edge):
    num_streams = 4
    edge.watch("streams", lambda: num_streams)
    core.watch("streams", lambda: 1)
    edge.rejected("streams")
    core.heard("edge-1", sent(edge))
    first = read(core, "streams"), read(core, "rejected_total", reason="streams")
    num_streams = 2
    edge.rejected("streams")
    core.heard("edge-1", sent(edge))

    assert first == (5.0, 1.0)
    assert (read(core, "streams"), read(core, "rejected_total", reason="streams")) == (3.0, 2.0)


def test_lost_process_leaves_its_counts_and_its_calls_in_flight_were_unavailable(core, edge):
    edge.watch("streams", lambda: 4)
    for method in ("One", "One", "One", "Two"):
        edge.call_received(method)
    edge.call_answered("One", "m", "OK", 0.2, priority="batch")
    edge.call_answered("Two", "m", "OK", 0.2, priority="batch")
    core.heard("edge-1", sent(edge))

    core.lost("edge-1")
    core.lost("edge-1")

    assert imbalance(page(core)) == {}
    assert read(core, "requests_received_total", method="One") == 3.0
    assert read(core, "requests_total", method="One", model="m", code="OK") == 1.0
    assert read(core, "requests_total", method="One", model="", code="UNAVAILABLE") == 2.0
    assert read(core, "requests_total", method="Two", model="", code="UNAVAILABLE") is None
    assert (read(core, "streams"), read(core, "requests_in_flight", method="One")) == (0.0, None)
    duration = {"method": "One", "model": "m", "priority": "batch", "code_class": "ok"}
    assert read(core, "request_duration_seconds_sum", **duration) == 0.2


def test_facts_are_those_of_the_process_with_the_page(core, edge):
    for metrics in (core, edge):
        metrics.model("m").loaded(version="1", sha256_12="0" * 12, provider="cpu", runtime="native")
        metrics.watch("ready", lambda: True)
    loaded = read(core, "model_loaded_timestamp_seconds", model="m")

    core.heard("edge-1", sent(edge))

    assert read(core, "model_info", model="m", version="1", sha256_12="0" * 12, provider="cpu", runtime="native") == 1.0
    assert (read(core, "ready"), read(core, "model_loaded_timestamp_seconds", model="m")) == (1.0, loaded)
    assert read(core, "build_info", version=server_version()) == 1.0
    assert page(core).count("\nprocess_resident_memory_bytes ") == 1


def test_sum_of_seconds_is_the_same_to_the_last_bit_when_processes_are_lost(core):
    """Prometheus takes any smaller number for a restart, and 0.2 + 0.3 + 0.1 is less than 0.1 + 0.2 + 0.3."""
    for number, seconds in enumerate((0.1, 0.2, 0.3)):
        edge = Metrics(methods=METHODS)
        edge.observe_lag(seconds)
        core.heard(f"edge-{number}", sent(edge))
    shown = [read(core, "event_loop_lag_seconds_sum")]
    for number in (1, 2, 0):
        core.lost(f"edge-{number}")
        shown.append(read(core, "event_loop_lag_seconds_sum"))

    assert shown == [0.1 + 0.2 + 0.3] * 4


@pytest.mark.parametrize("seed", range(2))
def test_books_balance_and_nothing_goes_down_while_processes_come_and_go(core, seed):
    random = Random(seed)
    edges = {f"edge-{number}": Metrics(methods=METHODS) for number in range(3)}
    open_calls: dict[str, list[str]] = {source: [] for source in edges}
    before: Samples = {}
    for _ in range(100):
        source = random.choice(sorted(edges))
        match random.choices(("receive", "answer", "send", "lose"), (5, 4, 4, 1))[0]:
            case "receive":
                open_calls[source].append(random.choice(METHODS))
                edges[source].call_received(open_calls[source][-1])
            case "answer" if open_calls[source]:
                code = random.choice(("OK", "CANCELLED"))
                edges[source].call_answered(open_calls[source].pop(), "m", code, random.random())
            case "send":
                core.heard(source, sent(edges[source]))
            case "lose":
                core.lost(source)
                edges[source], open_calls[source] = Metrics(methods=METHODS), []
        text = page(core)
        after = counts(text)

        assert imbalance(text) == {}
        assert [key for key, value in before.items() if after.get(key, -1.0) < value] == []
        before = after
    assert before["dragoman_requests_received_total", "One"] > 3.0


def counts(text: str) -> Samples:
    """Samples of a page that must not go down."""
    return {
        (name, *labels.values()): value
        for name, labels, value in samples(text)
        if name.startswith("dragoman_") and name.endswith(("_total", "_bucket", "_count", "_sum"))
    }
