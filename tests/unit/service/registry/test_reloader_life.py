"""What a reloader keeps, what of it is ready, and how it ends."""

import asyncio
import gc
import weakref

import pytest

from service.errors import InternalError, Unavailable
from tests.fakes.calls import eventually
from tests.fakes.repository_in_memory import Directory


class TestReadiness:
    async def test_every_model_needs_an_engine_to_be_ready(self):
        models = Directory("a/1", "b/1")
        seen = [models.reloader.is_ready]
        await models.load()
        seen.append(models.reloader.is_ready)
        models.hosts[0].dispatcher.is_ready = False
        seen.append(models.reloader.is_ready)

        assert seen == [False, True, False]


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


async def test_thread_that_hangs_in_a_file_system_cannot_keep_the_process():
    models = Directory("a/1")
    await models.load()
    models.content["a/2"] = "1"
    await models.reloader.reload()
    await models.reloader.follow(models.scan())

    *own, direct = [*models.were_daemons[:-2], models.were_daemons[-1], models.were_daemons[-2]]
    assert own == [True] * 5  # a scan and a check at the start, both again, and a scan to follow
    assert direct is False  # the test's own


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
