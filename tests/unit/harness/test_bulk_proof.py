"""The proof of `dragoman bulk`: when it kills, and what it makes of what it saw."""

from typing import Any

import pytest

from tests.bulk_proof.__main__ import broken
from tests.bulk_proof.kills import LAST, planned

GOOD: dict[str, Any] = {
    "engine": "local",
    "sha256": "ab",
    "sha256_after_kills": "ab",
    "kills": 10,
    "in_a_write": "170 of 340 bytes of part 3",
    "answered_twice": 900,
    "left_over": False,
}


@pytest.mark.parametrize("seed", range(20))
def test_ten_kills_come_before_the_work_can_be_done_and_one_is_inside_a_write(seed):
    kills = planned(seed, 10, 400.0)

    moments = [kill.after_s for kill in kills if kill.after_s is not None]
    assert (len(kills), len(moments)) == (10, 9)
    assert all(moment >= 0 for moment in moments)
    assert sum(moments) <= LAST * 400.0


def test_the_same_seed_plans_the_same_kills():
    assert planned(1, 10, 60.0) == planned(1, 10, 60.0) != planned(2, 10, 60.0)


def test_a_run_that_kept_everything_has_nothing_broken():
    assert broken(GOOD, 10) == []
    assert broken({**GOOD, "engine": "ray", "kills": 1, "in_a_write": None}, 10) == []


@pytest.mark.parametrize(
    "change",
    [
        {"sha256_after_kills": "cd"},
        {"kills": 9},
        {"in_a_write": None},
        {"answered_twice": -1},
        {"left_over": True},
    ],
)
def test_each_thing_that_went_wrong_is_said(change):
    assert len(broken({**GOOD, **change}, 10)) == 1
