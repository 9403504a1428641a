"""Smaller beams under load, where the caller allows it."""

import pytest

from service.config import LimitsConfig
from service.engine.job import SearchParams
from service.traffic.admission import Admission
from service.traffic.brownout import smaller_beam


@pytest.mark.parametrize(
    ("waiting_s", "beams"),
    [(0.0, [1, 2, 4, 5, 16]), (1.9, [1, 2, 4, 5, 16]), (2.0, [1, 1, 2, 2, 8]), (4.0, [1, 1, 1, 1, 4])],
)
def test_beam_is_halved_at_the_threshold_and_again_at_twice_as_much(waiting_s, beams):
    found = [
        smaller_beam(SearchParams(beam_size=beam), waiting_s=waiting_s, threshold_s=2.0).beam_size
        for beam in (1, 2, 4, 5, 16)
    ]

    assert found == beams


def test_beam_holds_the_hypotheses_that_were_asked_for():
    params = SearchParams(beam_size=8, num_hypotheses=3)

    assert smaller_beam(params, waiting_s=100.0, threshold_s=1.0).beam_size == 3


def test_nothing_else_changes():
    params = SearchParams(beam_size=4, num_hypotheses=2, length_penalty=0.5, patience=2.0, max_target_tokens=9)

    found = smaller_beam(params, waiting_s=100.0, threshold_s=1.0)

    assert found == SearchParams(beam_size=2, num_hypotheses=2, length_penalty=0.5, patience=2.0, max_target_tokens=9)


@pytest.mark.parametrize(
    ("threshold_s", "is_allowed", "beam"), [(1.0, True, 1), (1.0, False, 4), (None, True, 4), (None, False, 4)]
)
def test_beam_changes_only_where_server_and_caller_say_so(threshold_s, is_allowed, beam):
    admission = Admission(LimitsConfig(brownout_seconds=threshold_s))

    assert admission.brown_out(SearchParams(), is_allowed=is_allowed, waiting_s=100.0).beam_size == beam
