"""The models that are in memory, where that is limited: a call loads one, and idle ones make room for it.

    unloaded -> (a call; room is made) -> loaded -> (idle for long, or the least recently used where room is needed)

A model that a call uses stays loaded.  The limit is for the whole server: the sum of the proportional set sizes of its
processes, which counts shared pages once.  This module does not know what a model does, nor where models come from.
"""

import asyncio
import copy
import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from service.call import Call
from service.config import ServerConfig
from service.errors import DragomanError, FailedPrecondition, Overloaded, Unavailable
from service.processes.supervisor import StartError
from service.scheduler.admission import Reservation
from service.telemetry.logs import describe_error, get_logger
from service.telemetry.metrics import Metrics
from service.threads import available_threads, in_daemon_thread

if TYPE_CHECKING:
    from service.models.registry import Registry
    from service.models.version import ModelVersion

LOOK_PERIOD_S = 1.0
_FILL = 0.9  # of the limit is filled by loading; engines may grow into the rest until the next look
_MOST_STARTS = 4  # models that start at once: several, so that one that hangs does not hold up the others
_RETRY_S = 30.0  # after a model could not be loaded, its calls are refused for so long
_SPARE_S = 10.0  # an additional engine ends when nothing has waited for so long
# Of an engine before its first start: with graphs of 0.1, 10 (int8) and 35 MB (fp32) it took 30, 70 and 123 MB of its
# own (smaps_rollup), and shares 8 MB.
_ENGINE_BYTES, _BYTES_PER_GRAPH_BYTE = 40 << 20, 3
_SMAPS = "/proc/{}/smaps_rollup"


class ModelCache:
    """Loads and unloads the models of one server; only for the event loop's thread."""

    def __init__(self, config: ServerConfig, metrics: Metrics, registry: "Registry") -> None:
        """Look after the models of a registry; raise ValueError where memory is limited and cannot be measured."""
        limit_mb = config.models.max_memory_mb
        if limit_mb is not None and not Path(_SMAPS.format("self")).exists():
            raise ValueError(
                "models.max_memory_mb needs /proc/PID/smaps_rollup of Linux to measure memory: leave it out"
            )
        self.max_bytes = None if limit_mb is None else limit_mb << 20
        self.other_pids: Callable[[], Iterable[int]] = tuple  # of the server's other processes
        self._idle_s = config.models.idle_s
        self._patience_s = config.limits.max_queue_seconds
        self._retry_after_s = config.limits.retry_after_s
        self._metrics = metrics
        self._registry = registry
        self._loading: dict[ModelVersion, asyncio.Task[DragomanError | None]] = {}  # for calls
        self._growing: dict[ModelVersion, asyncio.Task[None]] = {}  # that get one more engine
        self._reserved: dict[ModelVersion, int] = {}  # bytes, by models whose engines start
        self._engine_bytes: dict[str, int] = {}  # measured after the start, by the bundle's digest
        self._failures: dict[ModelVersion, tuple[float, DragomanError]] = {}  # when, and what its calls are told
        self._load_s = 0.0  # of the last load
        self._used_bytes = 0  # when last measured
        self._pressed_at: dict[ModelVersion, float] = {}  # when jobs last waited, of models that are loaded
        self._starts = asyncio.Semaphore(_MOST_STARTS)
        self._room = asyncio.Lock()
        self._news = asyncio.Event()  # there may be more room
        self._spreading: set[asyncio.Task[None]] = set()
        metrics.watch("models_loaded", lambda: len(self._loaded()))
        metrics.watch("memory_bytes", lambda: self._used_bytes)

    def wake(self) -> None:
        """Have those that wait for room try again."""
        self._news.set()

    async def load(self, model: "ModelVersion") -> None:
        """Return when this model has started.

        Raises:
            Overloaded, FailedPrecondition: there is no room for it, now or ever.
            ValueError, DragomanError: as `ModelVersion.start`.
        """
        if self.max_bytes is None:
            await model.start()
            return
        async with self._starts:
            await self._make_room(model, self._patience_s)
            began = time.monotonic()
            try:
                await model.start()
                self._engine_bytes[model.sha256_12] = await in_daemon_thread(partial(memory_of, _pids(model)))
            finally:
                del self._reserved[model]
                self.wake()
        self._load_s = time.monotonic() - began
        self._metrics.families.model_load.observe(self._load_s)
        get_logger().info("model_started", model=model.info.name, version=model.info.version, load_s=self._load_s)

    async def load_for(self, model: "ModelVersion", call: Call, reservation: Reservation) -> None:
        """Return when the model is loaded; calls that wait for it share one load.  Raises as `ServedModel.load`."""
        call.phase = "load"
        now = time.monotonic()
        failed_at, error = self._failures.get(model, (0.0, None))
        if error is not None and now - failed_at < _RETRY_S:
            raise copy.copy(error)
        if len(self._loading) < _MOST_STARTS:
            self._begin(model)  # even if this call is refused: the next one finds the model
        wait_s = self._load_s * (1 + len(self._loading) // _MOST_STARTS)
        reservation.check(0.0, wait_s, now=now, deadline=call.deadline)
        loading = self._begin(model)
        try:
            error = await asyncio.shield(loading)
        except asyncio.CancelledError:
            if loading.cancelled():
                raise Unavailable("the server is stopping") from None
            raise
        if error is not None:
            raise copy.copy(error)

    async def watch(self) -> None:
        """Keep to the limit and share out engines once a second, until cancelled."""
        while self.max_bytes is not None:
            await asyncio.sleep(LOOK_PERIOD_S)
            try:
                await self.look(time.monotonic())
            except Exception as error:  # noqa: BLE001 - a bug in one look must not be the last look
                get_logger().error("memory_look_failed", **describe_error(error))

    async def look(self, now: float) -> None:
        """Unload models that were idle for long or do not fit any more; start engines for models whose jobs wait."""
        async with self._room:
            for model in self._idle():
                is_old = self._idle_s is not None and now - model.in_use.used_at >= self._idle_s
                if is_old and model.may_unload:  # a call may have come while another one was unloaded
                    await self._unload(model, "idle")
            while await self._measure() > self._fill_bytes and (victim := self._least_recently_used()):
                await self._unload(victim, "memory")
        for model in self._loaded():
            await self._share_engines(model, now)

    async def forget(self, model: "ModelVersion") -> None:
        """Cancel what is under way for a model that ends."""
        tasks = [tasks[model] for tasks in (self._loading, self._growing) if model in tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for remembered in (self._loading, self._growing, self._failures, self._pressed_at):
            remembered.pop(model, None)  # a task that was cancelled before its first step has left its place

    def _begin(self, model: "ModelVersion") -> "asyncio.Task[DragomanError | None]":
        """Return the task that loads this model for all calls that need it."""
        if model not in self._loading:
            self._loading[model] = asyncio.create_task(self._load_for_all(model))
        return self._loading[model]

    async def _load_for_all(self, model: "ModelVersion") -> DragomanError | None:
        """Load a model; return None, or the error for the calls that wait."""
        failure: DragomanError
        try:
            await self.load(model)
        except Overloaded as error:
            return error
        except FailedPrecondition as error:
            failure = error
        except Exception as error:  # noqa: BLE001 - whatever a bundle makes us raise, the others must serve
            name = model.info.name
            get_logger().error("model_not_loaded", model=name, version=model.info.version, **describe_error(error))
            failure = Unavailable(f"the model {name} cannot be loaded; the server's log says why")
        else:
            return None
        finally:
            del self._loading[model]
        self._failures[model] = time.monotonic(), failure
        return failure

    async def _make_room(self, model: "ModelVersion", patience_s: float) -> None:
        """Reserve room for one more engine of a model: unload idle models, wait for busy ones."""
        wanted, give_up_at = self._wanted_bytes(model), time.monotonic() + patience_s
        async with self._room:
            while True:
                self._news.clear()
                used = await self._measure()
                if used + wanted <= self._fill_bytes:
                    break
                if victim := self._least_recently_used(beside=model):
                    await self._unload(victim, "memory")
                    continue
                need = f"the model {model.info.name} needs about {wanted >> 20} MB beside {used >> 20} MB in use"
                need = f"{need}, and {_FILL:.0%} of models.max_memory_mb is {self._fill_bytes >> 20} MB"
                if not any(other is not model for other in (*self._loaded(), *self._reserved)):
                    raise FailedPrecondition(f"{need}: raise the limit")
                try:
                    async with asyncio.timeout(max(0.0, give_up_at - time.monotonic())):
                        await self._news.wait()
                except TimeoutError:
                    message = f"{need}: all other models are in use"
                    raise Overloaded(message, reason="model_memory", retry_after_s=self._retry_after_s) from None
            self._reserved[model] = wanted

    async def _unload(self, model: "ModelVersion", reason: str) -> None:
        await model.unload()
        self._pressed_at.pop(model, None)
        self._metrics.families.model_unloads.labels(reason).inc()
        get_logger().info("model_unloaded", model=model.info.name, version=model.info.version, reason=reason)
        spreading = asyncio.create_task(self._registry.spread())  # nobody has to wait for it
        self._spreading.add(spreading)
        spreading.add_done_callback(self._spreading.discard)

    async def _share_engines(self, model: "ModelVersion", now: float) -> None:
        """Start one more engine where jobs have waited at two looks; end one where none has waited for a while."""
        engines, pressed_at = model.pool, self._pressed_at.get(model, 0.0)
        if engines.queued_jobs:
            self._pressed_at[model] = now
            is_pressed = now - pressed_at < 2 * LOOK_PERIOD_S
            busy = sum(engine.jobs > 0 for one in self._loaded() for engine in one.pool.snapshots(now))
            if is_pressed and engines.can_grow and model not in self._growing and busy < available_threads():
                self._growing[model] = asyncio.create_task(self._grow(model))
        elif engines.engines > 1 and now - pressed_at >= _SPARE_S:
            await engines.remove_engine()

    async def _grow(self, model: "ModelVersion") -> None:
        try:
            async with self._starts:
                if not model.is_loaded or model in self._reserved:  # unloaded while others started, or loaded again
                    return
                await self._make_room(model, 0.0)
                try:
                    if model.is_loaded:
                        await model.pool.add_engine()
                finally:
                    del self._reserved[model]
        except (Overloaded, FailedPrecondition, StartError) as error:
            get_logger().warning("engine_not_added", model=model.info.name, reason=str(error))
        finally:
            del self._growing[model]

    def _loaded(self) -> "list[ModelVersion]":
        return [model for model in self._registry.versions if model.is_loaded]

    def _idle(self) -> "list[ModelVersion]":
        """Models that may be unloaded: no call uses them, and nothing changes with them."""
        return [model for model in self._registry.versions if model.may_unload and model not in self._reserved]

    def _least_recently_used(self, beside: "ModelVersion | None" = None) -> "ModelVersion | None":
        idle = (model for model in self._idle() if model is not beside)
        return min(idle, key=lambda model: model.in_use.used_at, default=None)

    @property
    def _fill_bytes(self) -> int:
        assert self.max_bytes is not None
        return int(self.max_bytes * _FILL)

    def _wanted_bytes(self, model: "ModelVersion") -> int:
        """Memory of one more engine: as measured at the last start, or as estimated from the size of the graphs."""
        measured = self._engine_bytes.get(model.sha256_12)
        return measured or _ENGINE_BYTES + _BYTES_PER_GRAPH_BYTE * model.graph_bytes

    async def _measure(self) -> int:
        """Return the bytes that the server takes, with what is reserved for engines that start."""
        counted = [model for model in self._registry.versions if model.is_loaded or model not in self._reserved]
        pids = [os.getpid(), *self.other_pids(), *(pid for model in counted for pid in _pids(model))]
        self._used_bytes = await in_daemon_thread(partial(memory_of, pids))
        return self._used_bytes + sum(self._reserved.values())


def memory_of(pids: Iterable[int]) -> int:
    """Return the proportional set size of processes in bytes; those that have ended take none."""
    total = 0
    for pid in pids:
        with suppress(OSError):
            lines = Path(_SMAPS.format(pid)).read_text(encoding="ascii").splitlines()
            total += next(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))
    return total


def _pids(model: "ModelVersion") -> list[int]:
    return [engine.pid for engine in model.pool.snapshots(0.0) if engine.pid]
