"""Usage by client: what counts, under which label, and no text in the log."""

import pytest
from structlog.testing import capture_logs

from service.engine.job import FinishReason
from service.errors import InternalError, TooLong
from service.queue.callers import ANYBODY, Caller, Priority
from service.queue.usage import PERIOD_S, Usage, UsageLog, usage_of
from service.records import TranslatedText, Translation
from service.telemetry.metrics import Metrics

USAGE = Usage(texts=2, characters=30, source_tokens=9, target_tokens=8, row_steps=40)
KEY = Caller(name="shop", source="key")


def translated(source_tokens: int, *target_tokens: int, row_steps: int = 0) -> Translation:
    hypotheses = tuple(
        TranslatedText(text="t", score=0.0, finish_reason=FinishReason.END_OF_SENTENCE, target_tokens=number)
        for number in target_tokens
    )
    return Translation(hypotheses=hypotheses, source_tokens=source_tokens, row_steps=row_steps)


def used(metrics: Metrics, caller: str) -> dict[str, float | None]:
    read = metrics.registry.get_sample_value
    names = ("texts", "characters", "row_steps")
    counts = {name: read(f"dragoman_client_{name}_total", {"client": caller}) for name in names}
    directions = ("source", "target")
    tokens = {name: read("dragoman_client_tokens_total", {"client": caller, "direction": name}) for name in directions}
    return counts | tokens


def test_what_was_answered_counts_and_what_failed_does_not():
    texts = ["four", "", "too long", "no numbers"]
    translations = [
        translated(3, 5, 6, row_steps=24),
        translated(0, 0),
        Translation(error=TooLong("long", field="texts[2]")),
        Translation(error=InternalError("nan"), source_tokens=4),
    ]

    assert usage_of(texts, translations) == Usage(
        texts=2, characters=4, source_tokens=3, target_tokens=11, row_steps=24
    )


def test_clients_with_a_key_are_counted_by_name():
    metrics = Metrics()
    books = UsageLog(metrics)

    books.add(KEY, USAGE)
    books.add(KEY, USAGE)

    assert used(metrics, "shop") == {"texts": 4, "characters": 60, "row_steps": 80, "source": 18, "target": 16}


def test_all_others_are_counted_together():
    metrics = Metrics()
    books = UsageLog(metrics)

    for number in range(100):
        books.add(Caller(name=f"10.0.0.{number}"), USAGE)
        books.add(Caller(name=f"user {number}", source="proxy"), USAGE)

    assert used(metrics, "_other")["texts"] == 400
    assert b"".join(metrics.exposition()).decode().count("dragoman_client_texts_total{") == 1


def test_counts_are_exported_before_the_first_call():
    assert used(Metrics(), "_other") == dict.fromkeys(("texts", "characters", "row_steps", "source", "target"), 0.0)


def test_a_client_s_calls_are_one_line_in_the_log_and_not_repeated():
    books = UsageLog(Metrics())
    books.add(KEY, USAGE)
    books.add(Caller(name="shop"), USAGE)
    books.add(KEY, USAGE)

    with capture_logs() as lines:
        books.write()
        books.write()

    once = {"texts": 2, "characters": 30, "source_tokens": 9, "target_tokens": 8, "row_steps": 40}
    event = {"event": "usage", "log_level": "info", "client": "shop"}
    assert lines == [
        {**event, "client_source": "key", "calls": 2, **{name: 2 * amount for name, amount in once.items()}},
        {**event, "client_source": "peer", "calls": 1, **once},
    ]


def test_lines_are_written_when_a_period_is_over():
    books = UsageLog(Metrics())
    books.write_if_due(100.0)

    with capture_logs() as lines:
        for now in (100.25, 100.0 + PERIOD_S - 0.25, 100.0 + PERIOD_S, 100.25 + PERIOD_S):
            books.add(KEY, USAGE)
            books.write_if_due(now)

    assert [line["calls"] for line in lines] == [3]


@pytest.mark.parametrize(
    ("highest", "asked", "found"),
    [
        (Priority.INTERACTIVE, None, Priority.INTERACTIVE),
        (Priority.INTERACTIVE, Priority.BATCH, Priority.BATCH),
        (Priority.BATCH, None, Priority.BATCH),
        (Priority.BATCH, Priority.INTERACTIVE, Priority.BATCH),
    ],
)
def test_client_gets_what_it_asks_for_or_the_highest_it_may_have(highest, asked, found):
    assert Caller(name="a", priority=highest).allowed(asked) is found


def test_anybody_is_interactive():
    assert ANYBODY.allowed(None) is Priority.INTERACTIVE
