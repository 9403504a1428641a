"""What a bulk run waits for, and for how long."""

from collections.abc import Callable

import pytest

from service.bulk.patience import WaitReport, until_answered
from service.errors import DeadlineExceeded, DragomanError, InvalidInput, Overloaded, Unavailable

AWAY = Unavailable("nobody there")


def no_room(reason: str = "queue_full") -> Overloaded:
    return Overloaded("no room", reason=reason, retry_after_s=2.0)


class Server:
    """Fails as scripted, then answers; its clock goes on by the pauses alone."""

    def __init__(self, *failures: DragomanError) -> None:
        self.failures = list(failures)
        self.pauses: list[float] = []
        self.said: list[str] = []

    def clock(self) -> float:
        return sum(self.pauses)

    def call(self) -> str:
        if self.failures:
            raise self.failures.pop(0)
        return "answer"

    def pause(self, seconds: float) -> bool:
        self.pauses.append(seconds)
        return True

    def ask(self, *, max_outage_s: float = 60.0, pause: Callable[[float], bool] | None = None) -> str:
        report = WaitReport(self.said.append, max_outage_s=max_outage_s, clock=self.clock)
        return until_answered(
            self.call,
            max_outage_s=max_outage_s,
            pause=pause or self.pause,
            on_wait=report.waits,
            clock=self.clock,
        )


@pytest.mark.parametrize("reason", ["queue_full", "token_budget", "client_budget", "queue_seconds"])
def test_room_is_waited_for_however_long_it_takes_and_no_sooner_than_the_server_says(reason):
    server = Server(*[no_room(reason)] * 500)

    assert server.ask() == "answer"
    assert len(server.pauses) == 500
    assert min(server.pauses) == 2.0
    assert sum(server.pauses) > 60 * 60


@pytest.mark.parametrize(
    "failure",
    [
        *(AWAY, DeadlineExceeded("60 s"), no_room(""), no_room("of_a_proxy")),
        *(no_room("deadline_unattainable"), no_room("out_of_memory")),
    ],
)
def test_what_is_not_for_want_of_room_ends_it_when_it_lasts_too_long(failure):
    server = Server(*[failure] * 500)

    with pytest.raises(type(failure), match=str(failure)):
        server.ask()
    assert 60.0 <= sum(server.pauses) < 75.0


def test_call_that_was_late_once_is_made_again():
    assert Server(DeadlineExceeded("60 s")).ask() == "answer"


def test_server_that_says_it_has_no_room_is_not_away():
    server = Server(*([AWAY] * 6 + [no_room()]) * 20)

    assert server.ask() == "answer"
    assert sum(server.pauses) > 60.0


def test_wrong_call_is_not_made_again():
    with pytest.raises(InvalidInput):
        Server(InvalidInput("no such beam", field="options")).ask()


def test_failure_that_its_caller_knows_to_stay_is_not_tried_again():
    with pytest.raises(Overloaded, match="too large"):
        until_answered(
            Server(Overloaded("too large", reason="", retry_after_s=0.0)).call,
            max_outage_s=60.0,
            pause=lambda _: pytest.fail("it waits"),
            is_final=lambda error: "too large" in str(error),
        )


def test_nobody_who_has_ended_waits():
    with pytest.raises(Overloaded):
        Server(no_room()).ask(pause=lambda _: False)


def test_wait_is_told_with_its_reason_and_again_each_minute():
    server = Server(*[no_room()] * 14, AWAY, AWAY)  # pauses of 10 s, more or less, but for the first few

    server.ask()

    assert server.said[0] == "waiting, until there is room: no room"
    assert server.said[-1] == "waiting, at most 60 s (--max-outage): nobody there"
    assert len(server.said) == 3
