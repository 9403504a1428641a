"""Documents that are translated after the answer to who sent them."""

import pytest

from service.api.http.files import KEPT_S, LOST_AFTER_S, MAX_OWN_OPEN, DocumentJobs, JobStatus
from service.errors import Overloaded

OWNER = ("key", "shop")


def test_job_is_found_by_id_and_key_together():
    jobs = DocumentJobs()
    name, key = jobs.begin(OWNER)
    other, other_key = jobs.begin(OWNER)

    assert jobs.find(name, key) == JobStatus("queued")
    assert [jobs.find(name, other_key), jobs.find(other, key), jobs.find("x", key)] == [None] * 3


def test_client_has_so_many_open_jobs_and_others_have_theirs():
    jobs = DocumentJobs()
    names = [jobs.begin(OWNER)[0] for _ in range(MAX_OWN_OPEN)]

    with pytest.raises(Overloaded, match=f"{MAX_OWN_OPEN} documents of this client wait"):
        jobs.begin(OWNER)
    jobs.begin(("key", "other"))
    jobs.note(names[0], JobStatus("done"))
    jobs.begin(OWNER)


def test_job_that_nothing_is_heard_of_is_lost_and_one_that_is_over_is_forgotten():
    now = 100.0
    jobs = DocumentJobs(clock=lambda: now)
    lost, done = jobs.begin(OWNER), jobs.begin(OWNER)
    jobs.note(done[0], JobStatus("done"))
    now += LOST_AFTER_S + 1
    found = jobs.find(*lost)

    assert found is not None
    assert (found.state, "send it again" in found.message) == ("error", True)
    now += KEPT_S + 1
    assert [jobs.find(*lost), jobs.find(*done)] == [None, None]
