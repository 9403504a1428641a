"""Pages on a real port: alone a reader gets a new one, in a crowd they share."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus

from service.front.http_server import CROWD, SHARED_FOR_S, HttpServer, Page


class Counting:
    """A page that says how often it was made."""

    def __init__(self) -> None:
        self.count = 0

    async def __call__(self) -> Page:
        self.count += 1
        number = self.count
        await asyncio.sleep(0)
        return Page(HTTPStatus.OK, b"%d\n" % number)


@asynccontextmanager
async def serving(page: Counting, now: list[float]) -> AsyncIterator[int]:
    server = HttpServer({"/metrics": page}, max_connections=64, clock=lambda: now[0])
    yield await server.start("127.0.0.1", 0)
    await server.stop()


async def read(port: int) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
    answer = await reader.read()
    writer.close()
    return answer.partition(b"\r\n\r\n")[2]


@asynccontextmanager
async def crowd(port: int) -> AsyncIterator[None]:
    """Connections that ask for nothing."""
    opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(CROWD)]
    yield
    for _, writer in opened:
        writer.close()


async def test_one_reader_after_the_other_gets_a_new_page():
    async with serving(Counting(), [0.0]) as port:
        assert [await read(port) for _ in range(3)] == [b"1\n", b"2\n", b"3\n"]


async def test_a_crowd_shares_a_page_for_a_moment():
    page, now = Counting(), [0.0]
    async with serving(page, now) as port:
        await read(port)
        async with crowd(port):
            shared = await asyncio.gather(*(read(port) for _ in range(20)))
            now[0] += SHARED_FOR_S + 0.01
            later = await read(port)

    assert (set(shared), later) == ({b"1\n"}, b"2\n")
