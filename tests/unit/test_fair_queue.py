"""The queue of waiting work: an order that is fair between clients, and books that add up."""

from collections import Counter, defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.traffic.clients import Client, Priority
from service.traffic.fair_queue import Entry, FairQueue

INTERACTIVE, BATCH = Priority.INTERACTIVE, Priority.BATCH
AGING_S = 10.0


class Line:
    """A queue of numbered strings, at a moment that the test sets."""

    def __init__(self) -> None:
        self.queue: FairQueue[str] = FairQueue(aging_s=AGING_S)
        self.now = 0.0
        self.entries: dict[str, Entry[str]] = {}

    def push(
        self, item: str, client: str = "a", *, cost: float = 1.0, priority: Priority = INTERACTIVE, weight: float = 1.0
    ) -> None:
        who = Client(name=client, weight=weight)
        self.entries[item] = self.queue.push(item, client=who, priority=priority, cost=cost, now=self.now)

    def push_many(self, client: str, number: int, **options: float) -> None:
        for index in range(number):
            self.push(f"{client}{index}", client, **options)  # type: ignore[arg-type]

    def pop(self) -> str:
        entry = self.queue.peek(self.now)
        assert entry is not None
        self.queue.serve(entry)
        return entry.item

    def pop_all(self) -> list[str]:
        return [self.pop() for _ in range(len(self.queue))]


def num_flows(queue: FairQueue[str]) -> int:
    """How many clients it remembers."""
    return sum(len(turns.fresh) + len(turns.old) for turns in queue._turns)


@pytest.fixture
def line() -> Line:
    return Line()


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


class TestPriorities:
    def test_interactive_work_goes_before_batch_work(self, line):
        line.push("batch", "a", priority=BATCH)
        line.push("interactive", "b")

        assert line.pop_all() == ["interactive", "batch"]

    def test_batch_work_that_has_aged_has_a_quarter_beside_interactive_work(self, line):
        for number in range(3):
            line.push(f"batch{number}", "a", priority=BATCH)
        line.now = AGING_S
        line.push_many("b", 6)

        assert line.pop_all() == ["b0", "batch0", "b1", "b2", "b3", "batch1", "b4", "b5", "batch2"]

    @pytest.mark.parametrize("num_clients", [1, 10])
    def test_aged_batch_work_of_many_clients_has_no_more(self, line, num_clients):
        for number in range(1_000):
            line.push(f"batch{number}", f"corpus {number % num_clients}", priority=BATCH)
        line.now = 2 * AGING_S
        line.push_many("b", 30)

        served = [line.pop() for _ in range(40)]

        assert sum(item.startswith("b") and not item.startswith("batch") for item in served) == 30
        assert len(line.queue) == 990

    def test_share_counts_cost_and_not_sentences(self, line):
        for number in range(10):
            line.push(f"batch{number}", "a", priority=BATCH, cost=9.0)
        line.now = AGING_S
        line.push_many("b", 100)

        served = [line.pop() for _ in range(90)]

        assert sum(item.startswith("batch") for item in served) == 4  # of cost 36, beside a cost of 86

    def test_aged_batch_work_owes_nothing_for_what_nobody_else_wanted(self, line):
        for number in range(100):
            line.push(f"batch{number}", "a", priority=BATCH)
        line.now = AGING_S
        for _ in range(50):
            line.pop()
        line.push_many("b", 4)

        assert [line.pop() for _ in range(4)] == ["b0", "batch50", "b1", "b2"]

    def test_interactive_work_counts_aged_work_ahead_as_far_as_its_share(self, line):
        for number in range(100):
            line.push(f"batch{number}", "a", priority=BATCH)
        line.now = AGING_S
        line.queue.peek(line.now)
        for _ in range(7):
            line.queue.peek(line.now)  # each moves some of the aged
        line.push_many("b", 5)

        assert line.queue.cost_ahead(Client(name="b"), INTERACTIVE, 1.0) == pytest.approx(5 + 2)
        assert line.queue.cost_ahead(Client(name="c"), BATCH, 1.0) == 105

    def test_younger_batch_work_waits(self, line):
        line.push("batch", "a", priority=BATCH)
        line.now = AGING_S - 0.001
        line.push("interactive", "b")

        assert line.pop() == "interactive"

    def test_one_client_s_classes_do_not_mix(self, line):
        line.push("batch", "a", priority=BATCH)
        line.push("interactive", "a")

        assert line.pop() == "interactive"


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
        assert line.queue.cost_ahead(Client(name="a"), INTERACTIVE, 5.0) == 0.0

    def test_all_of_a_client_s_own_work_is_ahead(self, line):
        line.push_many("a", 7, cost=2.0)

        assert line.queue.cost_ahead(Client(name="a"), INTERACTIVE, 2.0) == 14.0

    def test_of_a_greedy_client_only_its_turns_are_ahead(self, line):
        line.push_many("greedy", 1_000, cost=2.0)
        line.push_many("b", 2, cost=2.0)

        assert line.queue.cost_ahead(Client(name="b"), INTERACTIVE, 2.0) == 4.0 + 6.0

    def test_nobody_s_old_work_is_ahead_of_a_client_that_was_away(self, line):
        line.push_many("greedy", 1_000)
        line.pop()
        line.pop()

        assert line.queue.cost_ahead(Client(name="b"), INTERACTIVE, 1.0) == 0.0

    def test_interactive_work_is_ahead_of_batch_work_and_not_the_reverse(self, line):
        line.push_many("a", 10)
        line.push("batch", "b", priority=BATCH, cost=100.0)

        assert line.queue.cost_ahead(Client(name="b"), BATCH, 1.0) == 110.0
        assert line.queue.cost_ahead(Client(name="a"), INTERACTIVE, 1.0) == 10.0


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
            client, priority, cost = step
            line.push(str(number), client, priority=priority, cost=cost)
            waiting[str(number)] = (client, priority)
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


@given(st.integers(1, 12), st.sampled_from([1.0, 10.0]))
def test_batch_work_is_served_however_much_interactive_work_comes(num_per_turn, cost):
    line = Line()
    line.push("batch", "b", priority=BATCH, cost=cost)
    served: list[str] = []

    for number in range(250):
        for index in range(num_per_turn):
            line.push(f"{number}-{index}", f"client {index}")
        served.append(line.pop())
        line.now += 0.1

    assert AGING_S / 0.1 <= served.index("batch") <= AGING_S / 0.1 + 10 * num_per_turn  # one turn of each


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
        client = Client(name="10.0.0.7", source=source)
        queue.push(source, client=client, priority=Priority.INTERACTIVE, cost=1.0, now=0.0)

    assert num_flows(queue) == 2
