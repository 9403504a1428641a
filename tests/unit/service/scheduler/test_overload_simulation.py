"""Overload and fairness in virtual time: a server of 100 sentences a second, ten at a time, 100 ms each.

The job queue, placement, estimates, admission and the engine's scheduler are the real ones; see
tests/fakes/simulated_server.py.  Without a clock, so the figures are the same everywhere; tests/reliability holds the
promises with real processes.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from service.call import Caller
from service.config import LimitsConfig
from service.engine.wire import SearchParams
from service.records import Priority
from tests.fakes.simulated_server import Request, SimulatedServer, percentile, poisson

CAPACITY = 100.0
UNLIMITED = LimitsConfig(max_concurrent_requests=100_000)  # refusals come from estimates alone
PATIENT = replace(UNLIMITED, max_queued_tokens=10**8, max_queue_seconds=1_000.0)
CALL_S = 0.001  # of the core's time
ANYONE = Caller(name="anyone")
EQUAL, MIXED = (10,), tuple(range(4, 17))  # decoder steps of a sentence
SHAPES = {  # by name: steps, rows, beam, seconds a step
    "equal lengths": (EQUAL, 10, 1, 0.01),
    "mixed lengths": (MIXED, 10, 1, 0.01),
    "beam 4": (MIXED, 40, 4, 0.01),
    "one at a time": (EQUAL, 1, 1, 0.001),
}


def run(
    *clients: list[Request], shape: str = "equal lengths", limits: LimitsConfig = UNLIMITED, call_s: float = CALL_S
) -> SimulatedServer:
    _, max_rows, beam, step_s = SHAPES[shape]
    params = SearchParams(beam_size=beam)
    server = SimulatedServer(step_s=step_s, max_rows=max_rows, params=params, limits=limits, call_s=call_s)
    server.run(clients)
    assert (server.admission.requests, server.admission.tokens) == (0, 0)  # every reservation came back
    return server


def in_time(requests: Sequence[Request]) -> list[Request]:
    return [request for request in requests if request.done_at is not None]


def p99(requests: Sequence[Request]) -> float:
    return percentile([request.latency_s for request in in_time(requests)], 0.99)


def answered(requests: Sequence[Request], seconds: float) -> float:
    """A second, before the arrivals end."""
    return sum(request.done_at <= seconds for request in in_time(requests) if request.done_at) / seconds


class TestOverload:
    @pytest.mark.parametrize(
        ("shape", "times"),
        [
            ("mixed lengths", 10),
            ("beam 4", 2),
            pytest.param("equal lengths", 2, marks=pytest.mark.thorough),
            pytest.param("one at a time", 10, marks=pytest.mark.thorough),
        ],
    )
    def test_goodput_is_nearly_the_capacity(self, shape, times):
        """With a deadline of four times the unloaded p99; the others are told at once, not after a wait."""
        steps = SHAPES[shape][0]
        unloaded = poisson(ANYONE, 0.02 * CAPACITY, 60.0, seed=1, num_steps=steps)
        run(unloaded, shape=shape, call_s=0.0)
        requests = poisson(ANYONE, times * CAPACITY, 8.0, seed=2, num_steps=steps, timeout_s=4 * p99(unloaded))

        server = run(requests, shape=shape, call_s=0.0)

        good, refused = len(in_time(requests)), sum(r.refused == "deadline_unattainable" for r in requests)
        assert good >= 0.97 * CAPACITY * 8.0
        assert refused >= 0.95 * (len(requests) - good)
        assert server.wasted_row_steps <= 0.02 * server.row_steps

    def test_nobody_is_refused_for_an_estimate_below_capacity(self):
        requests = poisson(ANYONE, 0.7 * CAPACITY, 15.0, seed=3, num_steps=MIXED, timeout_s=1.0)

        run(requests, shape="mixed lengths")

        assert in_time(requests) == requests

    def test_without_deadlines_the_queue_is_as_long_as_it_may_be(self):
        requests = poisson(ANYONE, 4 * CAPACITY, 8.0, seed=4)

        run(requests, limits=replace(UNLIMITED, max_queue_seconds=2.0))

        assert {request.refused for request in requests} == {"", "queue_seconds"}
        assert 1.8 <= max(request.latency_s for request in in_time(requests)) <= 2.5

    def test_server_is_itself_again_as_soon_as_the_overload_ends(self):
        flood = poisson(ANYONE, 10 * CAPACITY, 5.0, seed=5, timeout_s=0.44)
        later = poisson(ANYONE, 0.5 * CAPACITY, 12.0, seed=6, timeout_s=0.44)

        run(flood, later, call_s=0.0)

        after = [request for request in later if request.at > 5.5]
        assert in_time(after) == after
        assert p99(after) <= 0.2


def growing() -> SimulatedServer:
    """As the included model on one core: room for 64 sentences, whose steps are 25 times as long as those of one."""
    return SimulatedServer(
        step_s=0.0007, row_s=0.000075, max_rows=256, params=SearchParams(beam_size=4), limits=UNLIMITED
    )


class TestStepsThatGrow:
    @pytest.fixture
    def hurried(self) -> Callable[[float], list[Request]]:
        """Ten seconds at so many times the capacity of a `growing` server; deadline of four times the unloaded p99."""
        lengths = range(4, 41)
        saturating = poisson(ANYONE, 400.0, 8.0, seed=1, num_steps=lengths)
        growing().run([saturating])
        capacity = sum(2.0 < request.done_at < 8.0 for request in in_time(saturating) if request.done_at) / 6.0
        unloaded = poisson(ANYONE, 0.1 * capacity, 20.0, seed=2, num_steps=lengths)
        growing().run([unloaded])

        def requests(times: float) -> list[Request]:
            deadline_s = 4 * p99(unloaded)
            return poisson(ANYONE, times * capacity, 10.0, seed=3, num_steps=lengths, timeout_s=deadline_s)

        return requests

    @pytest.mark.parametrize("times", [2.0, pytest.param(5.0, marks=pytest.mark.thorough)])
    def test_engines_are_filled_as_far_as_deadlines_allow(self, hurried, times):
        requests, server = hurried(times), growing()

        server.run([requests])

        assert len(in_time(requests)) >= 0.95 * len(requests) / times
        assert 4 * server.wasted_row_steps <= 0.12 * server.row_steps

    def test_a_document_makes_the_short_texts_of_others_half_as_long_again_and_no_longer(self):
        caller, steps = Caller(name="document"), range(20, 41)
        alone, beside = (poisson(ANYONE, 10.0, 5.0, seed=4, num_steps=range(6, 13)) for _ in range(2))
        whole, shared = (
            poisson(caller, 100.0, 5.0, seed=5, num_steps=steps, priority=Priority.BATCH) for _ in range(2)
        )
        growing().run([alone])
        growing().run([whole])

        growing().run([beside, shared])

        assert p99(beside) <= 1.7 * p99(alone)  # a step passes before a text begins
        assert answered(shared, 5.0) >= 0.25 * answered(whole, 5.0)


def tokens(requests: Sequence[Request]) -> float:
    """Answered in time, a second, from the third to the twelfth."""
    done = (request for request in in_time(requests) if request.done_at and 3.0 < request.done_at <= 12.0)
    return sum(request.source_tokens for request in done) / 9.0


class TestLengths:
    """Twice the capacity, which is 1,000 tokens a second; a text has as many tokens as its translation takes steps."""

    @pytest.mark.parametrize(
        ("steps", "timeout_s"), [("equal steps", 1.0), ("equal steps", 3.0), ("growing steps", 2.0)]
    )
    def test_callers_with_short_and_long_texts_have_the_same_tokens_answered(self, steps, timeout_s):
        """Long texts have less time to wait, so that fewer wait; those that come later go before short ones, too."""
        capacity = 1_000.0 if steps == "equal steps" else 3_200.0
        short, long = (
            poisson(Caller(name=f"{length}"), capacity / length, 12.0, seed=1, num_steps=(length,), timeout_s=timeout_s)
            for length in (8, 40)
        )
        if steps == "equal steps":
            run(short, long)
        else:
            growing().run([short, long])

        assert min(tokens(short), tokens(long)) >= 0.9 * max(tokens(short), tokens(long))
        assert tokens(short) + tokens(long) >= 0.97 * capacity

    def test_callers_with_little_and_much_time_have_the_same_tokens_answered(self):
        hurried, patient = (
            poisson(Caller(name=f"{timeout_s}"), CAPACITY, 12.0, seed=2, timeout_s=timeout_s)
            for timeout_s in (0.5, 3.0)
        )

        run(hurried, patient)

        assert min(tokens(hurried), tokens(patient)) >= 0.9 * max(tokens(hurried), tokens(patient))

    def test_refusing_the_long_texts_of_a_caller_costs_no_tokens(self):
        """One caller's texts wait equally long, so that under overload only the shorter ones are in time."""
        requests = poisson(ANYONE, 2 * 1_000.0 / 24, 12.0, seed=3, num_steps=range(8, 41), timeout_s=1.0)

        run(requests)

        assert tokens(requests) >= 0.97 * 1_000.0
        assert {request.refused for request in requests if request.source_tokens <= 12} == {""}


def nine(seed: int, steps: Sequence[int] = EQUAL) -> list[list[Request]]:
    """Nine callers with half of the capacity."""
    return [poisson(Caller(name=f"{n}"), CAPACITY / 18, 15.0, seed=100 * seed + n, num_steps=steps) for n in range(9)]


def beside_a_greedy_tenth(seed: int, shape: str) -> tuple[float, float]:
    """The nine's p99 as a multiple of what it is alone, and row-steps done a second as a share of the capacity.

    The tenth asks for four and a half times the capacity.
    """
    steps, max_rows, beam, step_s = SHAPES[shape]
    alone, beside = nine(seed, steps), nine(seed, steps)
    greedy = poisson(Caller(name="greedy"), 4.5 * CAPACITY, 15.0, seed=100 * seed + 99, num_steps=steps)
    run(*alone, shape=shape)
    run(*beside, greedy, shape=shape)
    others, before = ([request for client in clients for request in client] for clients in (beside, alone))
    assert in_time(others) == others
    answered_late = [one for one in in_time([*others, *greedy]) if one.done_at and 5.0 < one.done_at <= 15.0]
    work = beam * sum(request.num_steps for request in answered_late)
    return p99(others) / p99(before), work * step_s / (10.0 * max_rows)


class TestGreedyCaller:
    @pytest.mark.parametrize("shape", ["mixed lengths", pytest.param("beam 4", marks=pytest.mark.thorough)])
    def test_greedy_caller_keeps_the_p99_of_the_others_within_two_and_a_half_times(self, shape):
        """A refusal costs a millisecond of the core, and the calls of the nine wait for 450 a second."""
        ratio, work = beside_a_greedy_tenth(1, shape)

        assert ratio <= 2.4
        assert work >= 0.97

    def test_callers_with_narrow_and_wide_beams_leave_no_rows_unused(self):
        """Sentences of one row that run for long, beside those of 16 that run for a moment; 70 % of the capacity."""
        one_row, sixteen = SearchParams(beam_size=1), SearchParams(beam_size=16)
        narrow = poisson(Caller(name="a"), 22.4, 20.0, seed=1, num_steps=(200,), timeout_s=6.0, params=one_row)
        wide = poisson(Caller(name="b"), 28.0, 20.0, seed=2, timeout_s=0.5, params=sixteen)

        SimulatedServer(max_rows=128, limits=UNLIMITED).run([narrow, wide])

        for requests in (narrow, wide):
            assert len(in_time(requests)) >= 0.99 * len(requests)

    def test_long_texts_of_a_greedy_caller_do_not_fill_an_engine_beyond_its_source_tokens(self):
        """Rows are free then, and whatever is given to the engine waits inside, first come, first served."""
        alone, beside = ([request for client in nine(1) for request in client] for _ in range(2))
        greedy = poisson(Caller(name="greedy"), 500.0, 10.0, seed=999, timeout_s=20.0)
        for request in greedy:
            request.source_tokens = 300
        SimulatedServer(max_rows=128, limits=PATIENT).run([alone])

        SimulatedServer(max_rows=128, limits=PATIENT).run([beside, greedy])

        assert p99(beside) <= 2.0 * p99(alone)

    @pytest.mark.parametrize(("beam", "max_rows"), [(4, 1), pytest.param(16, 8, marks=pytest.mark.thorough)])
    def test_engine_with_fewer_rows_than_a_beam_is_never_idle_for_two_callers(self, beam, max_rows):
        """As after memory was short; a sentence then runs alone, and the next one follows at once."""
        clients = [poisson(Caller(name=name), 30.0, 10.0, seed=seed) for seed, name in enumerate("ab")]

        SimulatedServer(max_rows=max_rows, params=SearchParams(beam_size=beam), limits=PATIENT).run(clients)

        assert sum(answered(requests, 10.0) for requests in clients) >= 9.7  # of ten


@pytest.mark.parametrize("shape", ["mixed lengths"])
def test_interactive_work_hardly_notices_batch_work_of_the_same_caller(shape):
    """60 % of the capacity beside 80 % that has waited longer than the aging time."""
    steps, limits = SHAPES[shape][0], replace(UNLIMITED, batch_aging_s=3.0)
    alone, beside = (poisson(ANYONE, 0.6 * CAPACITY, 20.0, seed=1, num_steps=steps) for _ in range(2))
    batch = poisson(ANYONE, 0.8 * CAPACITY, 20.0, seed=51, num_steps=steps, timeout_s=60.0, priority=Priority.BATCH)
    run(alone, limits=limits)

    run(beside, batch, limits=limits)

    assert p99(beside) <= 2.5 * p99(alone)
    assert answered(batch, 20.0) >= 0.35 * CAPACITY  # all that the interactive work leaves over
