"""Models that share too little memory for all of them: real engines of a small bundle, under names of their own.

The memory of an engine is made up: 50 MB each, the rest of the server takes nothing, and 150 MB may be filled.
"""

import asyncio
import json
import os
import shutil
import signal
import time
from collections.abc import AsyncIterator, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from service.call import Call
from service.config import EngineConfig, LifecycleConfig, LimitsConfig, ModelsConfig, ServerConfig
from service.engine.worker import create_runner
from service.errors import Overloaded, Unavailable
from service.models import model_cache
from service.models.call_scheduler import CallScheduler
from service.models.version import ModelVersion
from service.records import TranslationRequest
from service.server.model_hosting import ModelParts
from service.telemetry.usage import UsageMeter
from service.translate.translator import Translator
from tests.fakes.calls import eventually

BUNDLE = Path(__file__).resolve().parents[2] / "compatibility" / "bundle_2026_11_21"
ENGINE_MB, LIMIT_MB = 50, 167  # 90 % of which are three engines
NAMES = ("m01", "m02", "m03", "m04", "m05")


class Server:
    """The core without its ports."""

    def __init__(self, directory: Path, limits: LimitsConfig, max_memory_mb: int) -> None:
        self.repository = directory
        config = ServerConfig(
            limits=limits,
            engine=EngineConfig(
                num_engines=2, threads=1, max_rows=1, runner_factory=f"{create_runner.__module__}:create_runner"
            ),
            models=ModelsConfig(directory=directory, max_memory_mb=max_memory_mb, idle_s=600.0),
            lifecycle=LifecycleConfig(engine_silence_s=600.0),  # engines that a test stops are not replaced
        )
        self.parts = ModelParts(config)
        self.model_cache, self.registry = self.parts.registry.model_cache, self.parts.registry
        scheduler = CallScheduler(self.registry.catalogue, limits)
        self.admission = scheduler.admission
        executor = ThreadPoolExecutor(1)
        usage_meter = UsageMeter(self.parts.metrics)
        self.translator = Translator(scheduler, usage_meter, limits, executor)

    async def translate(self, model: str, *, within_s: float = 60.0) -> str:
        now = time.monotonic()
        call = Call(method="", started=now, deadline=now + within_s)
        request = TranslationRequest(texts=("Birds sing.",), model=model)
        call.priority = call.caller.allowed(request.priority)
        with self.translator.admit(len(request.texts), call) as reservation:
            result = await self.translator.translate(request, call, reservation)
        assert result.translations[0].error is None
        return result.model

    async def translate_in_turn(self, *models: str) -> None:
        for model in models:
            await self.translate(model)

    def host(self, name: str) -> ModelVersion:
        return next(host for host in self.registry.models if host.info.name == name)

    @property
    def loaded(self) -> list[str]:
        return [host.info.name for host in self.registry.models if host.is_loaded]

    def pids(self, name: str) -> list[int]:
        return [engine.pid for engine in self.host(name).pool.snapshots(0.0) if engine.pid]


def put(repository: Path, name: str, version: str = "1") -> None:
    target = repository / name / version
    shutil.copytree(BUNDLE, target)
    manifest = json.loads((target / "manifest.json").read_text())
    (target / "manifest.json").write_text(json.dumps({**manifest, "name": name, "version": version}))


def memory_of(pids: Iterable[int]) -> int:
    return sum(ENGINE_MB << 20 for pid in pids if pid != os.getpid())


@pytest.fixture(autouse=True)
def made_up_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_cache, "memory_of", memory_of)
    monkeypatch.setattr(model_cache, "available_threads", lambda: 8)


@asynccontextmanager
async def serving(
    directory: Path, names: Iterable[str] = NAMES, *, max_memory_mb: int = LIMIT_MB, **limits: Any
) -> AsyncIterator[Server]:
    for name in names:
        put(directory, name)
    server = Server(directory, LimitsConfig(translation_cache_mb=0, **limits), max_memory_mb)
    try:
        await server.parts.reloader.prepare()
        await server.parts.reloader.load()
        yield server
    finally:
        await server.parts.close()


@asynccontextmanager
async def in_flight(server: Server, name: str) -> AsyncIterator["asyncio.Task[str]"]:
    """A call that its model's engine cannot finish before this ends."""
    await server.translate(name)
    (pid,) = server.pids(name)
    os.kill(pid, signal.SIGSTOP)
    try:
        call = asyncio.create_task(server.translate(name))
        await eventually(lambda: server.host(name).pool.running_jobs > 0)
        yield call
    finally:
        os.kill(pid, signal.SIGCONT)


async def test_least_recently_used_model_makes_room_and_comes_back_when_it_is_called(tmp_path):
    async with serving(tmp_path) as server:
        await server.translate_in_turn("m01", "m02", "m03", "m01")
        old_pids = server.pids("m02")
        await server.translate("m04")
        was_loaded = server.loaded
        await server.translate("m02")

        assert (was_loaded, server.loaded) == (["m01", "m03", "m04"], ["m01", "m02", "m04"])
        assert server.pids("m02") != old_pids


async def test_ceiling_holds_and_every_call_is_answered_when_all_models_are_called_at_once(tmp_path, monkeypatch):
    highest = 0

    def watched(pids: Iterable[int]) -> int:
        nonlocal highest
        highest = max(highest, memory_of(pids))
        return memory_of(pids)

    monkeypatch.setattr(model_cache, "memory_of", watched)
    async with serving(tmp_path) as server:
        answers = await asyncio.gather(*(server.translate(name) for name in NAMES * 4))

        assert answers == list(NAMES * 4)
        assert highest <= LIMIT_MB << 20


async def test_call_is_refused_with_a_pause_where_all_other_models_are_in_use(tmp_path):
    async with serving(tmp_path, max_memory_mb=112, max_queue_seconds=0.2) as server, in_flight(server, "m01"):
        async with in_flight(server, "m02") as call:
            with pytest.raises(Overloaded, match="all other models are in use") as refusal:
                await server.translate("m03")

        assert (refusal.value.reason, refusal.value.retry_after_s) == ("model_memory", 1.0)
        assert await call == "m02"


async def test_model_that_cannot_start_fails_its_own_calls_and_is_not_tried_for_each(tmp_path):
    async with serving(tmp_path) as server:
        (tmp_path / "m02" / "1" / "fp32" / "encoder.onnx").write_bytes(b"no graph")

        failed = await asyncio.gather(*(server.translate("m02") for _ in range(5)), return_exceptions=True)
        began = server.host("m02").pool.snapshots(0.0)
        failed.append((await asyncio.gather(server.translate("m02"), return_exceptions=True))[0])

        assert [type(error) for error in failed] == [Unavailable] * 6
        assert {str(error) for error in failed} == {"the model m02 cannot be loaded; the server's log says why"}
        assert (server.host("m02").state, [engine.pid for engine in began]) == ("unloaded", [None, None])
        assert await server.translate("m03") == "m03"


async def test_model_whose_jobs_wait_gets_one_more_engine_and_gives_it_back(tmp_path):
    async with serving(tmp_path) as server:
        pool = server.host("m02").pool
        async with in_flight(server, "m02") as first:
            calls = [asyncio.create_task(server.translate("m02")) for _ in range(30)]
            await eventually(lambda: pool.queued_jobs > 0)
            now = time.monotonic()
            await server.model_cache.look(now)
            await server.model_cache.look(now + 1.0)
            await eventually(lambda: pool.engines == 2)
        await asyncio.gather(first, *calls)
        await server.model_cache.look(time.monotonic() + 30.0)

        assert pool.engines == 1
        assert await server.translate("m02") == "m02"
