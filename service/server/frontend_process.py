"""The process of a frontend: it does what the scheduler process asks, and ends with it."""

import asyncio
import os
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import uvloop

from service.addresses import ListenError
from service.api.http.document_jobs import JobStatus
from service.api.http.fields import File
from service.api.http.server_status import ServerStatus
from service.call import Identity
from service.config import ServerConfig
from service.documents.formats import load_readers
from service.engine.wire import Ready, StartFailed
from service.processes.rpc import FrameChannel, Peer
from service.server.frontend import Frontend, ServingState
from service.server.model_hosting import TOKENIZER_THREADS, counted_methods
from service.server.process import MONITOR_PERIOD_S, install_stack_dump, spare_what_is_loaded
from service.server.remote_scheduler import OfferedModel, RemoteScheduler, SchedulerService
from service.telemetry.logs import configure_logging, log_libraries, set_log_level
from service.telemetry.metrics import Metrics
from service.text.detector import load_ahead
from service.translate.usage import UsageMeter


class FrontendSpec(NamedTuple):
    """What the process is told first."""

    config: ServerConfig  # with the ports that the scheduler process has reserved
    models: tuple[OfferedModel, ...]
    state: ServingState


def main(descriptor: int) -> None:
    """Live as a frontend until the scheduler process, at the other end of this socket, ends it or is gone."""
    load_readers()  # what every frontend needs, before it is told which one it is: a spare one then serves at once
    load_ahead()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_live(descriptor))


async def _live(descriptor: int) -> None:
    _, channel = await asyncio.get_running_loop().create_connection(FrameChannel, sock=socket.socket(fileno=descriptor))
    spec = await channel.read()
    if not isinstance(spec, FrontendSpec):  # the scheduler process went away at once
        return
    config, metrics = spec.config, Metrics(methods=counted_methods())
    configure_logging(config.telemetry, on_drop=metrics.families.log_dropped.inc)
    log_libraries()
    usage_meter, peer = UsageMeter(metrics), Peer(channel.send)
    scheduler, process = RemoteScheduler(peer, config.limits), ThisProcess(peer, metrics, usage_meter)
    executor = ThreadPoolExecutor(TOKENIZER_THREADS, thread_name_prefix="tokenizer")
    try:
        frontend = Frontend(config, scheduler, metrics, usage_meter, executor, RemoteStatus(peer), is_shared=True)
        peer.serve({Frontend: frontend, RemoteScheduler: scheduler, ThisProcess: process})
        await scheduler.offer(spec.models)
        await frontend.set_state(spec.state)
        await frontend.listen()
    except (ValueError, ListenError) as error:
        channel.send(StartFailed(str(error)))
        await channel.hand_on(lambda _: None)  # until the scheduler process has read it
        return
    spare_what_is_loaded()
    channel.send(Ready())
    install_stack_dump()
    counting = asyncio.create_task(process.count_often())
    await channel.hand_on(peer.take)
    counting.cancel()
    os._exit(0)  # the scheduler process is gone: nobody waits for anything any more


class ThisProcess:
    """What the scheduler process asks of this process, beside the frontend and the models that it has."""

    def __init__(self, peer: Peer, metrics: Metrics, usage_meter: UsageMeter) -> None:
        self._peer = peer
        self._metrics = metrics
        self._usage_meter = usage_meter

    async def count(self) -> None:
        """Return when the scheduler process has been sent what this one has counted."""
        lag_s = self._metrics.recent_lag_s
        self._peer.tell(SchedulerService.counted, self._metrics.snapshot(), self._usage_meter.take(), lag_s)

    async def count_often(self) -> None:
        """Do that again and again, which is also the sign of life."""
        while True:
            expected = time.monotonic() + MONITOR_PERIOD_S
            await asyncio.sleep(MONITOR_PERIOD_S)
            self._metrics.observe_lag(max(0.0, time.monotonic() - expected))
            await self.count()

    def set_log_level(self, level: str) -> None:
        """Log events of this level and above."""
        set_log_level(level)


class RemoteStatus(ServerStatus):
    """The status of the server, which the scheduler process knows."""

    def __init__(self, peer: Peer) -> None:
        """Ask `peer`, the scheduler process."""
        self._peer = peer

    async def page(self) -> bytes:
        return await self._peer.call(ServerStatus.page)

    async def is_ready(self) -> bool:
        return await self._peer.call(ServerStatus.is_ready)

    async def is_alive(self) -> bool:
        return await self._peer.call(ServerStatus.is_alive)

    async def busyness(self) -> dict[str, float]:
        return await self._peer.call(ServerStatus.busyness)

    async def characters_of(self, client: str) -> int:
        return await self._peer.call(ServerStatus.characters_of, client)

    async def card_of(self, model: str) -> str | None:
        return await self._peer.call(ServerStatus.card_of, model)

    async def keep(self, file: File) -> str:
        return await self._peer.call(ServerStatus.keep, file)

    async def find(self, name: str) -> File | None:
        return await self._peer.call(ServerStatus.find, name)

    async def begin_document(self, owner: Identity) -> tuple[str, str]:
        return await self._peer.call(ServerStatus.begin_document, owner)

    async def note_document(self, name: str, status: JobStatus) -> None:
        await self._peer.call(ServerStatus.note_document, name, status)

    async def find_document(self, name: str, key: str) -> JobStatus | None:
        return await self._peer.call(ServerStatus.find_document, name, key)
