"""The process of one edge: what starts it, and its life.

It does what the core tells it, and ends with the core.  The core imports this module to start edges, so that gRPC is
loaded inside `main` only.
"""

import asyncio
import os
import socket
import sys
import time
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from service.edges.link import CoreLink
from service.edges.messages import Ask, Calls, Counted, EdgeSpec, Finish, Finished, Idle, Offer, ServingState, SetLevel
from service.engine.job import Ready, StartFailed
from service.engine.process import bind_to_parent, offer_to_be_killed
from service.processes.channel import FrameChannel
from service.server.model_hosting import TOKENIZER_THREADS, counted_methods
from service.server.process import MONITOR_PERIOD_S, install_stack_dump, spare_what_is_loaded
from service.telemetry.logs import configure_logging, describe_error, get_logger, log_libraries, set_log_level
from service.telemetry.metrics import Metrics
from service.translation.account import Account

if TYPE_CHECKING:
    from service.server.edge_server import EdgeServer

_KILLED_SECOND = 450  # see `offer_to_be_killed`: an edge costs its connections, an engine a moment, the core everything


def command_line(descriptor: int) -> list[str]:
    """Return how to start an edge process that talks over this inherited socket."""
    return [sys.executable, "-P", "-c", f"from service.server.edge_process import main; main({descriptor})"]


def main(descriptor: int) -> None:
    """Live as an edge until the core says that it is enough, or is gone."""
    bind_to_parent()
    offer_to_be_killed(_KILLED_SECOND)
    import uvloop  # noqa: PLC0415 - see the module's docstring

    _load()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_live(descriptor))


def _load() -> None:
    """Load what every edge needs, before it is told which one it is: a spare one then serves at once."""
    import service.http.whole_server  # noqa: PLC0415 - see the module's docstring
    import service.server.edge_server  # noqa: F401, PLC0415 - likewise
    from service.documents.formats import load_readers  # noqa: PLC0415 - likewise
    from service.text.detector import load_ahead  # noqa: PLC0415 - likewise

    load_readers()
    load_ahead()


async def _live(descriptor: int) -> None:
    _, channel = await asyncio.get_running_loop().create_connection(FrameChannel, sock=socket.socket(fileno=descriptor))
    spec = await channel.read()
    if not isinstance(spec, EdgeSpec):  # the core went away at once
        return
    from service.addresses import ListenError  # noqa: PLC0415 - see the module's docstring
    from service.http.whole_server import LinkedServer, WholeServer  # noqa: PLC0415 - likewise
    from service.server.edge_server import EdgeServer  # noqa: PLC0415 - likewise

    config = spec.config
    metrics = Metrics(methods=counted_methods())
    configure_logging(config.telemetry, on_drop=metrics.families.log_dropped.inc)
    log_libraries()
    account, link = Account(metrics), CoreLink(channel.send, config.limits)
    try:
        executor = ThreadPoolExecutor(TOKENIZER_THREADS, thread_name_prefix="tokenizer")
        whole = cast(WholeServer, LinkedServer(link.ask))
        server = EdgeServer(config, link, metrics, account, executor, whole, is_shared=True)
        process = EdgeProcess(channel, link, server, metrics, account)
        await link.load(spec.offer)
        await server.set_state(spec.state)
        await server.listen()
    except (ValueError, ListenError) as error:
        channel.send(StartFailed(str(error)))
        await channel.hand_on(lambda _: None)  # until the core has read it
        return
    spare_what_is_loaded()
    channel.send(Ready())
    install_stack_dump()
    counting = asyncio.create_task(process.count_often())
    await channel.hand_on(process.take)
    counting.cancel()
    os._exit(0)  # the core is gone: nobody waits for anything any more


class EdgeProcess:
    """Does what the core says."""

    def __init__(
        self, channel: FrameChannel, link: CoreLink, server: "EdgeServer", metrics: Metrics, account: Account
    ) -> None:
        self._send = channel.send
        self._link = link
        self._server = server
        self._metrics = metrics
        self._account = account
        self._tasks: set[asyncio.Task[None]] = set()

    def take(self, record: object) -> None:
        """Take what the core says."""
        match record:
            case ServingState():
                self._start(self._set_state(record))
            case Offer():
                self._start(self._link.switch(record))
            case Ask(number, most):
                self._start(self._answer(number, most))
            case SetLevel(level):
                set_log_level(level)
            case Finish():
                self._start(self._finish())
            case _:
                self._link.take(record)

    async def count_often(self) -> None:
        """Say again and again what was counted, which is also the sign of life."""
        while True:
            expected = time.monotonic() + MONITOR_PERIOD_S
            await asyncio.sleep(MONITOR_PERIOD_S)
            self._metrics.observe_lag(max(0.0, time.monotonic() - expected))
            self._count()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._end)

    def _end(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):  # as when a bundle is gone
            get_logger().error("edge_failed", **describe_error(error))
            os._exit(1)  # the core would believe that this edge does what it says

    async def _set_state(self, state: ServingState) -> None:
        await self._server.set_state(state)
        if state.is_draining and state.refusal is not None:
            await self._server.all_left()
            self._send(Idle())

    async def _answer(self, number: int, most: int) -> None:
        calls, num_calls = await self._server.calls(most)
        self._count()
        sent = tuple(replace(call, on_gone=None) for call in calls)  # which does not cross
        self._send(Calls(number, sent, num_calls))

    async def _finish(self) -> None:
        await self._server.finish()
        self._count()
        self._send(Finished())

    def _count(self) -> None:
        self._send(Counted(self._metrics.snapshot(), self._account.take(), self._metrics.recent_lag_s))
