"""The life of a server, as its scheduler process leads it.

    start   check files, ports and bundles; start the engines, and meanwhile make the other parts; bind the ports; test
            the models; write the ports file; let calls find the models; say SERVING
    stop    say NOT_SERVING, and make no more reloads; wait for the drain delay; refuse new calls; let accepted calls
            finish within the grace period; end the engines; send what is still to be sent; end the process with its
            connections open

When a step of the start fails, everything that was started ends, and one line says why.  A signal during the start
leads straight to the last step of the stop.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from model.files import writing
from service.addresses import Address, ListenError
from service.config import ServerConfig
from service.errors import DragomanError, Unavailable
from service.server.checks import check_files, check_ports
from service.server.model_hosting import ModelParts
from service.server.process import (
    ServingState,
    install_stack_dump,
    observe_event_loop,
    spare_what_is_loaded,
    stop_event,
    use_limits,
)
from service.telemetry.logs import LogStream, configure_logging, get_logger, log_libraries

if TYPE_CHECKING:
    from service.server.parts import Parts

EXIT_OK, EXIT_FAILED, EXIT_MISCONFIGURED = 0, 1, 2


class Misconfigured(Exception):
    """The server cannot start with these settings; `str(error)` says why."""


async def serve(config: ServerConfig) -> int:
    """Serve until a signal comes, which ends the process with exit status 0; return the status of a start that failed.

    The status is 2 when no bundle, or not the certificate or the file of API keys, can be used, and 1 when a port is
    taken or no engine starts.  The reason is one line on standard error.
    """
    stop = stop_event()
    install_stack_dump()
    try:
        models = ModelParts(config)
        configure_logging(config.telemetry, on_drop=models.metrics.families.log_dropped.inc)
        log_libraries()
        use_limits()
        if config.lifecycle.ports_file is not None:
            _forget_ports(config.lifecycle.ports_file)
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, models.reloader.request)
        await Server(config, models).live(stop)
    except (Misconfigured, ListenError, DragomanError) as error:
        LogStream(sys.stderr).write(f"dragoman: {' '.join(str(error).split())}\n")
        return EXIT_MISCONFIGURED if isinstance(error, Misconfigured) else EXIT_FAILED


class Server:
    """Takes all parts of a server through its life."""

    def __init__(self, config: ServerConfig, models: ModelParts) -> None:
        self._config = config
        self._models = models
        self._parts: Parts | None = None  # until the start has made them
        self._log = get_logger()

    async def live(self, stop: asyncio.Event) -> NoReturn:
        """Start, serve until `stop` is set, stop, and end the process; raises what keeps the server from starting."""
        starting, stopping = asyncio.create_task(self._start()), asyncio.create_task(stop.wait())
        try:
            await asyncio.wait([starting, stopping], return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                await self._serve_until(stopping, starting.result())
            else:
                starting.cancel()
                await asyncio.gather(starting, return_exceptions=True)
        except BaseException:
            starting.cancel()
            stopping.cancel()
            await asyncio.gather(starting, stopping, return_exceptions=True)
            await self._give_up()
            raise
        await self._end()

    async def _start(self) -> "Parts":
        """Return when the server accepts calls."""
        with _misconfiguration():
            for problem in check_files(self._config):
                raise Misconfigured(problem)
            check_ports(self._config)
            await self._models.reloader.prepare()
        loading = asyncio.create_task(self._models.reloader.load())
        try:
            # Takes a second, in which the event loop hears from the engines that start.
            module = await asyncio.to_thread(import_module, "service.server.parts")
            with _misconfiguration():  # a file that has changed since it was checked
                parts: Parts = module.Parts(self._config, self._models)
            self._parts = parts
            ports = await self._listen(parts)
            with _misconfiguration():
                await loading
        finally:
            loading.cancel()
            await asyncio.gather(loading, return_exceptions=True)
        await self._open(parts, ports)
        return parts

    async def _listen(self, parts: "Parts") -> dict[str, int]:
        """Bind the ports, and return them by their settings; raises ListenError."""
        listen = self._config.listen
        ports = await parts.frontends.listen()
        if listen.metrics_port is not None:
            metrics = Address(listen.metrics_host, listen.metrics_port)
            ports["metrics_port"] = await parts.metrics_server.start(metrics, "listen.metrics_port")
        if listen.admin_port is not None:
            ports["admin_port"] = await parts.start_admin(Address(listen.admin_host, listen.admin_port))
        return ports

    async def _open(self, parts: "Parts", ports: dict[str, int]) -> None:
        """Let calls in, and say so."""
        with _ports_file(self._config.lifecycle.ports_file, {"pid": os.getpid(), **ports}):
            spare_what_is_loaded()
            await self._models.registry.spread()
            parts.readiness.is_accepting = True
            await parts.frontends.set_state(ServingState(is_serving=True))
            infos = [model.info for model in self._models.registry.models]
            models = [f"{info.name} {info.version} {info.precision}" for info in infos]
            self._log.info("serving", **ports, pid=os.getpid(), models=models)

    async def _serve_until(self, stopping: "asyncio.Task[Any]", parts: "Parts") -> None:
        """Watch over models and memory until the stop, and drain."""
        watches = (self._monitor(parts), self._models.reloader.watch(), self._models.registry.model_cache.watch())
        background = [asyncio.create_task(watch) for watch in watches]
        try:
            await stopping
            await self._drain(parts)
        finally:
            for task in background:
                task.cancel()
            await asyncio.gather(*background, return_exceptions=True)

    async def _monitor(self, parts: "Parts") -> None:
        """Watch whether every model has an engine, and measure the lag of the event loop."""
        was_ready = True
        async for now in observe_event_loop(self._models.metrics):
            parts.usage_meter.write_if_due(now)
            is_ready = parts.readiness.observe(now)
            if is_ready != was_ready and not parts.readiness.is_draining:
                was_ready = is_ready
                self._log.warning("readiness_changed", is_ready=is_ready)
                await parts.frontends.set_state(ServingState(is_serving=is_ready))

    async def _drain(self, parts: "Parts") -> None:
        """Refuse new calls, and return when the accepted ones are answered, or their time is over."""
        lifecycle = self._config.lifecycle
        _, num_calls = await parts.frontends.calls(0)
        self._log.info("draining", requests=num_calls)
        parts.readiness.drain()
        await parts.frontends.set_state(ServingState(is_serving=False, is_draining=True))
        await self._models.reloader.freeze()
        await asyncio.sleep(lifecycle.drain_delay_s)
        refusal = Unavailable("the server is draining", reason="draining")
        await parts.frontends.set_state(ServingState(is_serving=False, is_draining=True, refusal=refusal))
        try:
            async with asyncio.timeout(lifecycle.grace_s):
                await parts.frontends.all_left()
        except TimeoutError:
            self._log.warning("grace_period_over", requests=parts.admission.requests)
            await self._models.reloader.close()  # their calls end with UNAVAILABLE

    async def _end(self) -> NoReturn:
        """End the process with its connections open, see `Frontend.finish`."""
        await self._models.close()
        if self._parts is not None:
            await self._parts.metrics_server.stop()
            await self._parts.frontends.finish()
            self._parts.usage_meter.write()
        self._log.info("stopped")
        os._exit(EXIT_OK)

    async def _give_up(self) -> None:
        """Release everything, in whatever state it is, after a start that has failed."""
        if self._parts is not None:
            await self._parts.frontends.stop()
            await self._parts.admin_server.stop(0)
            await self._parts.metrics_server.stop()
        await self._models.close()


@contextmanager
def _misconfiguration() -> Iterator[None]:
    """Convert ValueError to Misconfigured."""
    try:
        yield
    except ValueError as error:
        raise Misconfigured(str(error)) from error


def _forget_ports(file: Path) -> None:
    """Remove the ports of a server that was killed: whoever waits for the file would take them for ours."""
    with suppress(OSError, ValueError, LookupError, TypeError):  # no file, or none of ours
        if file.is_file():
            pid = json.loads(file.read_text(encoding="utf-8"))["pid"]
            if pid == os.getpid() or not Path(f"/proc/{int(pid)}").exists():  # 1 in every container
                file.unlink()


@contextmanager
def _ports_file(file: Path | None, content: dict[str, int]) -> Iterator[None]:
    """Have the file there after the block; what can fail fails before it, and so before calls are accepted."""
    if file is None:
        yield
        return
    name = f"lifecycle.ports_file {file}"
    try:
        with writing(file) as stream:
            stream.write(json.dumps(content).encode())
            stream.flush()
            yield
    except OSError as error:
        if error.filename != str(file):
            raise
        raise Misconfigured(f"{name} cannot be written: {error.strerror}") from error
