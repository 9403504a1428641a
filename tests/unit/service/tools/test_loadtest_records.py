"""When calls are due, and what the records of calls say."""

import numpy as np
import pytest

from service.tools.loadtest import Records, due_times, summarize
from tests.fakes.ended_calls import records


def test_only_answered_calls_have_latency():
    calls = records([0, 1, 2, 3], [0.1, 0.2, 0.9, 0.001], ["OK", "OK", "OK", "RESOURCE_EXHAUSTED"])

    summary = summarize(calls, 4.0)

    assert (summary.ok_rate, summary.offered_rate) == (0.75, 1.0)
    assert summary.codes == {"OK": 3, "RESOURCE_EXHAUSTED": 1}
    assert summary.latency_ms["p50"] == pytest.approx(200.0)
    assert summary.refusal_ms_p99 == pytest.approx(1.0)


def test_the_warm_up_is_cut_by_when_calls_were_due_and_what_was_done_by_when_it_was_answered():
    calls = records([0, 1, 2, 3, 3], [2.5, 0.5, 0.5, 1.5, 0.5], ["OK"] * 4 + ["RESOURCE_EXHAUSTED"])

    summary = summarize(calls, 4.0, warm_up_s=2.0)

    assert (summary.done_rate, summary.done_texts_rate) == (1.0, 1.0)  # the first and the third
    assert (summary.offered_rate, summary.ok_rate) == (1.5, 1.0)  # of those from the third on


def test_a_full_server_is_shown_to_answer_what_it_can_and_not_what_it_was_offered():
    offered, capacity, duration_s = 180.0, 100.0, 30.0
    due = np.arange(round(offered * duration_s)) / offered
    answered = (np.arange(len(due)) + 1) / capacity  # one after the other, long after the stage too

    summary = summarize(records(due, answered - due), duration_s, warm_up_s=5.0)

    rates = (summary.offered_rate, summary.done_rate, summary.done_texts_rate)
    assert [round(rate, 1) for rate in rates] == [180.0, 100.0, 100.0]
    assert summary.ok_rate == 180.0


def test_workers_records_are_joined_in_order():
    both = Records.joined([records([0, 2], [1, 1]), records([1, 3], [2, 2])])

    assert both.due.tolist() == [0, 1, 2, 3]
    assert both.latency_s.tolist() == [1, 2, 1, 2]


def test_constant_arrivals_keep_their_gap():
    assert due_times(4, 1, None).tolist() == [0.0, 0.25, 0.5, 0.75]


@pytest.mark.parametrize("seed", range(5))
def test_poisson_arrivals_are_exactly_as_many_as_the_rate_says(seed):
    assert len(due_times(97.5, 20, np.random.default_rng(seed))) == 1950
