"""As much HTTP/2 as it takes to misbehave: frames over a plain socket (RFC 9113)."""

import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY = 0, 1, 3, 4, 6, 7
ACK = 0x1
END_HEADERS = 0x4
ENHANCE_YOUR_CALM = 0xB


@dataclass(frozen=True)
class Frame:
    kind: int
    flags: int
    stream: int
    payload: bytes

    def to_bytes(self) -> bytes:
        length = struct.pack(">I", len(self.payload))[1:]
        return length + bytes([self.kind, self.flags]) + struct.pack(">I", self.stream) + self.payload


class Connection:
    """One connection that does only what it is told: it answers no ping and acknowledges nothing."""

    def __init__(self, port: int, *, timeout_s: float = 30.0) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def open(self) -> None:
        """Send what every connection begins with."""
        self.send_bytes(PREFACE)
        self.send(Frame(SETTINGS, 0, 0, b""))

    def acknowledge_settings(self) -> None:
        """Accept whatever the server's settings are."""
        self.send(Frame(SETTINGS, ACK, 0, b""))

    def send(self, *frames: Frame) -> None:
        self.send_bytes(b"".join(frame.to_bytes() for frame in frames))

    def send_bytes(self, data: bytes) -> None:
        self._socket.sendall(data)

    def begin_call(self, path: str, stream: int = 1) -> None:
        """Send the headers of a gRPC call, uncompressed, and nothing of its message."""
        fields = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "localhost")]
        fields += [("te", "trailers"), ("content-type", "application/grpc")]
        block = b"".join(b"\x00" + _string(name) + _string(value) for name, value in fields)  # RFC 7541, 6.2.2
        self.send(Frame(HEADERS, END_HEADERS, stream, block))

    def frames(self) -> Iterator[Frame]:
        """What comes back until the server closes the connection; raises TimeoutError if it does not."""
        received = b""
        while data := self._receive():
            received += data
            while len(received) >= 9 and len(received) >= (end := 9 + int.from_bytes(received[:3], "big")):
                stream = int.from_bytes(received[5:9], "big") & 0x7FFFFFFF
                yield Frame(received[3], received[4], stream, received[9:end])
                received = received[end:]

    def _receive(self) -> bytes:
        try:
            return self._socket.recv(65_536)
        except ConnectionResetError:
            return b""


def ping() -> Frame:
    return Frame(PING, 0, 0, b"8 octets")


def farewell(frames: Iterator[Frame]) -> tuple[int, str]:
    """Error code and words of the last GOAWAY before the connection ends."""
    (*_, last) = (frame for frame in frames if frame.kind == GOAWAY)
    return int.from_bytes(last.payload[4:8], "big"), last.payload[8:].decode()


def _string(text: str) -> bytes:
    assert len(text) < 127
    return bytes([len(text)]) + text.encode()
