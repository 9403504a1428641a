"""The capacity card: which stages are run for it, and what the page says."""

from dataclasses import replace

import pytest

from service.loadtest.records import Summary
from tests.bench.capacity.card import Facts, Memory, card, linked
from tests.bench.capacity.stages import CALLERS, SHARES, Capacity, Search, Sender, highest_rates, measured

KNEE = {250.0: 150.0, 500.0: 180.0, 1_000.0: 200.0}  # calls a second up to which a p99 is held
BEAM_4 = Search(beam_size=4, use_shortlist=False)
BEAM_1 = Search(beam_size=1, use_shortlist=True)


def summary(rate: float, p99_ms: float = 40.0, failed: int = 0) -> Summary:
    calls = round(8 * rate)
    return Summary(
        offered_rate=rate,
        done_rate=rate,
        done_texts_rate=rate,
        ok_rate=rate,
        texts_rate=rate,
        goodput_rate=rate,
        calls=calls,
        codes={"OK": calls - failed} | ({"RESOURCE_EXHAUSTED": failed} if failed else {}),
        latency_ms={"p50": p99_ms / 4, "p95": p99_ms / 2, "p99": p99_ms},
        refusal_ms_p99=None,
        send_delay_ms_p99=1.0,
        duration_s=8.0,
    )


def of_knee(rate: float) -> Summary:
    """As a server answers that has this knee."""
    held = [p99_ms for p99_ms, knee in KNEE.items() if rate <= knee]
    return summary(rate, min(held, default=5_000.0))


class FakeSender(Sender):
    """Answers at once."""

    def at_rate(self, search: Search, rate: float) -> Summary:
        return of_knee(rate)

    def callers(self, search: Search, number: int) -> Summary:
        return summary(210.0)


@pytest.fixture
def capacity(tmp_path):
    sender = FakeSender(address="", texts=tmp_path, stage_s=1.0, console=None)  # type: ignore[arg-type]  # unused
    return measured(sender, BEAM_4, list(KNEE), 500.0)


@pytest.fixture
def facts(capacity):
    machine = {
        "cpu": "A CPU",
        "cpus": 2,
        "int8_instructions": ["avx512_vnni"],
        "load_average": 0.1,
        "python": "3.11",
        "onnxruntime": "1.31",
        "numpy": "2.1",
        "commit": "abc",
        "uncommitted_changes": True,
    }
    other = Capacity(
        search=BEAM_1, held={500.0: 0.0}, callers={n: summary(300.0, failed=3) for n in CALLERS}, shares={}
    )
    return Facts(
        command="python it --seconds 10",
        date="2026-11-21",
        minutes=11.2,
        model="en-de 1",
        machine=machine,
        ram_gib=7.6,
        num_engines=2,
        num_threads=1,
        num_texts=2_000,
        mean_characters=80.0,
        stage_s=10.0,
        num_stages=54,
        num_warnings=3,
        start_s=[1.2, 0.9, 1.1],
        memory_at_start=Memory(front=100.0, engines=200.0),
        memory_after=Memory(front=110.0, engines=220.0),
        capacities=[capacity, other],
        reference_ms=500.0,
    )


def test_each_highest_rate_is_that_of_a_search_of_its_own():
    together = highest_rates(of_knee, list(KNEE), 130.0)

    assert together == {target: highest_rates(of_knee, [target], 130.0)[target] for target in KNEE}
    assert all(0.9 * knee < together[target] <= knee for target, knee in KNEE.items())


def test_searches_share_stages_and_a_break_is_tried_in_a_stage_of_its_own():
    tried: list[float] = []

    def noted(rate: float) -> Summary:
        tried.append(rate)
        return of_knee(rate)

    highest_rates(noted, list(KNEE), 130.0)

    apart = len(tried)
    for target in KNEE:
        highest_rates(noted, [target], 130.0)
    assert apart < 0.7 * (len(tried) - apart)
    assert max(tried[:apart].count(rate) for rate in tried) == 2


def test_latency_is_measured_at_parts_of_the_rate_that_holds_the_reference(capacity):
    assert set(capacity.callers) == set(CALLERS)
    rates = {share: seen.offered_rate for share, seen in capacity.shares.items()}
    assert rates == {share: share * capacity.held[500.0] for share in SHARES}


def test_the_card_has_a_row_for_each_search_and_says_what_failed(facts):
    lines = card(facts).splitlines()

    assert lines[0] == "# Capacity of the included English-German model"
    assert "    python it --seconds 10" in lines
    assert "| commit | abc, with changes |" in lines
    assert "| resident memory, started | 300 MiB: front process 100, engines 200 |" in lines
    (rates,) = [line for line in lines if line.startswith("| beam 4 | 1")]
    assert rates.count("|") == 5
    assert "| beam 1, shortlist |  | none |  |" in lines
    assert "| beam 4 | 210 | 10 | 40 | 210 | 10 | 40 |" in lines
    assert sum("300 (3 of 2400 failed)" in line for line in lines) == 1
    assert max(map(len, lines)) <= 140


def test_every_table_of_the_card_is_even(facts):
    for block in card(facts).split("\n\n"):
        rows = [line for line in block.splitlines() if line.startswith("|")]
        assert len({row.count("|") for row in rows}) <= 1, block


def test_a_machine_without_such_instructions_says_none(facts):
    without = replace(facts, machine={**facts.machine, "int8_instructions": []})

    assert "| instructions for int8 | none |" in card(without)


def test_the_index_gets_one_row():
    index = "| a | [x](load-test-and-size.md) |\n| b | [y](y.md) |\n"

    once = linked(index, "capacity.md")

    assert once.splitlines()[1].endswith("| [capacity.md](capacity.md) |")
    assert once.replace(once.splitlines(keepends=True)[1], "") == index
    assert linked(once, "capacity.md") == once
