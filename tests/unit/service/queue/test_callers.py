"""Which class of work a caller gets."""

import pytest

from service.queue.callers import ANYBODY, Caller, Priority


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
