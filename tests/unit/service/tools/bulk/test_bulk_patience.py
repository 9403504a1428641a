"""Batches that are too large, and what a bulk run waits for, and for how long."""

from collections.abc import Callable
from typing import Any

import pytest

from service.errors import DeadlineExceeded, DragomanError, InvalidInput, Overloaded, TooLong, Unavailable
from service.records import Translation
from service.tools.bulk.workers import PatientCalls, TranslateBatch

AWAY = Unavailable("nobody there")
LATE = DeadlineExceeded("the limit of 60 s passed")
MESSAGE = Overloaded("SERVER: Received message larger than max (5 vs. 4)", reason="", retry_after_s=0.0)
TOO_MANY = InvalidInput("texts has 9 entries, from 1 to 4 are accepted", field="texts")


def serving() -> None:
    """What a server that serves says when it is asked."""


def translated(batch: list[str], server: TranslateBatch, ask: Callable[[], None] = serving) -> list[Translation]:
    """The translations of a batch, for which the run does not wait."""
    return PatientCalls(server, ask, max_outage_s=0.0)(batch)


def refused(reason: str = "queue_full") -> Overloaded:
    return Overloaded("no room", reason=reason, retry_after_s=2.0)


class SmallServer:
    """Takes batches of so many characters."""

    def __init__(self, most: int, refusal: DragomanError) -> None:
        self.most = most
        self.refusal = refusal
        self.asked: list[str] = []

    def __call__(self, batch: list[str]) -> list[Translation]:
        self.asked.append(" ".join(batch))
        if sum(map(len, batch)) > self.most:
            raise self.refusal
        return [Translation(source_tokens=len(text)) for text in batch]


@pytest.mark.parametrize(
    "refusal", [MESSAGE, TOO_MANY, LATE, refused("out_of_memory"), refused("deadline_unattainable")]
)
def test_batch_that_is_too_large_is_halved_until_it_fits_and_keeps_its_order(refusal):
    server = SmallServer(3, refusal)

    translations = translated(["a", "bb", "c", "d", "ee"], server)

    assert [item.source_tokens for item in translations] == [1, 2, 1, 1, 2]
    assert server.asked == ["a bb c d ee", "a bb", "c d ee", "c", "d ee"]


def test_text_that_fits_in_no_message_has_that_as_its_error():
    before, too_long, after = translated(["a", "bbbbb", "c"], SmallServer(3, MESSAGE))

    assert isinstance(too_long.error, TooLong)
    assert str(MESSAGE) in str(too_long.error)
    assert (before.error, after.error) == (None, None)


@pytest.mark.parametrize("refusal", [LATE, refused("out_of_memory"), refused("deadline_unattainable")])
def test_text_that_finds_no_memory_or_time_even_alone_is_the_server_s_trouble(refusal):
    server = SmallServer(0, refusal)

    with pytest.raises(type(refusal)):
        translated(["a", "b"], server)

    assert server.asked == ["a b", "a"]


class Server:
    """Fails as scripted, then answers; its clock goes on by the pauses alone."""

    def __init__(self, *failures: DragomanError) -> None:
        self.failures = list(failures)
        self.pauses: list[float] = []

    def clock(self) -> float:
        return sum(self.pauses)

    def call(self, batch: list[str]) -> list[Translation]:
        if self.failures:
            raise self.failures.pop(0)
        return [Translation() for _ in batch]

    def ask(self) -> list[Translation]:
        calls = PatientCalls(self.call, serving, max_outage_s=60.0, pause=self.pauses.append, clock=self.clock)
        return calls(["a"])


@pytest.mark.parametrize("reason", ["queue_full", "token_budget", "client_budget", "queue_seconds"])
def test_room_is_waited_for_however_long_it_takes_and_no_sooner_than_the_server_says(reason, capsys):
    server = Server(*[refused(reason)] * 500)

    assert server.ask() == [Translation()]
    assert capsys.readouterr().err.count("waiting, until there is room: no room\n") < sum(server.pauses) / 59
    assert len(server.pauses) == 500
    assert min(server.pauses) == 2.0
    assert sum(server.pauses) > 30 * 60


@pytest.mark.parametrize(
    "failure", [AWAY, LATE, *map(refused, ("", "of_a_proxy", "deadline_unattainable", "out_of_memory"))]
)
def test_what_is_not_for_want_of_room_ends_it_when_it_lasts_too_long(failure):
    server = Server(*[failure] * 500)

    with pytest.raises(type(failure), match=str(failure)):
        server.ask()
    assert 60.0 <= sum(server.pauses) < 75.0


def test_server_that_says_it_has_no_room_is_not_away():
    server = Server(*([AWAY] * 6 + [refused()]) * 20)

    assert server.ask() == [Translation()]
    assert sum(server.pauses) > 60.0


def test_failure_that_stays_is_not_tried_again():
    server = Server(InvalidInput("no such beam", field="options"))

    with pytest.raises(InvalidInput, match="no such beam"):
        server.ask()
    assert server.pauses == []


def failing(error: DragomanError) -> Callable[..., Any]:
    def fail(*_: object) -> None:
        raise error

    return fail


@pytest.mark.parametrize("ask", [serving, failing(refused("streams"))], ids=["serves", "refuses the question"])
def test_late_call_of_a_server_that_lives_was_late(ask):
    with pytest.raises(DeadlineExceeded, match="60 s"):
        translated(["a"], failing(LATE), ask)


def test_late_call_of_a_server_that_does_not_serve_is_an_outage_and_says_why():
    with pytest.raises(Unavailable, match=r"60 s.* and nobody there"):
        translated(["a"], failing(LATE), failing(AWAY))
