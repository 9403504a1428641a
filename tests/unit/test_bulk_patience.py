"""What a bulk run waits for, and for how long."""

from collections.abc import Callable

import pytest

from service.bulk.patience import until_answered
from service.errors import DragomanError, InvalidInput, Overloaded, Unavailable

AWAY = Unavailable("nobody there")


def no_room(reason: str = "queue_full") -> Overloaded:
    return Overloaded("no room", reason=reason, retry_after_s=2.0)


class Server:
    """Fails as scripted, then answers; its clock goes on by the pauses alone."""

    def __init__(self, *failures: DragomanError) -> None:
        self.failures = list(failures)
        self.pauses: list[float] = []

    def call(self) -> str:
        if self.failures:
            raise self.failures.pop(0)
        return "answer"

    def pause(self, seconds: float) -> bool:
        self.pauses.append(seconds)
        return True

    def ask(self, *, max_outage_s: float = 60.0, pause: Callable[[float], bool] | None = None) -> str:
        return until_answered(
            self.call, max_outage_s=max_outage_s, pause=pause or self.pause, clock=lambda: sum(self.pauses)
        )


def test_room_is_waited_for_however_long_it_takes_and_no_sooner_than_the_server_says():
    server = Server(*[no_room()] * 500)

    assert server.ask() == "answer"
    assert len(server.pauses) == 500
    assert min(server.pauses) == 2.0
    assert sum(server.pauses) > 60 * 60


def test_server_that_is_away_too_long_ends_it():
    server = Server(*[AWAY] * 500)

    with pytest.raises(Unavailable, match="nobody there"):
        server.ask()
    assert 60.0 <= sum(server.pauses) < 75.0


def test_server_that_says_it_has_no_room_is_not_away():
    server = Server(*([AWAY] * 6 + [no_room()]) * 20)

    assert server.ask() == "answer"
    assert sum(server.pauses) > 60.0


@pytest.mark.parametrize("failure", [no_room("out_of_memory"), InvalidInput("no such beam", field="options")])
def test_what_would_fail_the_next_time_too_is_not_tried_again(failure):
    with pytest.raises(type(failure)):
        Server(failure).ask()


def test_nobody_who_has_ended_waits():
    with pytest.raises(Overloaded):
        Server(no_room()).ask(pause=lambda _: False)
