"""The reloader: what serves follows the repository, and nothing bad ever does."""

import asyncio
from pathlib import Path

import pytest

from service.errors import FailedPrecondition, NotFound
from service.registry.changes import Refusal, Result, require_none_refused
from service.registry.host import HostState
from service.registry.repository import BundleCandidate
from tests.fakes.calls import eventually
from tests.fakes.repository_in_memory import Directory, change


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

    async def test_default_comes_before_all_other_names_whichever_is_loaded_last(self):
        models = Directory("a/1", "b/1", "c/1")
        models.default = "b"
        await models.load()
        at_first = models.serving()
        models.content["a/2"] = models.content["b/2"] = "1"

        await models.reloader.reload("b")
        await models.reloader.reload("a")
        told = [f"{one.name}/{one.version}" for one in await models.reloader.reload()]

        assert at_first == ["b/1", "a/1", "c/1"]
        assert models.serving() == told == ["b/2", "a/2", "c/1"]

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

    async def test_required_model_whose_directory_is_gone_serves_on_and_its_absence_is_a_refusal(self):
        models = Directory("a/1", "b/1")
        models.are_required = True
        await models.load()
        del models.content["b/1"]

        changes = await models.reloader.reload()

        assert changes == [change("a/1", Result.UNCHANGED), change("b/1", Result.REFUSED, "b/1 is not a bundle")]
        assert models.counted[-1] == ("b", "refused")
        assert models.serving() == ["a/1", "b/1"]
        assert [refusal.reason for refusal in models.reloader.refusals] == ["b/1 is not a bundle"]

    async def test_absence_of_a_required_model_is_told_once_to_a_watcher_and_forgotten_when_it_is_back(self):
        models = Directory("a/1", "b/1")
        models.are_required = True
        await models.load()
        del models.content["b/1"]

        await models.reloader.follow(models.scan())
        await models.reloader.follow(models.scan())
        counted = models.counted.count(("b", "refused"))
        models.content["b/1"] = "1"
        changes = await models.reloader.follow(models.scan())

        assert counted == 1
        assert changes == [change("a/1", Result.UNCHANGED), change("b/1", Result.UNCHANGED)]
        assert models.reloader.refusals == []

    async def test_required_model_that_comes_back_as_another_version_takes_the_old_one_s_place(self):
        models = Directory("a/1", "b/1")
        models.are_required = True
        await models.load()
        del models.content["b/1"]
        await models.reloader.reload()
        models.content["b/2"] = "2"

        await models.reloader.reload()

        assert models.serving() == ["a/1", "b/2"]
        assert models.reloader.refusals == []

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

    async def test_refused_version_stands_until_it_is_good_or_gone_or_a_higher_one_serves(self):
        models = Directory("a/1", "b/1", "c/1")
        models.bad |= {label: ValueError("bad") for label in ("a/2", "b/2", "c/2", "d/1")}
        models.content |= dict.fromkeys(models.bad, "1")
        await models.load()
        at_first = [models.reloader.is_refused(name) for name in "abcd"]
        del models.bad["a/2"], models.content["b/2"], models.content["d/1"]
        models.content |= {"a/2": "2", "c/3": "1"}

        await models.reloader.follow(models.scan())

        assert at_first == [True, True, True, True]
        assert models.serving() == ["a/2", "b/1", "c/3"]
        assert [models.reloader.is_refused(name) for name in "abcd"] == [False, False, False, False]

    async def test_refused_version_above_the_one_that_serves_stands_through_later_looks(self):
        models = Directory("a/1", "a/2")
        models.bad["a/2"] = ValueError("bad")
        await models.load()

        await models.reloader.follow(models.scan())
        await models.reloader.reload()

        assert models.reloader.is_refused("a")
        assert not models.reloader.is_refused("b")

    @pytest.mark.parametrize("content", ["1", "2"], ids=["as it was", "changed"])
    async def test_refused_version_stands_while_it_is_tried_again_and_has_the_new_reason_then(self, content):
        models = Directory("a/1", "a/2")
        models.broken["a/2"] = ValueError("bad")
        await models.load()
        models.content["a/2"] = content
        models.broken["a/2"] = ValueError("worse")
        models.gate.clear()
        reloading = asyncio.create_task(models.reloader.reload())
        await eventually(lambda: len(models.hosts) == 3)
        meanwhile = models.reloader.is_refused("a")
        models.gate.set()
        await reloading

        assert meanwhile
        assert [refusal.reason for refusal in models.reloader.refusals] == ["worse"]

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
        following = asyncio.create_task(models.reloader.follow({"a": tuple(models.candidates("a"))}))
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
    assert Refusal(candidate=BundleCandidate(directory=Path()), error=ValueError("a\n  b")).reason == "a b"
