"""What is counted of a request that was answered: what is usage, under which label, and no text in the log."""

import pickle
from functools import partial

import pytest
from structlog.testing import capture_logs

from service.call import Call, Caller
from service.engine.wire import FinishReason
from service.errors import DragomanError, InternalError, Overloaded, TooLong, Unavailable
from service.records import TranslatedText, Translation, TranslationRequest, TranslationResult
from service.telemetry.metrics import Metrics
from service.telemetry.usage import UsageMeter
from tests.fakes.books import sample_of

SHOP = Caller(name="shop", source="key")


def translated(source_tokens: int, *target_tokens: int, row_steps: int = 0) -> Translation:
    hypotheses = tuple(
        TranslatedText(text="t", score=0.0, finish_reason=FinishReason.END_OF_SENTENCE, target_tokens=number)
        for number in target_tokens
    )
    return Translation(hypotheses=hypotheses, source_tokens=source_tokens, row_steps=row_steps)


ANSWERS = {
    "four": translated(3, 5, 6, row_steps=24),
    "": translated(0, 0),
    "too long": Translation(error=TooLong("long", field="texts[2]")),
    "no numbers": Translation(error=InternalError("nan"), source_tokens=4),
}
ONCE = {"texts": 2, "characters": 4, "source_tokens": 3, "target_tokens": 11, "row_steps": 24}


def add(usage_meter: UsageMeter, caller: Caller) -> None:
    call = Call(method="m", caller=caller, started=0.0, deadline=9.0)
    result = TranslationResult(translations=list(ANSWERS.values()), model="m")
    usage_meter.translated(TranslationRequest(texts=list(ANSWERS)), result, call)


def used(metrics: Metrics, caller: str) -> dict[str, float | None]:
    read = partial(sample_of, metrics)
    counts = {
        name: read(f"dragoman_client_{name}_total", {"client": caller}) for name in ("texts", "characters", "row_steps")
    }
    for name in ("source", "target"):
        counts[f"{name}_tokens"] = read("dragoman_client_tokens_total", {"client": caller, "direction": name})
    return counts


def test_what_was_answered_is_usage_of_a_caller_with_a_key_and_what_failed_is_not():
    metrics = Metrics()
    usage_meter = UsageMeter(metrics)

    add(usage_meter, SHOP)
    add(usage_meter, SHOP)

    assert used(metrics, "shop") == {name: 2 * amount for name, amount in ONCE.items()}


def test_usage_of_a_caller_is_one_line_in_the_log_and_not_repeated():
    usage_meter = UsageMeter(Metrics())
    for caller in (SHOP, Caller(name="shop"), SHOP):
        add(usage_meter, caller)

    with capture_logs() as lines:
        usage_meter.write()
        usage_meter.write()

    event = {"event": "usage", "log_level": "info", "client": "shop"}
    assert lines == [
        {**event, "client_source": "key", "calls": 2, **{name: 2 * amount for name, amount in ONCE.items()}},
        {**event, "client_source": "peer", "calls": 1, **ONCE},
    ]


def test_usage_of_several_processes_is_one_line_for_each_caller():
    accounts = [UsageMeter(Metrics()) for _ in range(3)]
    core, *edges = accounts
    for usage_meter in accounts:
        add(usage_meter, SHOP)
    add(edges[1], Caller(name="10.0.0.7"))

    with capture_logs() as lines:
        for _ in range(2):  # the second time there is nothing left to take
            for edge in edges:
                core.absorb(pickle.loads(pickle.dumps(edge.take())))
        core.write()
        for usage_meter in accounts:
            usage_meter.write()

    assert [(line["client"], line["calls"], line["target_tokens"]) for line in lines] == [
        ("shop", 3, 3 * ONCE["target_tokens"]),
        ("10.0.0.7", 1, ONCE["target_tokens"]),
    ]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (TooLong("long", field="texts.text"), "too_long"),
        (Overloaded("full", reason="queue_full", retry_after_s=1.0), "queue_full"),
        (Unavailable("draining", reason="draining"), "draining"),
    ],
)
def test_text_of_a_stream_that_is_refused_is_counted_by_reason(error: DragomanError, reason: str):
    metrics = Metrics()

    UsageMeter(metrics).text_refused(error)

    assert sample_of(metrics, "dragoman_rejected_total", {"reason": reason}) == 1.0
