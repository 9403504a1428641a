"""A page is written once for all who ask meanwhile; alone a reader gets a new one, a crowd shares one for a moment."""

import asyncio
from collections.abc import Iterator

from service.api.http.server_status import CROWD, SHARED_FOR_S, SharedPage


class Counting:
    """Writes how often the page was begun, and fails where it is told to."""

    def __init__(self, *, fails_at: int = 0) -> None:
        self.count = 0
        self._fails_at = fails_at

    def __call__(self) -> Iterator[bytes]:
        self.count += 1
        if self.count == self._fails_at:
            raise ValueError
        yield b"page %d" % self.count


async def test_crowd_shares_a_page_for_a_moment():
    now = [0.0]
    page = SharedPage(Counting(), clock=lambda: now[0])

    together = await asyncio.gather(*(page.read() for _ in range(CROWD + 1)))
    now[0] = SHARED_FOR_S
    soon = await page.read()
    now[0] = SHARED_FOR_S + 0.01
    later = await page.read()

    assert (set(together), soon, later) == ({b"page 1"}, b"page 1", b"page 2")


async def test_page_that_fails_is_an_error_for_its_readers_and_the_next_one_is_new():
    page = SharedPage(Counting(fails_at=1))

    outcomes = await asyncio.gather(*(page.read() for _ in range(CROWD + 1)), return_exceptions=True)

    assert {type(outcome) for outcome in outcomes} == {ValueError}
    assert await page.read() == b"page 2"
