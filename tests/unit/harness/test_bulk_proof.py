"""The proof of `dragoman bulk`: when it kills, and what it makes of what it saw."""

from typing import Any

import pytest

from tests.bulk_proof.__main__ import facts
from tests.bulk_proof.runs import LAST, planned

GOOD: dict[str, Any] = {
    "engine": "local",
    "sha256": "ab",
    "sha256_after_kills": "ab",
    "kills": 10,
    "in_a_write": "170 of 340 bytes of part 3",
    "answered_twice": 900,
    "left_over": False,
}


@pytest.mark.parametrize("seed", range(5))
def test_ten_kills_come_before_the_work_can_be_done_and_one_is_inside_a_write(seed):
    kills = planned(seed, 10, 400.0)

    moments = [kill.after_s for kill in kills if kill.after_s is not None]
    assert (len(kills), len(moments)) == (10, 9)
    assert min(moments) >= 0
    assert sum(moments) <= LAST * 400.0
    assert kills == planned(seed, 10, 400.0) != planned(seed + 1, 10, 400.0)


@pytest.mark.parametrize(
    ("change", "broken"),
    [
        ({}, 0),
        ({"engine": "ray", "kills": 1, "in_a_write": None}, 0),
        ({"sha256_after_kills": "cd"}, 1),
        ({"kills": 9}, 1),
        ({"in_a_write": None}, 1),
        ({"answered_twice": -1}, 1),
        ({"left_over": True}, 1),
    ],
)
def test_each_thing_that_went_wrong_is_said(change, broken):
    assert sum(facts({**GOOD, **change}, 10).values()) == broken
