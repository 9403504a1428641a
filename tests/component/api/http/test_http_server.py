"""The HTTP server on a real port: what a peer may cost, and what an application's errors look like."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from service.addresses import Address
from service.api.http.server import MAX_HEAD_BYTES, PIECE_BYTES, HttpServer
from tests.fakes.logs import log

__all__ = ["log"]

MAX_BODY_BYTES = 1_000
SHORT_S = 0.2


class Pages:
    """`/large` is more than the buffers of a connection hold."""

    def routes(self) -> list[Route]:
        return [
            Route("/good", self.good),
            Route("/large", self.large),
            Route("/bad", self.bad),
            Route("/echo", self.echo, methods=["POST"]),
        ]

    async def good(self, request: Request) -> Response:
        return PlainTextResponse("good\n")

    async def large(self, request: Request) -> Response:
        return Response(bytes(32 << 20))

    async def bad(self, request: Request) -> Response:
        raise ValueError("geheim")

    async def echo(self, request: Request) -> Response:
        return Response(await request.body())


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
async def serving(*, max_connections: int = 64, timeout_s: float = 30.0) -> AsyncIterator[Connect]:
    server = HttpServer(
        Pages().routes(), max_body_bytes=MAX_BODY_BYTES, max_connections=max_connections, timeout_s=timeout_s
    )
    port = await server.start(Address("127.0.0.1", 0), "HTTP")
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
        ("GET /none", 404, b"there is no such page; there are /good /large /bad /echo\n"),
        ("GET /good/", 404, b"there is no such page; "),
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


@pytest.mark.parametrize(
    "begun",
    [
        b"",
        b"GET /good HTTP/1.1\r\nHost: x\r\n",
        b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhalf",
        b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
    ids=["silent", "slow head", "slow body", "slow reader"],
)
async def test_peer_that_keeps_the_server_waiting_loses_its_connection(begun):
    async with serving(timeout_s=SHORT_S) as connect:
        peer = (await connect()).send(begun)
        await asyncio.sleep(3 * SHORT_S)

        assert len(await peer.rest()) < 32 << 20


async def test_bytes_that_complete_no_request_win_no_time():
    async with serving(timeout_s=SHORT_S) as connect:
        peer = (await connect()).send(b"GET /good HTTP/1.1\r\n")
        with suppress(ConnectionError):
            for _ in range(20):
                await asyncio.sleep(SHORT_S / 4)
                peer.send(b"X")
                await peer.writer.drain()

        assert await peer.rest() == b""


async def test_body_that_goes_on_after_its_refusal_wins_no_time():
    chunk = b"%x\r\n%b\r\n" % (PIECE_BYTES, bytes(PIECE_BYTES))
    async with serving(timeout_s=SHORT_S) as connect:
        peer = (await connect()).ask("/echo", "Transfer-Encoding: chunked", method="POST")
        with suppress(ConnectionError):
            for _ in range(100):
                await peer.send(chunk).writer.drain()
                await asyncio.sleep(SHORT_S / 10)

        assert peer.writer.is_closing()


async def test_the_peer_that_keeps_the_server_waiting_longest_makes_room():
    async with serving(max_connections=3) as connect:
        idle = [
            await connect(),
            (await connect()).send(b"GET /good HTTP/1.1\r\nHost: x\r\n"),
            (await connect()).ask("/good"),
        ]
        await idle[2].answer()

        assert (await (await connect()).ask("/good").answer()).endswith(b"good\n")
        assert await idle[0].rest() == b""
        assert (await idle[1].send(b"\r\n").answer()).endswith(b"good\n")
        assert (await idle[2].ask("/good").answer()).endswith(b"good\n")
