"""What serves follows the source, and nothing bad ever does."""

import asyncio

import pytest

from service.errors import FailedPrecondition, InternalError, NotFound, Unavailable
from service.models.registry import Result
from tests.fakes.calls import eventually
from tests.fakes.repository_in_memory import Directory, change


async def loaded(*versions: str, are_required: bool = False) -> Directory:
    """A repository whose models serve."""
    models = Directory(*versions)
    models.are_required = are_required
    await models.load()
    return models


class TestLoad:
    async def test_highest_good_version_of_each_name_serves_and_lower_ones_are_not_opened(self):
        models = Directory("b/9", "b/10", "a/4", "a/3", "a/2", "a/1")
        models.bad["a/4"] = ValueError("bad")
        models.broken["a/3"] = InternalError("the engine did not start")

        await models.load()

        assert models.serving() == ["a/2", "b/10"]
        assert set(models.checked) == {"a/4", "a/3", "a/2", "b/10"}
        assert [models.counted("a", result) for result in (Result.REFUSED, Result.LOADED)] == [2, 1]
        assert [model.is_closed for model in models.made if model.info.version == "3"] == [True]

    @pytest.mark.parametrize("are_required", [False, True])
    async def test_bad_bundles_fail_the_start_before_anything_starts(self, are_required):
        """The first of them where no bundle is good; any of them where every model is required."""
        models = Directory("a/1", "b/1")
        models.are_required = are_required
        models.bad["a/1"] = ValueError("first")
        if not are_required:
            models.bad["b/1"] = ValueError("second")

        with pytest.raises(ValueError, match="first"):
            await models.load()

        assert models.made == []

    @pytest.mark.parametrize(
        ("error", "message"),
        [(InternalError("the engine did not start"), "the engine did not start"), (KeyError("x"), "KeyError: 'x'")],
    )
    @pytest.mark.parametrize("are_required", [False, True])
    async def test_engine_that_does_not_start_fails_the_start_where_nothing_else_may_serve(
        self, error, message, are_required
    ):
        models = Directory("a/1", "b/1") if are_required else Directory("a/1")
        models.are_required = are_required
        models.broken["a/1"] = error

        with pytest.raises(InternalError, match=message):
            await models.load()


class TestReload:
    async def test_removed_version_leaves_its_place_to_the_next_and_a_removed_name_leaves(self):
        models = await loaded("a/1", "a/2", "b/1")
        del models.content["a/2"], models.content["b/1"]

        changes = await models.reloader.reload()

        assert changes == [
            change("a/1", Result.LOADED),
            change("a/2", Result.RETIRED),
            change("b/1", Result.RETIRED),
        ]
        assert models.serving() == ["a/1"]

    async def test_only_the_model_that_was_named_is_reloaded(self):
        models = await loaded("a/1", "b/1")
        models.content |= {"a/2": "1", "b/2": "1"}

        await models.reloader.reload("b")

        assert models.serving() == ["a/1", "b/2"]
        with pytest.raises(NotFound, match="'x', neither loaded nor in the repository"):
            await models.reloader.reload("x")

    async def test_there_are_never_three_versions_of_a_model(self):
        models = await loaded("a/1")
        with models.registry.models[0].in_use:
            models.content["a/2"] = "1"
            await models.reloader.reload()
            models.content["a/3"] = "1"
            third = asyncio.create_task(models.reloader.reload())
            await eventually(lambda: len(models.made) == 3)
            assert not models.made[2].has_begun

        await third
        assert models.serving() == ["a/3"]


class TestRefusals:
    async def test_bad_version_is_refused_and_the_old_one_stays_until_the_new_one_is_good(self):
        models = await loaded("a/1")
        models.content["a/2"] = "1"
        models.bad["a/2"] = ValueError("it is\nbad")

        changes = await models.reloader.reload()

        assert changes == [change("a/2", Result.REFUSED, "it is bad"), change("a/1", Result.UNCHANGED)]
        assert (models.serving(), models.refused()) == (["a/1"], {"a/2": "it is bad"})
        models.bad.clear()
        await models.reloader.reload()
        assert (models.serving(), models.refused()) == (["a/2"], {})

    async def test_refusal_stands_until_its_version_is_good_or_gone_or_a_higher_one_serves(self):
        models = Directory("a/1", "b/1", "c/1")
        models.bad |= {label: ValueError("bad") for label in ("a/2", "b/2", "c/2", "d/1")}
        models.content |= dict.fromkeys(models.bad, "1")
        await models.load()
        at_first = [models.registry.is_refused(name) for name in "abcde"]
        del models.bad["a/2"], models.content["b/2"], models.content["d/1"]
        models.content |= {"a/2": "2", "c/3": "1"}

        await models.reloader.look()
        await models.reloader.look()

        assert at_first == [True, True, True, True, False]
        assert models.serving() == ["a/2", "b/1", "c/3"]
        assert [models.registry.is_refused(name) for name in "abcde"] == [False] * 5

    async def test_refused_version_is_tried_again_when_asked_or_when_it_has_changed(self):
        models = Directory("a/1", "a/2")
        models.bad["a/2"] = ValueError("bad")
        await models.load()
        models.content["b/1"] = "1"
        models.checked.clear()

        for _ in range(2):
            await models.reloader.look()
        seen = [list(models.checked)]
        await models.reloader.reload()
        seen.append(list(models.checked))
        models.content["a/2"] = "2"
        for _ in range(2):
            await models.reloader.look()
        seen.append(list(models.checked))

        assert seen == [["b/1"], ["b/1", "a/2"], ["b/1", "a/2", "a/2"]]


class TestWatch:
    @pytest.mark.parametrize(
        ("states", "loaded"),
        [
            ("1111", "1"),  # what the start has loaded
            ("1222", "12"),
            ("1232333", "13"),  # somebody was still copying
            ("1221133", "1213"),
            ("12-22", "12"),  # gone for a moment
            ("1--", "1"),
        ],
    )
    async def test_change_is_followed_once_when_two_looks_have_seen_the_same(self, states, loaded):
        models = Directory("a/1")
        for number, state in enumerate(states):
            models.content = {} if state == "-" else {"a/1": state}
            if number == 0:
                await models.load()
            elif state == "-" and states[number - 1] != "-":
                with pytest.raises(FailedPrecondition):  # only the first time, so that it is logged once
                    await models.reloader.look()
            else:
                await models.reloader.look()

        assert [model.candidate.manifest_sha256 for model in models.made] == list(loaded)


class TestClose:
    async def test_reload_under_way_is_undone_and_its_caller_told(self):
        models = await loaded("a/1")
        models.content["a/2"] = "1"
        models.gate.clear()
        reloading = asyncio.create_task(models.reloader.reload())
        waiting = asyncio.create_task(models.reloader.reload())
        await eventually(lambda: len(models.made) == 2)

        await models.reloader.close()

        assert [model.is_closed for model in models.made] == [True, True]
        for caller in (reloading, waiting, models.reloader.reload()):
            with pytest.raises(Unavailable):
                await caller
