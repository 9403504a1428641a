"""A client of HTTP/2 that keeps to no rule: frames made by hand on a plain socket.

Blocking and small: for floods, trickles and idle connections, which no proper client makes.
"""

import asyncio
import resource
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from hpack.hpack import encode_integer
from hyperframe.frame import DataFrame, Frame, GoAwayFrame, HeadersFrame, PingFrame, RstStreamFrame, SettingsFrame

from tests.fakes.load_process import TRANSLATE

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
CANCEL = 0x8
ENHANCE_YOUR_CALM = 0xB
_FRAME_HEADER = 9

Headers = Sequence[tuple[str, str]]


def call_headers(path: str = TRANSLATE, more: Headers = ()) -> bytes:
    """A gRPC call's header block, nothing of it indexed, so that it may be sent any number of times."""
    headers = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", path),
        (":authority", "localhost"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
        *more,
    ]
    return b"".join(b"\x00" + _string(name) + _string(value) for name, value in headers)


def _string(text: str) -> bytes:
    data = text.encode()
    return bytes(encode_integer(len(data), 7)) + data


def grpc_message(payload: bytes) -> bytes:
    """A message as it stands in DATA frames: not compressed, its length, itself."""
    return struct.pack("!BI", 0, len(payload)) + payload


def headers_frame(stream: int, block: bytes, *, is_end: bool = False) -> bytes:
    flags = ["END_HEADERS", "END_STREAM"] if is_end else ["END_HEADERS"]
    return HeadersFrame(stream, block, flags=flags).serialize()


def data_frame(stream: int, data: bytes, *, is_end: bool = False) -> bytes:
    return DataFrame(stream, data, flags=["END_STREAM"] if is_end else []).serialize()


def reset_frame(stream: int) -> bytes:
    return RstStreamFrame(stream, error_code=CANCEL).serialize()


def ping_frame() -> bytes:
    return PingFrame(0, opaque_data=b"01234567").serialize()


def settings_frame(settings: dict[int, int] | None = None) -> bytes:
    """These settings by number; where there is none, the defaults."""
    return SettingsFrame(0, settings=settings or {}).serialize()


class Peer:
    """One connection.  What the server sends is read by a thread, so that it never holds the server up."""

    def __init__(
        self,
        port: int,
        *,
        reads: bool = True,
        answers: bool = True,
        opening: bytes = PREFACE + SettingsFrame(0).serialize(),
        source: str = "127.0.0.1",
    ) -> None:
        """Connect and open HTTP/2.

        Args:
            reads: False for a peer that never takes anything in.
            answers: False for one that acknowledges neither pings nor settings.
            opening: what it sends first.
            source: the address that it calls from.
        """
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=120.0, source_address=(source, 0))
        self._answers = answers
        self._socket.sendall(opening)
        self.num_pings = 0  # from the server
        self.num_answered = 0  # of the pings to the server
        self.goaways: list[GoAwayFrame] = []
        self.is_closed = threading.Event()  # by the server
        self.num_streams = 0
        if reads:
            threading.Thread(target=self._read, daemon=True).start()

    def next_stream(self) -> int:
        self.num_streams += 1
        return 2 * self.num_streams - 1

    def send(self, data: bytes) -> bool:
        """Send these bytes; False when the server has closed the connection."""
        try:
            self._socket.sendall(data)
        except OSError:
            self.is_closed.set()
            return False
        return True

    async def farewell(self) -> tuple[int, bytes]:
        """Return error code and words of the last GOAWAY, once the server has closed the connection."""
        assert await asyncio.to_thread(self.is_closed.wait, 30)
        return self.goaways[-1].error_code, self.goaways[-1].additional_data

    def close(self) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _read(self) -> None:
        try:
            with self._socket.makefile("rb") as stream:
                self._socket.settimeout(None)
                for frame in _frames(stream.read):
                    if isinstance(frame, GoAwayFrame):
                        self.goaways.append(frame)
                    elif "ACK" in frame.flags or not self._answers:
                        self.num_answered += isinstance(frame, PingFrame)
                    elif isinstance(frame, SettingsFrame):
                        self.send(SettingsFrame(0, flags=["ACK"]).serialize())
                    elif isinstance(frame, PingFrame):
                        self.num_pings += 1
                        self.send(PingFrame(0, opaque_data=frame.opaque_data, flags=["ACK"]).serialize())
        except (OSError, ValueError):
            pass
        self.is_closed.set()


def _frames(read: Callable[[int], bytes]) -> Iterator[Frame]:
    while len(header := read(_FRAME_HEADER)) == _FRAME_HEADER:
        frame, length = Frame.parse_frame_header(memoryview(header))
        frame.parse_body(memoryview(read(length)))
        yield frame


def rapid_reset(peer: Peer, num_calls: int) -> int:
    """Begin calls and take each back in the same breath; how many were sent before the server closed."""
    block = call_headers()
    for sent in range(num_calls):
        stream = peer.next_stream()
        if not peer.send(headers_frame(stream, block) + reset_frame(stream)):
            return sent
    return num_calls


@contextmanager
def more_descriptors(count: int) -> Iterator[None]:
    """Lets this process open this many files and sockets, as far as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(soft, count), hard), hard))
    try:
        yield
    finally:
        with suppress(ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def idle_connection(port: int) -> socket.socket:
    """A connection that opens HTTP/2 and then says nothing."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=120.0)
    connection.sendall(PREFACE + settings_frame())
    return connection


def is_open(connection: socket.socket) -> bool:
    """Whether the other end has not closed it; takes in what came."""
    connection.setblocking(False)
    try:
        while data := connection.recv(65_536):
            del data
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def num_open_files(pid: int) -> int:
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
