"""Interactive work goes before batch work, which has its share once it has waited long enough."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.queue.callers import Caller
from tests.fakes.queue_of_strings import AGING_S, BATCH, INTERACTIVE, Line, line

__all__ = ["line"]


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

        assert line.queue.cost_ahead(Caller(name="b"), INTERACTIVE, 1.0) == pytest.approx(5 + 2)
        assert line.queue.cost_ahead(Caller(name="c"), BATCH, 1.0) == 105

    def test_younger_batch_work_waits(self, line):
        line.push("batch", "a", priority=BATCH)
        line.now = AGING_S - 0.001
        line.push("interactive", "b")

        assert line.pop() == "interactive"

    def test_one_client_s_classes_do_not_mix(self, line):
        line.push("batch", "a", priority=BATCH)
        line.push("interactive", "a")

        assert line.pop() == "interactive"


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
