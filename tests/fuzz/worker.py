"""Sends fuzzed messages over one connection as fast as they are answered; a process of its own.

Arguments: address, messages, seed.  Prints a JSON line every half second, and at the end: messages sent, how many of
them parse, how many ended with each code.
"""

import asyncio
import json
import random
import sys
import time
from collections import Counter
from typing import Any

import grpc
import grpc.aio

from tests.fakes.load_process import CHANNEL_OPTIONS, TRANSLATE
from tests.fuzz.messages import message, parses

CALLERS = 24  # calls at a time
STREAM = "/dragoman.v1.TranslationService/TranslateStream"
STREAM_SHARE = 0.03  # of the messages, a few of which share a stream
TIMEOUT_S = 30.0
REPORT_S = 0.5


class Worker:
    """One connection."""

    def __init__(self, channel: grpc.aio.Channel, num_messages: int, seed: int) -> None:
        self._call: Any = channel.unary_unary(TRANSLATE, None, None)
        self._stream: Any = channel.stream_stream(STREAM, None, None)
        self._left = num_messages
        self._has_streams = False
        self._seeded = random.Random(seed)
        self.codes: Counter[str] = Counter()
        self.num_sent = self.num_parsed = 0

    async def run(self) -> None:
        """Send everything."""
        empty = self._stream(timeout=TIMEOUT_S)
        await empty.done_writing()
        self._has_streams = await empty.code() is not grpc.StatusCode.UNIMPLEMENTED
        await asyncio.gather(*(self._keep_sending() for _ in range(CALLERS)))

    async def _keep_sending(self) -> None:
        while self._left > 0:
            if self._has_streams and self._seeded.random() < STREAM_SHARE / 3:
                await self._send_stream(self._seeded.randint(1, 5))
            else:
                self._left -= 1
                call = self._call(self._next(), timeout=TIMEOUT_S)
                self.codes[(await call.code()).name] += 1

    async def _send_stream(self, count: int) -> None:
        """Some messages on a stream; the first bad one ends it."""
        self._left -= count
        stream = self._stream(timeout=TIMEOUT_S)
        try:
            for _ in range(count):
                await stream.write(self._next())
            await stream.done_writing()
            async for _ in stream:
                pass
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            pass  # its code says why
        self.codes[f"stream {(await stream.code()).name}"] += 1

    def _next(self) -> bytes:
        data = message(self._seeded)
        self.num_sent += 1
        self.num_parsed += parses(data)
        return data

    def report(self) -> None:
        """Print where it stands."""
        print(json.dumps({"sent": self.num_sent, "parsed": self.num_parsed, "codes": self.codes}), flush=True)


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
