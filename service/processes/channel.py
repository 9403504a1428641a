"""Records in the frames of `engine/job.py` over a socket, in an event loop."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, cast

from service.engine.job import FRAME_HEADER_BYTES, frame_length, from_payload, to_frame


class FrameChannel(asyncio.Protocol):
    """One end of a socket: records come in, one at a time or handed to a function, and go out."""

    def __init__(self) -> None:
        self.num_received = 0  # records, so far
        self._transport: asyncio.Transport | None = None
        self._outgoing: list[bytes] = []  # frames
        self._bytes = bytearray()  # of a record that is not complete
        self._records: deque[object] = deque()  # that nobody has taken
        self._take: Callable[[Any], None] | None = None
        self._error: Exception | None = None
        self._has_ended = False
        self._news = asyncio.Event()

    def send(self, record: object) -> None:
        """Send a record, with all others of this moment; what the other side cannot take in is lost with it."""
        if not self._outgoing:
            asyncio.get_running_loop().call_soon(self._flush)
        self._outgoing.append(to_frame(record))

    async def read(self) -> object | None:
        """Return the next record, None at the end; raise what unpickling raised if it is none."""
        while not self._records and not self._has_ended:
            self._news.clear()
            await self._news.wait()
        if self._records:
            return self._records.popleft()
        if self._error is not None:
            raise self._error
        return None

    async def hand_on(self, take: Callable[[Any], None]) -> None:
        """Give each record to `take` as soon as it is there, until the end; raise what `take` raised, which ends it."""
        while self._records and not self._has_ended:
            self._give(take, self._records.popleft())
        self._take = take
        while not self._has_ended:
            self._news.clear()
            await self._news.wait()
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """Close the socket; what was sent still goes out."""
        self._flush()
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass

    def data_received(self, data: bytes) -> None:
        self._bytes += data
        begin = 0
        while not self._has_ended and len(self._bytes) - begin >= FRAME_HEADER_BYTES:
            payload = begin + FRAME_HEADER_BYTES
            end = payload + frame_length(bytes(self._bytes[begin:payload]))
            if end > len(self._bytes):
                break
            self._receive(bytes(self._bytes[payload:end]))
            begin = end
        del self._bytes[:begin]

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(None)

    def _flush(self) -> None:
        """Write everything at once: each write wakes the other side."""
        if self._outgoing and self._transport is not None and not self._transport.is_closing():
            self._transport.write(b"".join(self._outgoing))
        self._outgoing.clear()

    def _receive(self, payload: bytes) -> None:
        try:
            record = from_payload(payload)
        except Exception as error:  # noqa: BLE001 - whatever bytes make of it: `read` raises it
            self._end(error)
            return
        self.num_received += 1
        if self._take is not None:
            self._give(self._take, record)
        else:
            self._records.append(record)
            self._news.set()

    def _give(self, take: Callable[[Any], None], record: object) -> None:
        try:
            take(record)
        except Exception as error:  # noqa: BLE001 - `hand_on` raises it
            self._end(error)

    def _end(self, error: Exception | None) -> None:
        self._error = self._error or error
        self._has_ended = True
        self._news.set()
