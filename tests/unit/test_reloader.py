"""The reloader: what serves follows the repository, and nothing bad ever does.

Hosts are fakes that start when the test lets them; there are no processes.
"""

import asyncio
import gc
import threading
import weakref
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from service.errors import FailedPrecondition, InternalError, NotFound, Unavailable
from service.models.catalog import LoadedModel
from service.models.changes import ModelChange, Refusal, Result, require_none_refused
from service.models.host import HostState
from service.models.reloader import Reloader
from service.models.repository import Candidate, Candidates, RepositoryError, version_order
from service.translation import ModelInfo, TranslateOptions
from tests.fakes.calls import eventually


def info(name: str, version: str) -> ModelInfo:
    return ModelInfo(
        name=name,
        version=version,
        source_language="en",
        target_language="de",
        precision="int8",
        device="cpu",
        default_options=TranslateOptions(),
        max_source_tokens=512,
        max_beam_size=16,
    )


@dataclass(eq=False)
class FakeHost:
    """A version that serves as soon as `gate` is open."""

    info: ModelInfo
    gate: asyncio.Event
    error: Exception | None = None
    sha256_12: str = "abc"
    state: HostState = HostState.LOADING
    is_closed: bool = False
    close_error: Exception | None = None
    dispatcher: Any = field(default_factory=lambda: SimpleNamespace(is_ready=True))

    def __post_init__(self) -> None:
        translator: Any = None
        self.model = LoadedModel(info=self.info, max_target_tokens=9, translator=translator)

    @property
    def calls(self) -> int:
        return self.model.lease.calls

    async def start(self) -> None:
        await self.gate.wait()
        if self.error:
            raise self.error
        self.state = HostState.SERVING

    async def drain(self, within_s: float) -> bool:
        try:
            async with asyncio.timeout(within_s):
                await self.model.lease.wait_idle()
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        self.is_closed = True
        if self.close_error:
            raise self.close_error


class Directory:
    """A repository in memory, and everything that a reloader is given."""

    def __init__(self, *versions: str) -> None:
        self.content: dict[str, str] = dict.fromkeys(versions, "1")  # "name/version" -> its manifest
        self.bad: dict[str, Exception] = {}  # that fail the check
        self.broken: dict[str, Exception] = {}  # that fail the start
        self.gate = asyncio.Event()
        self.gate.set()
        self.hosts: list[FakeHost] = []
        self.checked: list[str] = []
        self.scans = 0
        self.were_daemons: list[bool] = []  # the threads that scanned and checked
        self.counted: list[tuple[str, str]] = []
        make_host: Any = self.make_host
        observer: Any = self
        self.reloader = Reloader(self, self.check, make_host, observer, drain_s=5.0)

    def scan(self) -> Candidates:
        self.scans += 1
        self.were_daemons.append(threading.current_thread().daemon)
        if not self.content:
            raise RepositoryError("model repository is empty")
        names = sorted({key.partition("/")[0] for key in self.content})
        return {name: tuple(self._candidates(name)) for name in names}

    def _candidates(self, name: str) -> list[Candidate]:
        versions = [key.partition("/")[2] for key in self.content if key.startswith(f"{name}/")]
        return [
            Candidate(
                directory=Path(name) / version,
                name=name,
                version=version,
                manifest_sha256=self.content[f"{name}/{version}"],
                fingerprint=self.content[f"{name}/{version}"],
            )
            for version in sorted(versions, key=version_order, reverse=True)
        ]

    def check(self, candidate: Candidate) -> Any:
        self.checked.append(candidate.label)
        self.were_daemons.append(threading.current_thread().daemon)
        if error := self.bad.get(candidate.label):
            raise error
        return candidate

    def make_host(self, candidate: Any) -> FakeHost:
        self.hosts.append(
            FakeHost(info(candidate.name, candidate.version), self.gate, self.broken.get(candidate.label))
        )
        return self.hosts[-1]

    def model_changed(self, name: str, result: str) -> None:
        self.counted.append((name, result))

    def model_loaded(self, host: FakeHost) -> None:
        pass

    def model_unloaded(self, host: FakeHost) -> None:
        pass

    async def load(self) -> None:
        await self.reloader.load(await self.reloader.prepare())

    def serving(self) -> list[str]:
        return [f"{model.info.name}/{model.info.version}" for model in self.reloader.catalog.models]


def change(label: str, result: Result, reason: str = "") -> ModelChange:
    name, _, version = label.partition("/")
    return ModelChange(name=name, version=version, result=result, reason=reason)


class TestLoad:
    async def test_highest_good_version_of_each_name_serves(self):
        models = Directory("b/9", "b/10", "a/2", "a/1")
        models.bad["a/2"] = ValueError("bad")

        await models.load()

        assert models.serving() == ["a/1", "b/10"]
        assert models.counted == [("a", "refused"), ("a", "loaded"), ("b", "loaded")]

    async def test_lower_versions_are_not_even_opened(self):
        models = Directory("a/1", "a/2")

        await models.load()

        assert models.checked == ["a/2"]

    async def test_version_that_does_not_start_gives_way_to_the_next(self):
        models = Directory("a/1", "a/2")
        models.broken["a/2"] = InternalError("the engine did not start")

        await models.load()

        assert models.serving() == ["a/1"]
        assert [host.is_closed for host in models.hosts] == [True, False]

    async def test_when_no_bundle_is_good_the_first_reason_is_raised_before_anything_starts(self):
        models = Directory("a/1", "b/1")
        models.bad |= {"a/1": ValueError("first"), "b/1": ValueError("second")}

        with pytest.raises(ValueError, match="first"):
            await models.load()

        assert models.hosts == []

    async def test_when_nothing_starts_the_reason_is_raised(self):
        models = Directory("a/1")
        models.broken["a/1"] = InternalError("the engine did not start")

        with pytest.raises(InternalError, match="the engine did not start"):
            await models.load()

    async def test_error_that_nobody_foresaw_is_told_with_its_kind(self):
        models = Directory("a/1")
        models.broken["a/1"] = KeyError("x")

        with pytest.raises(InternalError, match="KeyError: 'x'"):
            await models.load()

    async def test_cancelled_load_closes_what_it_has_begun(self):
        models = Directory("a/1")
        models.gate.clear()
        loading = asyncio.create_task(models.load())
        await eventually(lambda: bool(models.hosts))

        loading.cancel()
        await asyncio.gather(loading, return_exceptions=True)

        assert models.hosts[0].is_closed


class TestReload:
    async def test_new_version_takes_the_place_of_the_old_one_which_ends(self):
        models = Directory("a/1")
        await models.load()
        models.content["a/2"] = "1"

        changes = await models.reloader.reload()

        assert changes == [change("a/2", Result.LOADED), change("a/1", Result.RETIRED)]
        assert models.serving() == ["a/2"]
        await eventually(lambda: models.hosts[0].is_closed)
        assert [id(host) for host in models.reloader.hosts] == [id(models.hosts[1])]

    async def test_old_version_serves_until_the_new_one_has_started_and_ends_when_its_calls_have(self):
        models = Directory("a/1")
        await models.load()
        old, models.content["a/2"] = models.hosts[0], "1"
        models.gate.clear()
        reloading = asyncio.create_task(models.reloader.reload())
        await eventually(lambda: len(models.hosts) == 2)
        assert models.serving() == ["a/1"]

        with models.reloader.catalog.models[0].lease:
            models.gate.set()
            await reloading
            assert models.serving() == ["a/2"]
            assert (old.state, old.is_closed) == (HostState.DRAINING, False)

        await eventually(lambda: old.is_closed)

    async def test_nothing_new_is_said_to_be_unchanged(self):
        models = Directory("a/1")
        await models.load()

        assert await models.reloader.reload() == [change("a/1", Result.UNCHANGED)]
        assert len(models.hosts) == 1

    async def test_changed_manifest_of_the_same_version_is_another_model(self):
        models = Directory("a/1")
        await models.load()
        models.content["a/1"] = "2"

        await models.reloader.reload()

        assert len(models.hosts) == 2

    async def test_bad_version_is_refused_and_the_old_one_stays(self):
        models = Directory("a/1")
        await models.load()
        models.content["a/2"] = "1"
        models.bad["a/2"] = ValueError("it is\nbad")

        changes = await models.reloader.reload()

        assert changes == [change("a/2", Result.REFUSED, "it is bad"), change("a/1", Result.UNCHANGED)]
        assert [refusal.reason for refusal in models.reloader.refusals] == ["it is bad"]
        assert models.serving() == ["a/1"]

    async def test_refusal_is_forgotten_once_its_version_is_good(self):
        models = Directory("a/1", "a/2")
        models.bad["a/2"] = ValueError("bad")
        await models.load()
        models.bad.clear()

        await models.reloader.reload()

        assert models.serving() == ["a/2"]
        assert models.reloader.refusals == []

    async def test_refused_version_is_tried_again_when_asked_but_not_when_only_watched(self):
        models = Directory("a/1", "a/2")
        models.bad["a/2"] = ValueError("bad")
        await models.load()
        models.checked.clear()

        await models.reloader.follow(models.scan())
        assert models.checked == []
        await models.reloader.reload()
        assert models.checked == ["a/2"]

    async def test_watched_refused_version_is_tried_again_when_it_has_changed(self):
        models = Directory("a/1", "a/2")
        models.bad["a/2"] = ValueError("bad")
        await models.load()
        models.content["a/2"] = "2"

        changes = await models.reloader.follow(models.scan())

        assert changes is not None
        assert [one.result for one in changes] == [Result.REFUSED, Result.UNCHANGED]

    async def test_watched_change_that_is_out_of_date_when_its_turn_comes_is_not_made(self):
        models = Directory("a/1", "b/1")
        await models.load()
        models.content["a/2"] = "1"
        seen = models.scan()
        models.gate.clear()
        reloading = asyncio.create_task(models.reloader.reload())
        await eventually(lambda: len(models.hosts) == 3)
        following = asyncio.create_task(models.reloader.follow(seen))
        models.content["a/3"] = "1"
        models.gate.set()

        assert [one.result for one in await reloading][:2] == [Result.LOADED, Result.RETIRED]
        assert await following is None
        assert models.serving() == ["a/2", "b/1"]

    async def test_model_that_a_reload_retires_while_the_watcher_waits_is_not_retired_twice(self):
        models = Directory("a/1", "b/1")
        await models.load()
        del models.content["b/1"]
        models.content["a/2"] = "1"
        models.gate.clear()
        reloading = asyncio.create_task(models.reloader.reload())
        await eventually(lambda: len(models.hosts) == 3)
        following = asyncio.create_task(models.reloader.follow(models.scan()))
        await asyncio.sleep(0)
        models.gate.set()

        assert change("b/1", Result.RETIRED) in await reloading
        assert await following == [change("a/2", Result.UNCHANGED)]
        assert models.serving() == ["a/2"]

    async def test_removed_version_leaves_its_place_to_the_next_and_a_removed_name_leaves(self):
        models = Directory("a/1", "a/2", "b/1")
        await models.load()
        del models.content["a/2"], models.content["b/1"]

        changes = await models.reloader.reload()

        assert changes == [
            change("a/1", Result.LOADED),
            change("a/2", Result.RETIRED),
            change("b/1", Result.RETIRED),
        ]
        assert models.serving() == ["a/1"]

    async def test_only_the_model_that_was_named_is_reloaded(self):
        models = Directory("a/1", "b/1")
        await models.load()
        models.content |= {"a/2": "1", "b/2": "1"}

        await models.reloader.reload("b")

        assert models.serving() == ["a/1", "b/2"]

    async def test_unknown_model_is_not_found(self):
        models = Directory("a/1")
        await models.load()

        with pytest.raises(NotFound, match="there is no model 'x', neither loaded nor in the repository"):
            await models.reloader.reload("x")

    async def test_repository_that_is_gone_is_a_failed_precondition_and_changes_nothing(self):
        models = Directory("a/1")
        await models.load()
        models.content.clear()

        with pytest.raises(FailedPrecondition, match="model repository is empty"):
            await models.reloader.reload()

        assert models.serving() == ["a/1"]

    async def test_two_reloads_at_once_take_turns(self):
        models = Directory("a/1")
        await models.load()
        models.content["a/2"] = "1"

        first, second = await asyncio.gather(models.reloader.reload(), models.reloader.reload())

        assert (first[0].result, second[0].result) == (Result.LOADED, Result.UNCHANGED)
        assert len(models.hosts) == 2

    async def test_there_are_never_three_versions_of_a_model(self):
        models = Directory("a/1")
        await models.load()
        with models.reloader.catalog.models[0].lease:
            models.content["a/2"] = "1"
            await models.reloader.reload()
            models.content["a/3"] = "1"
            third = asyncio.create_task(models.reloader.reload())
            await eventually(lambda: models.scans == 3)
            assert len(models.hosts) == 2

        await third
        assert models.serving() == ["a/3"]


class TestFollow:
    async def test_model_that_a_reload_has_retired_meanwhile_is_not_retired_again(self):
        models = Directory("a/1", "b/1", "b/2")
        await models.load()
        models.gate.clear()
        models.content["a/2"] = "1"
        first = asyncio.create_task(models.reloader.reload("a"))
        await eventually(lambda: len(models.hosts) == 3)  # holds its turn
        del models.content["b/1"], models.content["b/2"]
        second = asyncio.create_task(models.reloader.reload())
        await asyncio.sleep(0)
        following = asyncio.create_task(models.reloader.follow({"a": tuple(models._candidates("a"))}))
        await asyncio.sleep(0)
        models.gate.set()

        await asyncio.gather(first, second)
        assert await following == [change("a/2", Result.UNCHANGED)]
        assert models.serving() == ["a/2"]

    async def test_stale_scan_puts_no_older_version_back(self):
        models = Directory("a/1")
        await models.load()
        stale = models.scan()
        models.content["a/2"] = "1"
        await models.reloader.reload()

        assert await models.reloader.follow(stale) is None
        assert models.serving() == ["a/2"]


async def test_thread_that_hangs_in_a_file_system_cannot_keep_the_process():
    models = Directory("a/1")
    await models.load()
    models.content["a/2"] = "1"
    await models.reloader.reload()
    await models.reloader.follow(models.scan())

    *own, direct = [*models.were_daemons[:-2], models.were_daemons[-1], models.were_daemons[-2]]
    assert own == [True] * 5  # a scan and a check at the start, both again, and a scan to follow
    assert direct is False  # the test's own


class TestMemory:
    """A host holds a tokenizer and more: whoever has ended must not be kept."""

    async def test_nothing_is_kept_of_a_version_that_has_left(self):
        models = Directory("a/1")
        await models.load()
        old = weakref.ref(models.hosts.pop())
        models.content["a/2"] = "1"

        await models.reloader.reload()
        await eventually(lambda: len(models.reloader.hosts) == 1)

        gc.collect()
        assert old() is None

    async def test_nothing_but_the_reason_is_kept_of_a_version_that_was_refused(self):
        models = Directory("a/1")
        await models.load()
        models.content["a/2"] = "1"
        models.broken["a/2"] = InternalError("the engine did not start")

        await models.reloader.reload()

        bad = weakref.ref(models.hosts.pop())
        gc.collect()
        assert bad() is None
        assert models.reloader.refusals[0].reason == "the engine did not start"

    async def test_version_whose_end_fails_is_not_kept_either(self):
        models = Directory("a/1")
        await models.load()
        models.hosts[0].close_error = OSError("no such process")
        models.content["a/2"] = "1"

        await models.reloader.reload()
        await eventually(lambda: models.hosts[0].is_closed)
        await eventually(lambda: len(models.reloader.hosts) == 1)


class TestReadiness:
    async def test_every_model_needs_an_engine_to_be_ready_and_any_will_do_to_be_alive(self):
        models = Directory("a/1", "b/1")
        assert (models.reloader.is_ready, models.reloader.has_engine) == (False, False)
        await models.load()
        assert (models.reloader.is_ready, models.reloader.has_engine) == (True, True)

        models.hosts[0].dispatcher.is_ready = False
        assert (models.reloader.is_ready, models.reloader.has_engine) == (False, True)
        models.hosts[1].dispatcher.is_ready = False
        assert (models.reloader.is_ready, models.reloader.has_engine) == (False, False)


class TestClose:
    async def test_reload_under_way_is_undone_and_its_caller_told(self):
        models = Directory("a/1")
        await models.load()
        models.content["a/2"] = "1"
        models.gate.clear()
        reloading = asyncio.create_task(models.reloader.reload())
        waiting = asyncio.create_task(models.reloader.reload())
        await eventually(lambda: len(models.hosts) == 2)

        await models.reloader.close()

        assert [host.is_closed for host in models.hosts] == [True, True]
        for caller in (reloading, waiting):
            with pytest.raises(Unavailable):
                await caller

    async def test_after_the_end_there_are_no_reloads(self):
        models = Directory("a/1")
        await models.load()
        await models.reloader.close()

        with pytest.raises(Unavailable):
            await models.reloader.reload()

    async def test_version_that_is_leaving_is_closed_too(self):
        models = Directory("a/1")
        await models.load()
        models.content["a/2"] = "1"
        with models.reloader.catalog.models[0].lease:
            await models.reloader.reload()

            await models.reloader.close()

        assert [host.is_closed for host in models.hosts] == [True, True]


def test_refusals_become_one_failed_precondition_that_names_each():
    changes = [
        change("a/1", Result.UNCHANGED),
        change("b/2", Result.REFUSED, "bad"),
        change("c/3", Result.REFUSED, "worse"),
    ]

    require_none_refused(changes[:1])
    with pytest.raises(FailedPrecondition, match=r"^2 refused: b 2: bad; c 3: worse$"):
        require_none_refused(changes)


def test_reason_is_one_line():
    assert Refusal(candidate=Candidate(directory=Path()), error=ValueError("a\n  b")).reason == "a b"
