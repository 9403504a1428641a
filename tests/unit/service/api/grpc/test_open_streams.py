"""Places for streams that need no key: everybody has a share, whatever the others take."""

from contextlib import ExitStack

import pytest

from service.api.grpc.handlers import OpenStreams
from service.errors import Overloaded

MANY = 1_000


class Taken:
    """Places that are held until the test ends."""

    def __init__(self, limit: int) -> None:
        self.streams = OpenStreams(limit)
        self.stack = ExitStack()

    def take(self, client: str, connection: str, at_most: int = MANY) -> int:
        """Take as many places as there are for one connection, and return how many they were."""
        for taken in range(at_most):
            try:
                self.stack.enter_context(self.streams.place(("peer", client), f"{client}:{connection}"))
            except Overloaded:
                return taken
        return at_most


def test_one_connection_may_take_all_places_that_nobody_else_wants():
    assert Taken(100).take("a", "1") == 100


@pytest.mark.parametrize("client", ["a", "b"])
def test_connection_cannot_take_the_places_of_others(client):
    taken = Taken(100)
    taken.take("a", "1")

    assert [taken.take(client, str(number), 10) for number in range(2, 6)] == [10, 10, 10, 10]


def test_many_connections_of_one_client_cannot_take_the_places_of_other_clients():
    taken = Taken(100)
    for number in range(MANY):
        taken.take("a", str(number))

    assert [taken.take(client, "1", 5) for client in "bcdefghij"] == [5] * 9


def test_no_more_than_twice_the_limit_are_ever_open():
    taken = Taken(100)

    assert sum(taken.take(str(number), "1") for number in range(MANY)) == 200
