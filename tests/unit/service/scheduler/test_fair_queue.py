"""The queue of waiting work: an order that is fair between callers, shares of classes, and sums that add up."""

from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.call import Caller
from service.records import Priority
from service.scheduler.fair_queue import Entry, FairQueue

INTERACTIVE, BATCH = Priority.INTERACTIVE, Priority.BATCH
AGING_S = 10.0


class Line:
    """A queue of strings, at a moment that the test sets, and the entry of everything that was put into it."""

    def __init__(self) -> None:
        self.queue: FairQueue[Entry[str]] = FairQueue(aging_s=AGING_S)
        self.now = 0.0
        self.entries: dict[str, Entry[str]] = {}

    def push(
        self, item: str, caller: str = "a", *, cost: float = 1.0, priority: Priority = INTERACTIVE, weight: float = 1.0
    ) -> None:
        who = Caller(name=caller, weight=weight)
        self.entries[item] = Entry(item, who, priority, self.now, cost)
        self.queue.push(self.entries[item])

    def push_many(self, caller: str, number: int, *, priority: Priority = INTERACTIVE, **options: float) -> None:
        for index in range(number):
            self.push(f"{caller}{index}", caller, priority=priority, **options)

    def remove(self, item: str) -> bool:
        return self.queue.remove(self.entries[item])

    def pop(self) -> str:
        entry = self.queue.peek(self.now)
        assert entry is not None
        self.queue.serve(entry)
        return entry.item

    def pop_all(self) -> list[str]:
        return [self.pop() for _ in range(len(self.queue))]

    def ahead(self, caller: str, cost: float, priority: Priority = INTERACTIVE) -> float:
        return self.queue.cost_ahead(Caller(name=caller), priority, cost)


@pytest.fixture
def line() -> Line:
    return Line()


def count_of(caller: str, served: list[str]) -> int:
    return sum(item.startswith(caller) for item in served)


class TestOrder:
    @pytest.mark.parametrize(
        ("weight", "cost", "share"),
        [(1.0, 4.0, 12), (2.0, 1.0, 40)],  # of 60; the other's weight and cost are 1
    )
    def test_cost_is_shared_by_weight(self, line, weight, cost, share):
        line.push_many("a", 60, weight=weight, cost=cost)
        line.push_many("b", 60)

        assert count_of("a", [line.pop() for _ in range(60)]) == pytest.approx(share, abs=3)

    def test_caller_that_was_away_goes_before_one_that_is_always_there(self, line):
        line.push_many("greedy", 50)
        for _ in range(3):
            line.pop()
        line.push("seldom", "seldom")

        assert line.pop() == "seldom"

    def test_caller_cannot_be_new_at_every_arrival(self, line):
        """Sending one sentence at a time gains nothing over sending them together."""
        line.push_many("patient", 20)
        line.push("eager", "eager")
        served: list[str] = []
        for number in range(20):
            served.append(line.pop())
            if served[-1].startswith("eager"):
                line.push(f"eager{number}", "eager")

        assert count_of("eager", served) <= 11

    def test_cancelling_does_not_pay_off_a_debt(self, line):
        line.push_many("patient", 40)
        served: list[str] = []
        for number in range(20):
            line.push(f"eager{number}", "eager")
            line.push(f"cancelled{number}", "eager")
            served.append(line.pop())
            line.remove(f"cancelled{number}")
            line.remove(f"eager{number}")

        assert count_of("eager", served) <= 11

    def test_ever_new_callers_do_not_hold_up_one_that_was_served_before(self, line):
        line.push_many("regular", 30)
        served: list[str] = []
        for number in range(100):
            line.push(f"x{number}", f"caller {number}")
            served.append(line.pop())

        assert count_of("regular", served) >= 10


class TestWhatGoesAhead:
    def test_all_of_a_caller_s_own_work_and_a_greedy_one_s_turns_are_ahead(self, line):
        line.push_many("greedy", 1_000, cost=2.0)
        line.push_many("b", 2, cost=2.0)

        assert line.ahead("greedy", 2.0) == 2_000.0 + 4.0
        assert line.ahead("b", 2.0) == 4.0 + 6.0

    def test_of_a_new_caller_s_work_the_turns_of_other_new_ones_are_ahead_and_no_greedy_one_s(self, line):
        line.push_many("greedy", 1_000)
        for _ in range(20):
            line.pop()
        for number in range(5):
            line.push(f"x{number}", f"caller {number}")
        expected = line.ahead("new", 1.0)
        line.push("new", "new")
        served = list(iter(line.pop, "new"))

        assert expected == pytest.approx(len(served), abs=1.0)
        assert len(served) >= 5

    def test_interactive_work_is_ahead_of_batch_work_and_not_the_reverse(self, line):
        line.push_many("a", 10)
        line.push("batch", "b", priority=BATCH, cost=100.0)

        assert line.ahead("b", 1.0, BATCH) == 110.0
        assert line.ahead("a", 1.0) == 10.0

    def test_work_of_a_caller_who_goes_on_asking_is_ahead_before_it_comes(self, line):
        line.push_many("a", 200)
        line.push("b", "b")
        for number in range(200):
            if line.pop().startswith("b"):
                line.push(f"b{number}", "b")

        assert len(line.queue) == 101
        assert line.ahead("a", 1.0) == pytest.approx(200, rel=0.05)

    def test_work_of_a_caller_who_has_stopped_is_not_ahead_for_long(self, line):
        line.push_many("a", 300)
        line.push_many("b", 100)
        for _ in range(200):
            line.pop()
        ahead_at_first = line.ahead("a", 1.0)

        for _ in range(100):
            line.pop()

        assert ahead_at_first == pytest.approx(400, rel=0.05)
        assert line.ahead("a", 1.0) == pytest.approx(100, rel=0.05)

    def test_aged_work_is_ahead_of_interactive_work_as_far_as_its_share(self, line):
        line.push_many("batch", 100, priority=BATCH)
        line.now = AGING_S
        for _ in range(8):
            line.queue.peek(line.now)  # each moves some of the aged
        line.push_many("b", 5)

        assert line.ahead("b", 1.0) == pytest.approx(5 + 2)
        assert line.ahead("c", 1.0, BATCH) == 105


class TestPriorities:
    @pytest.mark.parametrize("caller", ["a", "b"])
    def test_interactive_work_goes_before_batch_work_that_has_not_aged(self, line, caller):
        line.push("batch", "a", priority=BATCH)
        line.now = AGING_S - 0.001
        line.push("interactive", caller)

        assert line.pop_all() == ["interactive", "batch"]

    def test_batch_work_that_has_aged_has_a_quarter_beside_interactive_work(self, line):
        line.push_many("batch", 3, priority=BATCH)
        line.now = AGING_S
        line.push_many("i", 6)

        assert line.pop_all() == ["i0", "batch0", "i1", "i2", "i3", "batch1", "i4", "i5", "batch2"]

    @pytest.mark.parametrize("num_callers", [1, 10])
    def test_aged_batch_work_of_many_callers_has_no_more(self, line, num_callers):
        for number in range(1_000):
            line.push(f"batch{number}", f"corpus {number % num_callers}", priority=BATCH)
        line.now = 2 * AGING_S
        line.push_many("i", 30)

        assert count_of("i", [line.pop() for _ in range(40)]) == 30

    def test_share_counts_cost_and_not_sentences(self, line):
        line.push_many("batch", 10, priority=BATCH, cost=9.0)
        line.now = AGING_S
        line.push_many("i", 100)

        assert count_of("batch", [line.pop() for _ in range(90)]) == 4  # of cost 36, beside a cost of 86

    def test_aged_batch_work_owes_nothing_for_what_nobody_else_wanted(self, line):
        line.push_many("batch", 100, priority=BATCH)
        line.now = AGING_S
        for _ in range(50):
            line.pop()
        line.push_many("i", 4)

        assert [line.pop() for _ in range(4)] == ["i0", "batch50", "i1", "i2"]


@given(st.integers(1, 12), st.sampled_from([1.0, 10.0]))
def test_batch_work_is_served_however_much_interactive_work_comes(num_per_turn, cost):
    line = Line()
    line.push("batch", "b", priority=BATCH, cost=cost)
    served: list[str] = []
    for number in range(250):
        for index in range(num_per_turn):
            line.push(f"{number}-{index}", f"caller {index}")
        served.append(line.pop())
        line.now += 0.1

    assert AGING_S / 0.1 <= served.index("batch") <= AGING_S / 0.1 + 10 * num_per_turn  # one turn of each


PUSHES = st.tuples(st.sampled_from("abcd"), st.sampled_from(Priority), st.sampled_from([0.5, 1.0, 3.0, 20.0]))
STEPS = st.lists(st.one_of(PUSHES, st.just("pop"), st.just("cancel"), st.just("wait")), max_size=120)


@given(STEPS)
def test_every_job_leaves_once_and_each_caller_is_served_in_order(steps):
    """Of one caller and class; the sums are zero when the queue is empty."""
    line = Line()
    waiting: dict[str, tuple[str, Priority]] = {}
    order: dict[tuple[str, Priority], list[int]] = defaultdict(list)
    for number, step in enumerate([*steps, *["pop"] * len(steps)]):
        if isinstance(step, tuple):
            caller, priority, cost = step
            line.push(str(number), caller, priority=priority, cost=cost)
            waiting[str(number)] = (caller, priority)
        elif step == "wait":
            line.now += 4.0
        elif step == "cancel" and waiting:
            item = next(iter(waiting))
            del waiting[item]
            assert line.remove(item)
        elif step == "pop" and waiting:
            item = line.pop()
            order[waiting.pop(item)].append(int(item))
        assert len(line.queue) == len(waiting)

    assert (line.queue.peek(line.now), line.queue.cost) == (None, 0.0)
    assert all(numbers == sorted(numbers) for numbers in order.values())


@given(
    st.integers(1, 6),
    st.lists(st.sampled_from([0.5, 1.0, 2.0, 5.0]), min_size=5, max_size=40),
    st.sampled_from([0.5, 1.0, 5.0]),
)
def test_greedy_caller_gets_its_share_and_two_turns_at_most(num_others, greedy_costs, other_cost):
    """While others wait all the time, whatever the greedy one sends."""
    line = Line()
    for number, cost in enumerate(greedy_costs * 10):
        line.push(f"greedy-{number}", "greedy", cost=cost)
    for other in range(num_others):
        line.push_many(f"{other}-", 100, cost=other_cost)
    served: dict[str, float] = defaultdict(float)
    for _ in range(40):
        item = line.pop()
        served[item.split("-")[0]] += line.entries[item].cost

    slack = 2 * (line.queue.typical_cost + max(*greedy_costs, other_cost))
    assert served["greedy"] <= min(served[str(other)] for other in range(num_others)) + slack
