"""Documents that are translated after the answer to who sent them."""

import pytest

from service.api.http.files import KEPT_S, LOST_AFTER_S, MAX_OWN_OPEN, FileStore, JobStatus
from service.errors import Overloaded

OWNER = ("key", "shop")


async def test_job_is_found_by_id_and_key_together():
    jobs = FileStore()
    name, key = await jobs.begin_document(OWNER)
    other, other_key = await jobs.begin_document(OWNER)

    assert await jobs.find_document(name, key) == JobStatus("queued")
    assert [
        await jobs.find_document(name, other_key),
        await jobs.find_document(other, key),
        await jobs.find_document("x", key),
    ] == [None] * 3


async def test_client_has_so_many_open_jobs_and_others_have_theirs():
    jobs = FileStore()
    names = [(await jobs.begin_document(OWNER))[0] for _ in range(MAX_OWN_OPEN)]

    with pytest.raises(Overloaded, match=f"{MAX_OWN_OPEN} documents of this client wait"):
        await jobs.begin_document(OWNER)
    await jobs.begin_document(("key", "other"))
    await jobs.note_document(names[0], JobStatus("done"))
    await jobs.begin_document(OWNER)


async def test_job_that_nothing_is_heard_of_is_lost_and_one_that_is_over_is_forgotten():
    now = 100.0
    jobs = FileStore(clock=lambda: now)
    lost, done = await jobs.begin_document(OWNER), await jobs.begin_document(OWNER)
    await jobs.note_document(done[0], JobStatus("done"))
    now += LOST_AFTER_S + 1
    found = await jobs.find_document(*lost)

    assert found is not None
    assert (found.state, "send it again" in found.message) == ("error", True)
    now += KEPT_S + 1
    assert [await jobs.find_document(*lost), await jobs.find_document(*done)] == [None, None]
