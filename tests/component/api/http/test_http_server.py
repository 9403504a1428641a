"""The HTTP server on a real port: what a peer may cost, and what an application's errors look like."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from service.addresses import Address
from service.api.http.server import MAX_HEAD_BYTES, HttpServer
from tests.fakes.logs import log

__all__ = ["log"]


class Pages:
    def routes(self) -> list[Route]:
        return [
            Route("/good", self.good),
            Route("/bad", self.bad),
        ]

    async def good(self, request: Request) -> Response:
        return PlainTextResponse("good\n")

    async def bad(self, request: Request) -> Response:
        raise ValueError("geheim")


class Peer:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer

    def send(self, data: bytes) -> "Peer":
        self.writer.write(data)
        return self

    def ask(self, path: str, *headers: str, method: str = "GET") -> "Peer":
        return self.send("\r\n".join([f"{method} {path} HTTP/1.1", "Host: x", *headers, "", ""]).encode())

    async def answer(self) -> bytes:
        """The next answer, head and body; empty when the connection ends first."""
        async with asyncio.timeout(10):
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                head = await self._reader.readuntil(b"\r\n\r\n")
                length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length: "))
                return head + await self._reader.readexactly(int(length[16:]))
        return b""

    async def rest(self) -> bytes:
        """Everything until the server ends the connection."""
        parts = []
        async with asyncio.timeout(10):
            with suppress(ConnectionError):
                while part := await self._reader.read(1 << 20):
                    parts.append(part)
        return b"".join(parts)


Connect = Callable[[], Awaitable[Peer]]


@asynccontextmanager
async def serving() -> AsyncIterator[Connect]:
    server = HttpServer(Pages().routes(), max_body_bytes=1_000, max_connections=64, timeout_s=30.0)
    port = await server.start(Address("127.0.0.1", 0))
    peers: list[Peer] = []

    async def connect() -> Peer:
        peers.append(Peer(*await asyncio.open_connection("127.0.0.1", port)))
        return peers[-1]

    yield connect
    await server.stop()
    for peer in peers:
        peer.writer.close()


async def test_connection_serves_one_request_after_the_other():
    async with serving() as connect:
        peer = await connect()
        answers = [await peer.ask("/good").answer() for _ in range(3)]
        head = peer.ask("/good", "Connection: close", method="HEAD")

        assert [answer.partition(b"\r\n\r\n")[2] for answer in answers] == [b"good\n"] * 3
        assert (await head.rest()).endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    ("request_line", "status", "words"),
    [
        ("GET /none", 404, b"try /good /bad\n"),
        ("GET /good/", 404, b"try "),
        ("POST /good", 405, b"Method Not Allowed\n"),
        ("DELETE /good", 405, b"Method Not Allowed\n"),
        ("GET /bad", 500, b"the log has the error\n"),
    ],
)
async def test_errors_are_a_line_of_text(request_line, status, words):
    method, path = request_line.split()
    async with serving() as connect:
        head, _, body = (await (await connect()).ask(path, method=method).answer()).partition(b"\r\n\r\n")

    assert int(head.split()[1]) == status
    assert body.startswith(words)


@pytest.mark.parametrize(
    "nonsense", [b"\r\n\r\n\r\n", b"\x00\xff\r\n\r\n", b"GET\r\n\r\n", b"GET /good HTTP/1.1\r\n\r\n"]
)
async def test_nonsense_and_a_missing_host_are_refused(nonsense):
    async with serving() as connect:
        answer = await (await connect()).send(nonsense).rest()
        other = await (await connect()).ask("/good").answer()

    assert answer.startswith(b"HTTP/1.1 400 ")
    assert other.endswith(b"good\n")


async def test_endless_head_is_refused():
    async with serving() as connect:
        answer = await (await connect()).send(b"GET /good HTTP/1.1\r\nX: " + b"x" * 2 * MAX_HEAD_BYTES).rest()

    assert answer[:13] in (b"", b"HTTP/1.1 400 ")
