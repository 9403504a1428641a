"""Sends fuzzed messages over one connection as fast as they are answered; a process of its own.

Arguments: address, messages, seed.  Prints a JSON line every half second, and at the end: messages sent by kind, how
many of them reached admission, how many calls and streams ended with each code.
"""

import asyncio
import json
import random
import sys
import time
from collections import Counter
from contextlib import suppress
from typing import Any

import grpc
import grpc.aio

from tests.fakes.load_process import CHANNEL_OPTIONS, TRANSLATE
from trials.fuzz.messages import conversation, message

CALLERS = 24  # calls at a time
STREAM = "/dragoman.v1.TranslationService/TranslateStream"
STREAM_SHARE = 0.03  # of calls and streams; a stream has ten times a call's messages
TIMEOUT_S = 30.0
REPORT_S = 0.5
# grpc.aio gives a stream this status, its own and not the server's, when a write is the first to notice that the call
# has ended; what the server said is lost.  The server's books say what it was, and those are judged too.
LOST = (grpc.StatusCode.INTERNAL, "Internal error from Core")


class Worker:
    def __init__(self, channel: grpc.aio.Channel, num_messages: int, seed: int) -> None:
        self._call: Any = channel.unary_unary(TRANSLATE, None, None)
        self._stream: Any = channel.stream_stream(STREAM, None, None)
        self._left = num_messages
        self._seeded = random.Random(seed)
        self._codes: Counter[str] = Counter()
        self._kinds: Counter[str] = Counter()
        self._num_admitted = 0

    async def run(self) -> None:
        await asyncio.gather(*(self._keep_sending() for _ in range(CALLERS)))

    async def _keep_sending(self) -> None:
        while self._left > 0:
            if self._seeded.random() < STREAM_SHARE:
                await self._send_stream(conversation(self._seeded))
            else:
                await self._send(*message(self._seeded))

    async def _send(self, kind: str, data: bytes) -> None:
        self._left -= 1
        self._kinds[kind] += 1
        call = self._call(data, timeout=TIMEOUT_S)
        code, details = await call.code(), await call.details()
        self._codes[code.name] += 1
        self._num_admitted += not _is_malformed(details or "")

    async def _send_stream(self, messages: list[tuple[str, bytes]]) -> None:
        self._left -= len(messages)
        self._kinds.update(kind for kind, _ in messages)
        stream = self._stream(timeout=TIMEOUT_S)
        reading = asyncio.create_task(_read_to_the_end(stream))
        with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):  # it has ended; its code says why
            for _, data in messages:
                await stream.write(data)
            await stream.done_writing()
        await reading
        code, details = await stream.code(), await stream.details()
        self._codes["stream lost by the client" if (code, details) == LOST else f"stream {code.name}"] += 1
        if code is grpc.StatusCode.OK:  # of others it is not known how many were read: none is counted
            self._num_admitted += len(messages)

    def report(self) -> None:
        print(json.dumps({"kinds": self._kinds, "admitted": self._num_admitted, "codes": self._codes}), flush=True)


async def _read_to_the_end(stream: Any) -> None:
    """Take in the answers while messages are being written: who does not read is not written to."""
    with suppress(grpc.aio.AioRpcError):
        async for _ in stream:
            pass


def _is_malformed(details: str) -> bool:
    """Whether the server could make no message of the bytes (codec.py), so that admission saw nothing."""
    return details.startswith("the request is not a valid ") or details.endswith(" is not valid UTF-8")


async def main(address: str, num_messages: int, seed: int) -> None:
    """Send, and report now and then."""
    async with grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS) as channel:
        await asyncio.wait_for(channel.channel_ready(), 30)
        worker = Worker(channel, num_messages, seed)
        sending = asyncio.create_task(worker.run())
        while not sending.done():
            began = time.monotonic()
            await asyncio.wait([sending], timeout=REPORT_S)
            if time.monotonic() - began >= REPORT_S / 2:
                worker.report()
        sending.result()
        worker.report()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
