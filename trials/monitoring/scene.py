"""What happens while Prometheus looks on: a calm load, an overload, a new version, an engine that dies.

The engine is a fake that answers 100 texts a second, so that the overload is one on every machine.
"""

import asyncio
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import grpc.aio

from protos import translation_pb2 as pb
from service.api.auth import generate_key
from service.cli.keys import append_entry, entry_of
from tests.fakes.calls import Calls, calling
from tests.fakes.echo_bundle import ModelRepository
from tests.fakes.load import Load, offer
from tests.fakes.load_process import Source
from tests.fakes.server_process import ServerProcess, start

CAPACITY = 100  # texts of 10 steps a second: 10 rows, steps of 10 ms
CALM_S = 5.0  # nothing happens, so that what follows is seen to begin
TEXTS_A_STREAM, AHEAD = 150, 2
BEAM = 1  # the other sources' too: hypotheses of other shapes would have steps of their own
CLIENTS = ("shop", "news")
TOO_LONG = "x" * 600  # characters, each a token; the bundle takes 512
TEXTS = ("abcdefgh", "abcd", "abcdefghijkl", "abcdefg", "abcdefghi")
LIMITS = {"DRAGOMAN_LIMITS__MAX_QUEUED_TOKENS": "2000", "DRAGOMAN_LIMITS__MAX_QUEUE_SECONDS": "1.5"}
PACED = {
    "DRAGOMAN_ENGINE__MAX_ROWS": "10",
    "ECHO_PACE_S": "0.01",
}


@dataclass(frozen=True, slots=True)
class Scene:
    server: ServerProcess
    repository: ModelRepository
    keys: dict[str, str]  # by client

    def metadata(self, client: str) -> tuple[tuple[str, str], ...]:
        return (("authorization", f"Bearer {self.keys[client]}"),)

    async def play(self, seconds: float, scratch: Path) -> Load:
        """All of it: a third calm, a sixth overload with a dying engine after it, the rest calm with a new version."""
        await asyncio.sleep(CALM_S)
        streaming = asyncio.create_task(self._stream())
        changing = asyncio.create_task(self._change(seconds))
        load = await offer(self.server.address, *self._sources(seconds), directory=scratch)
        await changing
        streaming.cancel()
        with suppress(asyncio.CancelledError):
            await streaming
        return load

    def _sources(self, seconds: float) -> Sequence[Source]:
        shop, news = (self.metadata(client) for client in CLIENTS)
        phases = ((0.25 * CAPACITY, seconds / 3), (2.5 * CAPACITY, seconds / 6), (0.35 * CAPACITY, seconds / 2))
        steady = ((0.1 * CAPACITY, seconds),)
        return (
            Source(phases=phases, texts=TEXTS, metadata=shop, cancel_share=0.1),
            Source(phases=steady, texts=TEXTS, metadata=news, priority=pb.PRIORITY_BATCH, timeout_s=20.0),
            Source(phases=steady, metadata=news, timeout_s=0.15),  # about what it takes: some are too late
            Source(phases=((1.0, seconds),), texts=(TOO_LONG,), metadata=news),
        )

    async def _stream(self) -> None:
        """A stream that gets a text whenever it has given an answer."""
        async with calling(self.server.address) as calls:
            while True:
                with suppress(grpc.aio.AioRpcError):
                    await self._one_stream(calls)
                await asyncio.sleep(1.0)

    async def _one_stream(self, calls: Calls) -> None:
        call = calls.translate_stream(metadata=self.metadata("news"))
        numbers = iter(range(TEXTS_A_STREAM))
        for number in islice(numbers, AHEAD):
            await call.write(_message(number))
        async for response in call:
            following = list(islice(numbers, len(response.translations)))
            for number in following:
                await call.write(_message(number))
            if not following:
                await call.done_writing()

    async def _change(self, seconds: float) -> None:
        await asyncio.sleep(0.6 * seconds)
        os.kill(self.server.engine_pids()[0], signal.SIGKILL)
        await asyncio.sleep(0.15 * seconds)
        await asyncio.to_thread(self.repository.put, "echo", "1.1.0")
        self.server.process.send_signal(signal.SIGHUP)


def _message(number: int) -> pb.TranslateStreamRequest:
    text = pb.StreamText(id=number, text=TEXTS[number % len(TEXTS)])
    settings = None if number else pb.StreamSettings(options=pb.TranslateOptions(beam_size=BEAM))
    return pb.TranslateStreamRequest(settings=settings, texts=[text])


@contextmanager
def staged(directory: Path) -> Iterator[Scene]:
    """The server with its model, and keys for its clients."""
    repository = ModelRepository(directory / "models")
    repository.directory.mkdir()
    bundle = repository.put("echo", "1.0.0")
    keys = {name: generate_key() for name in CLIENTS}
    for name, key in keys.items():
        append_entry(directory / "keys.toml", entry_of(key, name))
    with start(
        bundle,
        directory,
        DRAGOMAN_MODELS__DIRECTORY=str(repository.directory),
        DRAGOMAN_SECURITY__API_KEYS=str(directory / "keys.toml"),
        **LIMITS,
        **PACED,
    ) as server:
        yield Scene(server, repository, keys)
