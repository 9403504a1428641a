"""What serves at the start: the best good version of each name, or else the reason why none does."""

import asyncio

import pytest

from service.errors import InternalError
from tests.fakes.calls import eventually
from tests.fakes.repository_in_memory import Directory


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

    async def test_bad_bundle_of_a_required_model_fails_the_start_before_anything_starts(self):
        models = Directory("a/1", "b/1")
        models.are_required = True
        models.bad["b/1"] = ValueError("it is bad")

        with pytest.raises(ValueError, match="it is bad"):
            await models.load()

        assert models.hosts == []

    async def test_required_model_that_does_not_start_fails_the_start(self):
        models = Directory("a/1", "b/1", "c/1")
        models.are_required = True
        models.broken["b/1"] = InternalError("the engine did not start")

        with pytest.raises(InternalError, match="the engine did not start"):
            await models.load()

    async def test_cancelled_load_closes_what_it_has_begun(self):
        models = Directory("a/1")
        models.gate.clear()
        loading = asyncio.create_task(models.load())
        await eventually(lambda: bool(models.hosts))

        loading.cancel()
        await asyncio.gather(loading, return_exceptions=True)

        assert models.hosts[0].is_closed
