"""The queue of waiting work: an order that is fair between clients, and books that add up."""

from collections import Counter, defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.queue.callers import Caller, Priority
from service.queue.fair_queue import FairQueue
from tests.fakes.queue_of_strings import BATCH, INTERACTIVE, Line, line

__all__ = ["line"]


def num_flows(queue: FairQueue[str]) -> int:
    """How many clients it remembers."""
    return sum(len(turns.fresh) + len(turns.old) for turns in queue._turns)


def test_empty_queue_has_nobody_s_turn(line):
    assert line.queue.peek(0.0) is None
    assert (len(line.queue), line.queue.cost, list(line.queue)) == (0, 0.0, [])


def test_one_client_is_served_in_the_order_of_arrival(line):
    line.push_many("a", 5)

    assert line.pop_all() == ["a0", "a1", "a2", "a3", "a4"]


def test_looking_changes_nothing(line):
    line.push_many("a", 3)
    line.push_many("b", 3)

    seen = [line.queue.peek(0.0) for _ in range(5)]

    assert len(set(map(id, seen))) == 1
    assert len(line.queue) == 6


def test_clients_of_equal_weight_take_turns(line):
    line.push_many("a", 4)
    line.push_many("b", 4)

    assert line.pop_all() == ["a0", "b0", "a1", "b1", "a2", "b2", "a3", "b3"]


def test_cost_is_shared_and_not_the_number_of_sentences(line):
    line.push_many("short", 40, cost=1.0)
    line.push_many("long", 40, cost=4.0)

    first = Counter(line.pop().rstrip("0123456789") for _ in range(30))

    assert first["short"] == pytest.approx(4 * first["long"], abs=4)


def test_twice_the_weight_is_twice_the_share(line):
    line.push_many("a", 60, weight=2.0)
    line.push_many("b", 60, weight=1.0)

    first = Counter(line.pop()[0] for _ in range(60))

    assert first["a"] == pytest.approx(40, abs=2)


def test_client_that_was_away_goes_before_one_that_is_always_there(line):
    line.push_many("greedy", 50)
    for _ in range(3):
        line.pop()

    line.push("seldom", "seldom")

    assert line.pop() == "seldom"


def test_client_cannot_be_new_at_every_arrival(line):
    """Sending one sentence at a time gains nothing over sending them together."""
    line.push_many("patient", 20)
    line.push("eager", "eager")
    served: list[str] = []

    for number in range(20):
        served.append(line.pop())
        if served[-1].startswith("eager"):
            line.push(f"eager{number}", "eager")

    assert sum(item.startswith("eager") for item in served) <= 11


def test_cancelling_does_not_pay_off_a_debt(line):
    line.push_many("patient", 40)
    served: list[str] = []

    for number in range(20):
        line.push(f"eager{number}", "eager")
        line.push(f"cancelled{number}", "eager")
        served.append(line.pop())
        line.queue.remove(line.entries[f"cancelled{number}"])
        line.queue.remove(line.entries[f"eager{number}"])

    assert sum(item.startswith("eager") for item in served) <= 11


class TestRemoval:
    def test_removed_entry_is_never_served(self, line):
        line.push_many("a", 3)

        assert line.queue.remove(line.entries["a1"])

        assert line.pop_all() == ["a0", "a2"]

    def test_entry_that_left_can_be_removed_again_without_effect(self, line):
        line.push_many("a", 2)
        line.pop()

        assert not line.queue.remove(line.entries["a0"])
        assert (len(line.queue), line.queue.cost) == (1, 1.0)

    def test_removal_of_the_last_of_a_client_leaves_no_trace(self, line):
        line.push("keep", "a")
        for number in range(100):
            line.push(f"x{number}", f"client {number}")
            line.queue.remove(line.entries[f"x{number}"])

        assert num_flows(line.queue) == 1

    def test_empty_queue_remembers_nobody(self, line):
        line.push_many("a", 5)
        line.push_many("b", 5)
        line.pop_all()

        assert num_flows(line.queue) == 0


class TestWhatGoesAhead:
    def test_nothing_is_ahead_of_anybody_in_an_empty_queue(self, line):
        assert line.queue.cost_ahead(Caller(name="a"), INTERACTIVE, 5.0) == 0.0

    def test_all_of_a_client_s_own_work_is_ahead(self, line):
        line.push_many("a", 7, cost=2.0)

        assert line.queue.cost_ahead(Caller(name="a"), INTERACTIVE, 2.0) == 14.0

    def test_of_a_greedy_client_only_its_turns_are_ahead(self, line):
        line.push_many("greedy", 1_000, cost=2.0)
        line.push_many("b", 2, cost=2.0)

        assert line.queue.cost_ahead(Caller(name="b"), INTERACTIVE, 2.0) == 4.0 + 6.0

    def test_nobody_s_old_work_is_ahead_of_a_client_that_was_away(self, line):
        line.push_many("greedy", 1_000)
        line.pop()
        line.pop()

        assert line.queue.cost_ahead(Caller(name="b"), INTERACTIVE, 1.0) == 0.0

    def test_interactive_work_is_ahead_of_batch_work_and_not_the_reverse(self, line):
        line.push_many("a", 10)
        line.push("batch", "b", priority=BATCH, cost=100.0)

        assert line.queue.cost_ahead(Caller(name="b"), BATCH, 1.0) == 110.0
        assert line.queue.cost_ahead(Caller(name="a"), INTERACTIVE, 1.0) == 10.0


PUSHES = st.tuples(st.sampled_from("abcd"), st.sampled_from(Priority), st.sampled_from([0.5, 1.0, 3.0, 20.0]))
STEPS = st.lists(st.one_of(PUSHES, st.just("pop"), st.just("cancel"), st.just("wait")), max_size=120)


@given(STEPS)
def test_every_job_leaves_once_and_each_client_is_served_in_order(steps):
    """Of one client and class; the books are empty when the queue is."""
    line = Line()
    waiting: dict[str, tuple[str, Priority]] = {}
    order: dict[tuple[str, Priority], list[int]] = defaultdict(list)
    for number, step in enumerate(steps):
        if isinstance(step, tuple):
            caller, priority, cost = step
            line.push(str(number), caller, priority=priority, cost=cost)
            waiting[str(number)] = (caller, priority)
        elif step == "wait":
            line.now += 4.0
        elif step == "cancel" and waiting:
            item = next(iter(waiting))
            del waiting[item]
            assert line.queue.remove(line.entries[item])
        elif step == "pop" and waiting:
            item = line.pop()
            order[waiting.pop(item)].append(int(item))
        assert len(line.queue) == len(waiting)
        assert sorted(line.queue) == sorted(waiting)
    for _ in range(len(waiting)):
        item = line.pop()
        order[waiting.pop(item)].append(int(item))

    assert line.queue.peek(line.now) is None
    assert (line.queue.cost, num_flows(line.queue)) == (0.0, 0)
    assert all(numbers == sorted(numbers) for numbers in order.values())


@given(
    st.integers(1, 6),
    st.lists(st.sampled_from([0.5, 1.0, 2.0, 5.0]), min_size=5, max_size=40),
    st.sampled_from([0.5, 1.0, 5.0]),
)
def test_greedy_client_gets_its_share_and_two_turns_at_most(num_others, greedy_costs, other_cost):
    """While others wait all the time, whatever the greedy one sends."""
    line = Line()
    for number, cost in enumerate(greedy_costs * 10):
        line.push(f"g{number}", "greedy", cost=cost)
    for other in range(num_others):
        line.push_many(f"o{other}-", 100, cost=other_cost)
    served: dict[str, float] = defaultdict(float)

    for _ in range(40):
        entry = line.queue.peek(0.0)
        assert entry is not None
        line.queue.serve(entry)
        served["greedy" if entry.item.startswith("g") else entry.item.split("-")[0]] += entry.cost

    others = [served[f"o{other}"] for other in range(num_others)]
    slack = 2 * (line.queue.typical_cost + max(*greedy_costs, other_cost))
    assert served["greedy"] <= min(others) + slack


def test_ever_new_clients_do_not_hold_up_one_that_was_served_before(line):
    line.push_many("regular", 30)
    served: list[str] = []

    for number in range(100):
        line.push(f"x{number}", f"client {number}")
        served.append(line.pop())

    assert sum(item.startswith("regular") for item in served) >= 10


def test_clients_of_one_name_and_two_sources_have_a_flow_each():
    queue: FairQueue[str] = FairQueue(aging_s=10.0)
    for source in ("peer", "proxy"):
        caller = Caller(name="10.0.0.7", source=source)
        queue.push(source, caller=caller, priority=Priority.INTERACTIVE, cost=1.0, now=0.0)

    assert num_flows(queue) == 2
