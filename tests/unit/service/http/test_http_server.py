"""Pages on a real port: alone a reader gets a new one, in a crowd they share."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus

from service.http.http_server import CROWD, SHARED_FOR_S, HttpServer, Page


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


async def dropped(reader: asyncio.StreamReader) -> bool:
    """Whether the server ends the connection without an answer."""
    async with asyncio.timeout(2.0):  # less than a server waits for a request
        try:
            return await reader.read() == b""
        except ConnectionError:
            return True


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


async def test_connection_that_has_asked_for_nothing_makes_room_for_who_comes_the_oldest_first():
    server = HttpServer({"/metrics": Counting()}, max_connections=3)
    port = await server.start("127.0.0.1", 0)
    idle = []
    for begun in (b"", b"GET /metrics HTTP/1.1\r\n", b""):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(begun)
        idle.append((reader, writer))

    assert await read(port) == b"1\n"
    idle[1][1].write(b"\r\n")
    idle[2][1].write(b"GET /metrics HTTP/1.1\r\n\r\n")

    assert await dropped(idle[0][0])
    assert [await reader.readline() for reader, _ in idle[1:]] == [b"HTTP/1.1 200 OK\r\n"] * 2
    for _, writer in idle:
        writer.close()
    await server.stop()


async def test_connection_that_waits_for_its_answer_makes_no_room():
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def page() -> Page:
        begun.set()
        await may_end.wait()
        return Page(HTTPStatus.OK, b"good\n")

    server = HttpServer({"/metrics": page}, max_connections=1)
    port = await server.start("127.0.0.1", 0)
    first = asyncio.create_task(read(port))
    await begun.wait()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    refused = await dropped(reader)
    may_end.set()

    assert (refused, await first) == (True, b"good\n")
    writer.close()
    await server.stop()


async def test_page_that_is_being_written_is_for_all_who_ask_meanwhile_and_outlives_the_first():
    begun, may_end, count = asyncio.Event(), asyncio.Event(), 0

    async def page() -> Page:
        nonlocal count
        count += 1
        begun.set()
        await may_end.wait()
        return Page(HTTPStatus.OK, b"%d\n" % count)

    server = HttpServer({"/metrics": page}, max_connections=64, timeout_s=1.5)
    port = await server.start("127.0.0.1", 0)
    first = asyncio.create_task(read(port))
    await begun.wait()
    gave_up = await first
    second = asyncio.create_task(read(port))
    asyncio.get_running_loop().call_later(0.05, may_end.set)

    assert (gave_up, await second) == (b"", b"1\n")
    await server.stop()


async def test_page_that_fails_is_an_error_for_its_reader_and_the_next_one_is_made_anew():
    outcomes = [ValueError("no"), None]

    async def page() -> Page:
        if error := outcomes.pop(0):
            raise error
        return Page(HTTPStatus.OK, b"good\n")

    server = HttpServer({"/metrics": page}, max_connections=64)
    port = await server.start("127.0.0.1", 0)

    assert [await read(port), await read(port)] == [b"the log has the error\n", b"good\n"]
    await server.stop()
