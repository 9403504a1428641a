"""Overload and fairness in virtual time: a server of 100 sentences a second, ten at a time, 100 ms each.

The queue, the estimates, admission and the engine's scheduler are the real ones; see tests/fakes/simulated_server.py.
Without a clock, so the figures are the same everywhere; tests/reliability repeats this with real processes.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from service.config import LimitsConfig
from service.engine.job import SearchParams
from service.queue.callers import Caller, Priority
from service.queue.step_time import StepTime
from tests.fakes.simulated_server import Front, Request, SimulatedServer, percentile, poisson

CAPACITY = 100.0
PROMPT = Front(call_s=0.001)
PAUSING = Front(call_s=0.001, pause_s=0.1, pause_every_s=2.8)  # as with Python's own garbage collection
UNLIMITED = LimitsConfig(max_concurrent_requests=100_000)  # refusals come from estimates alone
ANYONE = Caller(name="anyone")
EQUAL, MIXED = (10,), tuple(range(4, 17))  # decoder steps of a sentence
SHAPES = {  # by name: steps, rows, beam, seconds a step
    "equal lengths": (EQUAL, 10, 1, 0.01),
    "mixed lengths": (MIXED, 10, 1, 0.01),
    "beam 4": (MIXED, 40, 4, 0.01),
    "one at a time": (EQUAL, 1, 1, 0.001),
}


def run(shape: str, *clients: list[Request]) -> SimulatedServer:
    _, max_rows, beam, step_s = SHAPES[shape]
    server = SimulatedServer(step_s=step_s, max_rows=max_rows, params=SearchParams(beam_size=beam), limits=UNLIMITED)
    server.run(clients)
    assert (server.admission.requests, server.admission.tokens) == (0, 0)  # every permit came back
    return server


def p99(requests: Sequence[Request]) -> float:
    return percentile([request.latency_s for request in requests if request.done_at is not None], 0.99)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("times", [2, 10])
def test_goodput_under_overload_is_nearly_the_capacity(shape, times):
    """With a deadline of four times the unloaded p99."""
    steps, seconds = SHAPES[shape][0], 8.0
    unloaded = poisson(ANYONE, 0.02 * CAPACITY, 60.0, seed=1, num_steps=steps)
    run(shape, unloaded)
    timeout_s = 4 * p99(unloaded)
    requests = poisson(ANYONE, times * CAPACITY, seconds, seed=2, num_steps=steps, timeout_s=timeout_s)

    server = run(shape, requests)

    in_time = sum(request.done_at is not None for request in requests)
    refused = Counter(request.refused for request in requests)
    assert in_time / seconds >= 0.97 * CAPACITY
    assert refused["deadline_unattainable"] >= 0.95 * (len(requests) - in_time)  # told at once, not after a wait
    assert server.wasted_row_steps <= 0.02 * server.row_steps


def growing() -> SimulatedServer:
    """As the included model on one core: room for 64 sentences, whose steps are 25 times as long as those of one."""
    return SimulatedServer(
        step_s=0.0007, row_s=0.000075, max_rows=256, params=SearchParams(beam_size=4), limits=UNLIMITED
    )


def in_time(requests: Sequence[Request]) -> int:
    return sum(request.done_at is not None for request in requests)


@pytest.fixture
def hurried() -> Callable[[float], list[Request]]:
    """Ten seconds at so many times the capacity of a `growing` server; deadline of four times the unloaded p99."""
    lengths = range(4, 41)
    saturating = poisson(ANYONE, 400.0, 8.0, seed=1, num_steps=lengths)
    growing().run([saturating])
    capacity = sum(request.done_at is not None and 2.0 < request.done_at < 8.0 for request in saturating) / 6.0
    unloaded = poisson(ANYONE, 0.1 * capacity, 20.0, seed=2, num_steps=lengths)
    growing().run([unloaded])
    timeout_s = 4 * p99(unloaded)
    return lambda times: poisson(ANYONE, times * capacity, 10.0, seed=3, num_steps=lengths, timeout_s=timeout_s)


@pytest.mark.parametrize("times", [2.0, 5.0])
def test_engines_whose_steps_grow_are_filled_as_far_as_deadlines_allow(hurried, times):
    requests, server = hurried(times), growing()

    server.run([requests])

    assert in_time(requests) >= 0.95 * len(requests) / times
    assert 4 * server.wasted_row_steps <= 0.12 * server.row_steps


def test_one_time_for_all_steps_would_fill_them_with_what_is_late_together(hurried, monkeypatch):
    monkeypatch.setattr(StepTime, "at", lambda *_: 0.0)  # so that the mean of those that ended counts
    requests, server = hurried(2.0), growing()

    server.run([requests])

    assert 4 * server.wasted_row_steps > 0.15 * server.row_steps


def test_short_deadlines_below_capacity_are_met(hurried):
    requests = hurried(0.7)

    growing().run([requests])

    assert in_time(requests) >= 0.99 * len(requests)


@pytest.mark.parametrize("shape", ["equal lengths", "mixed lengths", "beam 4"])
@pytest.mark.parametrize("seed", [1, 2])
def test_greedy_client_does_not_double_the_p99_of_the_others(shape, seed):
    """Nine clients with half of the capacity, alone and beside a tenth that asks for four and a half times of it."""
    steps, seconds = SHAPES[shape][0], 15.0

    def nine() -> list[list[Request]]:
        return [
            poisson(Caller(name=f"{n}"), CAPACITY / 18, seconds, seed=100 * seed + n, num_steps=steps) for n in range(9)
        ]

    alone, beside = nine(), nine()
    greedy = poisson(Caller(name="greedy"), 4.5 * CAPACITY, seconds, seed=100 * seed + 99, num_steps=steps)
    run(shape, *alone)

    run(shape, *beside, greedy)

    others = [request for caller in beside for request in caller]
    assert all(request.done_at is not None for request in others)
    assert p99(others) <= 1.9 * p99([request for caller in alone for request in caller])
    answered = [r for r in [*others, *greedy] if r.done_at is not None and r.done_at <= seconds]
    assert len(answered) / seconds >= 0.97 * CAPACITY


@pytest.mark.parametrize(("steps", "most"), [(20, 2.4), (40, 4.0)])
@pytest.mark.parametrize("seed", [1, 2])
def test_long_sentences_of_a_greedy_client_are_waited_for_in_proportion(steps, most, seed):
    """Nothing that runs gives its rows back; the nine have sentences of ten steps."""

    def nine() -> list[list[Request]]:
        return [poisson(Caller(name=f"{n}"), CAPACITY / 18, 15.0, seed=100 * seed + n) for n in range(9)]

    alone, beside = nine(), nine()
    greedy = poisson(Caller(name="greedy"), 45.0 * CAPACITY / steps, 15.0, seed=100 * seed + 99, num_steps=(steps,))
    run("equal lengths", *alone)

    run("equal lengths", *beside, greedy)

    def later(clients: list[list[Request]]) -> list[Request]:  # when enough has been measured
        return [request for caller in clients for request in caller if request.at > 5.0]

    assert p99(later(beside)) <= most * p99(later(alone))


def answered(requests: Sequence[Request], seconds: float) -> float:
    """A second."""
    return sum(r.done_at is not None and r.done_at <= seconds for r in requests) / seconds


def test_clients_with_narrow_and_wide_beams_leave_no_rows_unused():
    """Sentences of one row that run for long, beside those of 16 that run for a moment; 70 % of the capacity."""
    narrow = poisson(
        Caller(name="a"), 22.4, 20.0, seed=1, num_steps=(200,), timeout_s=6.0, params=SearchParams(beam_size=1)
    )
    wide = poisson(
        Caller(name="b"), 28.0, 20.0, seed=2, num_steps=(10,), timeout_s=0.5, params=SearchParams(beam_size=16)
    )

    SimulatedServer(max_rows=128, limits=UNLIMITED).run([narrow, wide])

    assert in_time(narrow) >= 0.99 * len(narrow)
    assert in_time(wide) >= 0.99 * len(wide)


def test_long_texts_of_a_greedy_client_do_not_fill_an_engine_beyond_its_source_tokens():
    """Rows are free then, and whatever is given to the engine waits inside, first come, first served."""

    def nine() -> list[list[Request]]:
        return [poisson(Caller(name=f"{n}"), 4.0, 10.0, seed=100 + n) for n in range(9)]

    alone, beside = nine(), nine()
    greedy = poisson(Caller(name="greedy"), 500.0, 10.0, seed=999, timeout_s=20.0)
    for request in greedy:
        request.source_tokens = 300
    generous = replace(UNLIMITED, max_queued_tokens=10**8, max_queue_seconds=1_000.0)
    SimulatedServer(max_rows=128, limits=generous).run(alone)

    SimulatedServer(max_rows=128, limits=generous).run([*beside, greedy])

    others = [request for caller in beside for request in caller]
    assert p99(others) <= 2.0 * p99([request for caller in alone for request in caller])


@pytest.mark.parametrize(("beam", "max_rows"), [(4, 2), (4, 1), (16, 8)])
def test_an_engine_with_fewer_rows_than_a_beam_is_never_idle_for_two_clients(beam, max_rows):
    """As after memory was short; a sentence then runs alone, and the next one follows at once."""
    clients = [poisson(Caller(name=name), 30.0, 10.0, seed=seed) for seed, name in enumerate("ab")]
    generous = replace(UNLIMITED, max_queue_seconds=1_000.0)

    SimulatedServer(max_rows=max_rows, params=SearchParams(beam_size=beam), limits=generous).run(clients)

    assert sum(answered(requests, 10.0) for requests in clients) >= 9.7  # of ten


def nine_beside_a_greedy_tenth(seed: int, front: Front) -> float:
    """The nine's p99, in multiples of what it is alone with a front process that never pauses."""

    def nine() -> list[list[Request]]:
        return [poisson(Caller(name=f"{n}"), CAPACITY / 18, 15.0, seed=100 * seed + n) for n in range(9)]

    alone, beside = nine(), nine()
    greedy = poisson(Caller(name="greedy"), 4.5 * CAPACITY, 15.0, seed=100 * seed + 99, timeout_s=5.0)
    limits = LimitsConfig(max_concurrent_requests=100_000)
    SimulatedServer(limits=limits, front=PROMPT).run(alone)
    SimulatedServer(limits=limits, front=front).run([*beside, greedy])
    return p99([request for caller in beside for request in caller]) / p99([r for caller in alone for r in caller])


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_front_process_that_never_pauses_keeps_twice_the_p99(seed):
    """A refusal costs a millisecond, and the calls of the nine wait for 450 of them a second."""
    assert nine_beside_a_greedy_tenth(seed, PROMPT) <= 1.9


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_pauses_of_the_front_process_alone_break_it(seed):
    """Why `lifecycle.spare_what_is_loaded` is there."""
    assert nine_beside_a_greedy_tenth(seed, PAUSING) > 2.0


@pytest.mark.parametrize("shape", ["equal lengths", "mixed lengths"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_interactive_work_hardly_notices_batch_work_of_the_same_client(shape, seed):
    """60 % of the capacity beside 80 % that has waited longer than the aging time."""
    steps, seconds = SHAPES[shape][0], 20.0
    limits = LimitsConfig(max_concurrent_requests=100_000, batch_aging_s=3.0)
    alone, beside = (poisson(ANYONE, 0.6 * CAPACITY, seconds, seed=seed, num_steps=steps) for _ in range(2))
    batch = poisson(
        ANYONE, 0.8 * CAPACITY, seconds, seed=seed + 50, num_steps=steps, timeout_s=60.0, priority=Priority.BATCH
    )
    SimulatedServer(limits=limits).run([alone])

    SimulatedServer(limits=limits).run([beside, batch])

    assert p99(beside) <= 2.2 * p99(alone)
    answered = sum(request.done_at is not None and request.done_at <= seconds for request in batch)
    assert answered >= 0.35 * CAPACITY * seconds  # all that the interactive work leaves over


def test_nobody_is_refused_for_an_estimate_below_capacity():
    requests = poisson(ANYONE, 0.7 * CAPACITY, 15.0, seed=3, num_steps=MIXED, timeout_s=1.0)

    run("mixed lengths", requests)

    assert all(request.done_at is not None for request in requests)


def test_without_deadlines_the_queue_is_as_long_as_it_may_be():
    """30 s of work by default; here 2 s."""
    requests = poisson(ANYONE, 4 * CAPACITY, 8.0, seed=4)
    limits = LimitsConfig(max_concurrent_requests=100_000, max_queue_seconds=2.0)
    server = SimulatedServer(limits=limits)

    server.run([requests])

    assert {request.refused for request in requests} == {"", "queue_seconds"}
    assert 1.8 <= max(r.latency_s for r in requests if r.done_at is not None) <= 2.5


def test_server_is_itself_again_as_soon_as_the_overload_ends():
    flood = poisson(ANYONE, 10 * CAPACITY, 5.0, seed=5, timeout_s=0.44)
    later = poisson(ANYONE, 0.5 * CAPACITY, 12.0, seed=6, timeout_s=0.44)

    run("equal lengths", flood, later)

    after = [request for request in later if request.at > 5.5]
    assert all(request.done_at is not None for request in after)
    assert p99(after) <= 0.2
