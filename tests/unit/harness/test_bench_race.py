"""The parts of the race that decide: settings, rates, cells, ratios."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from model.config import ModelConfig
from tests.bench.race import stream
from tests.bench.race.ceiling import Ceiling, operations
from tests.bench.race.cells import CTRANSLATE2, PEERS, Cell
from tests.bench.race.contestants import Finished, Sentence
from tests.bench.race.plan import Choice, cells
from tests.bench.race.regimes import Agreement, Turns, Work, closed
from tests.bench.race.sides import Layout, layouts
from tests.bench.race.sweep import descend
from tests.bench.race.texts import batches

SENTENCES = [Sentence((number, 3), [str(number), "</s>"]) for number in range(4, 40)]


@dataclass(frozen=True, slots=True)
class Knobs:
    width: int = 1
    depth: int = 1


# --- sweep -----------------------------------------------------------------------------------------------------------


def test_a_sweep_keeps_the_best_of_one_choice_while_it_tries_the_next():
    sweep = descend(
        Knobs(), [[{"width": 2}, {"width": 3}], [{"depth": 2}]], lambda it: abs(it.width - 2) - 0.1 * it.depth
    )

    assert sweep.best == Knobs(width=2, depth=2)
    assert Knobs(width=3, depth=2) not in sweep.costs


def test_a_sweep_measures_no_setting_twice():
    asked: list[Knobs] = []

    def cost(setting: Knobs) -> float:
        asked.append(setting)
        return setting.width

    descend(Knobs(), [[{"width": 1}, {"width": 2}], [{"width": 2}]], cost)

    assert asked == [Knobs(), Knobs(width=2)]


def test_layouts_use_all_cpus():
    assert layouts(4) == [Layout(4, 1), Layout(2, 2), Layout(1, 4)]
    assert layouts(4, threads=2) == [Layout(2, 2)]


def test_a_layout_that_does_not_fit_the_cpus_is_refused():
    with pytest.raises(ValueError, match="3 CPUs cannot be cut into parts of 2 threads"):
        layouts(3, threads=2)


# --- plan ------------------------------------------------------------------------------------------------------------


def test_a_full_choice_gives_one_cell():
    choice = Choice(texts=["t"], shapes=["base"], precisions=["fp32"], beams=[5], regimes=["single"], sizes=[32, 256])

    assert cells(choice) == [Cell(text="t", shape="base", precision="fp32", beam_size=5, regime="single")]


def test_the_usual_programme_has_every_regime_and_beam_for_both_shapes():
    usual = cells(Choice(texts=["t"]))

    for shape in ("default", "base"):
        of_shape = [cell for cell in usual if cell.shape == shape]
        assert {cell.regime for cell in of_shape} == {"single", "closed", "stream"}
        assert {cell.beam_size for cell in of_shape} == {1, 4, 5}
    assert len({cell.title for cell in usual}) == len(usual)


def test_baseline_and_shortlist_take_part_only_where_they_are():
    without, whole = cells(Choice(texts=["t"])), cells(Choice(texts=["t"], peers=PEERS, has_shortlist=True))

    assert {cell.peer for cell in without} == {CTRANSLATE2}
    assert {cell.shortlist for cell in without} == {"none"}
    assert {cell.peer for cell in whole} == set(PEERS)
    assert {cell.shortlist for cell in whole} == {"none", "ours", "both"}


# --- texts and turns -------------------------------------------------------------------------------------------------


def test_a_text_that_is_too_short_begins_again():
    assert batches(SENTENCES[:3], size=2, count=2) == [SENTENCES[:2], [SENTENCES[2], SENTENCES[0]]]


class Sleeper:
    """Answers with the source after some time, and remembers when it was asked."""

    def __init__(self, name: str, seconds: float, log: list[str]) -> None:
        self.name, self.seconds, self.log = name, seconds, log

    def translate(self, sentences: Sequence[Sentence]) -> list[Any]:
        self.log.append(self.name)
        began = time.perf_counter()
        while time.perf_counter() - began < self.seconds:
            pass
        return [_Answer(list(sentence.ids)) for sentence in sentences]

    def tokens(self, answer: Any) -> list[int]:
        tokens: list[int] = answer.ids
        return tokens

    def close(self) -> None:
        """Nothing."""


@dataclass
class _Answer:
    ids: list[int]
    num_steps: int = 2


def test_who_begins_changes_with_every_turn(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tests.bench.race.regimes.REST_S", 0.0)
    log: list[str] = []

    turns = closed(Sleeper("a", 0.001, log), Sleeper("b", 0.002, log), batches(SENTENCES, 4, 2))

    assert log == ["a", "b", "b", "a"]
    assert turns.agreement.identical_share == 1.0
    assert (turns.work.source_tokens, turns.work.steps) == (16, 16)


def test_a_speedup_is_the_median_of_pairs_and_not_a_ratio_of_medians():
    turns = Turns(1, ours_s=[1.0, 2.0, 4.0], theirs_s=[2.0, 2.0, 40.0])

    assert turns.speedup == 2.0
    assert turns.speedup_range == (1.0, 10.0)


def test_agreement_counts_sentences_and_tokens():
    agreement = Agreement()
    agreement.add([[1, 2], [3]], [[1, 2], [3, 4]])

    assert agreement.identical_share == 0.5
    assert agreement.length_difference == pytest.approx(-0.25)


# --- ceiling ---------------------------------------------------------------------------------------------------------


def test_the_arithmetic_of_transformer_base_is_twice_its_weights():
    config = ModelConfig(
        d_model=512, d_ff=2048, num_heads=8, num_encoder_layers=6, num_decoder_layers=6, vocab_size=32_000
    )
    of_step = 6 * (4 * 512**2 + 2 * 512**2 + 2 * 512 * 2048) + 512 * 32_000
    of_token = 6 * (4 * 512**2 + 2 * 512 * 2048) + 6 * 2 * 512**2

    assert operations(config, Work(source_tokens=0, steps=1), beam_size=4) == 2 * 4 * of_step
    assert operations(config, Work(source_tokens=1, steps=0), beam_size=4) == 2 * of_token


def test_at_the_ceiling_the_time_is_the_arithmetic_over_the_speed():
    config = ModelConfig()
    shapes = {(256, 256), (256, 768), (256, 1_024), (1_024, 256), (256, 8_000)}
    work = Work(source_tokens=7, steps=5)

    seconds = Ceiling(2, dict.fromkeys(shapes, 1e9)).seconds(config, work, beam_size=4)

    assert seconds == pytest.approx(operations(config, work, beam_size=4) / 1e9)


# --- stream ----------------------------------------------------------------------------------------------------------


class Line:
    """One server with a fixed time for each sentence, on a clock of its own: `Streaming` without waiting."""

    def __init__(self, service_s: float) -> None:
        self.now = 0.0
        self.service_s = service_s
        self.free_at = 0.0
        self.queue: list[Finished] = []

    def submit(self, number: int, sentence: Sentence) -> None:
        self.free_at = max(self.free_at, self.now) + self.service_s
        self.queue.append(Finished(number, self.free_at))

    def finished(self, timeout_s: float) -> list[Finished]:
        until = self.now + timeout_s
        self.now = min([until, *(entry.at for entry in self.queue if entry.at > self.now)]) if timeout_s else self.now
        done = [entry for entry in self.queue if entry.at <= self.now]
        self.queue = [entry for entry in self.queue if entry.at > self.now]
        return done

    def close(self) -> None:
        """Nothing."""


@pytest.fixture
def line(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], Line]:
    def make(service_s: float) -> Line:
        server = Line(service_s)
        monkeypatch.setattr("tests.bench.race.stream.time.perf_counter", lambda: server.now)
        return server

    return make


def test_arrivals_come_at_the_rate_and_repeat_with_the_seed():
    coming = stream.arrivals(SENTENCES, rate=50.0, duration_s=40.0, seed=1)

    assert len(coming) == pytest.approx(2_000, rel=0.1)
    assert coming == stream.arrivals(SENTENCES, rate=50.0, duration_s=40.0, seed=1)
    assert coming != stream.arrivals(SENTENCES, rate=50.0, duration_s=40.0, seed=2)


def test_every_arrival_of_a_sustained_rate_is_answered(line: Callable[[float], Line]):
    coming = stream.arrivals(SENTENCES, rate=5.0, duration_s=20.0, seed=1)

    run = stream.run(line(0.01), coming, rate=5.0, bound_s=0.1)

    assert run.is_sustained
    assert len(run.latencies) == len(coming)
    assert run.percentile(50) == pytest.approx(0.01, abs=1e-6)


def test_a_rate_that_is_too_high_is_given_up_and_leaves_nothing_behind(line: Callable[[float], Line]):
    server = line(0.1)
    coming = stream.arrivals(SENTENCES, rate=30.0, duration_s=60.0, seed=1)

    run = stream.run(server, coming, rate=30.0, bound_s=0.5)

    assert run.is_given_up
    assert not run.is_sustained
    assert len(run.latencies) < len(coming)
    assert not server.queue


def test_a_latency_counts_from_when_the_sentence_was_due(line: Callable[[float], Line]):
    coming = [stream.Arrival(0.0, SENTENCES[0]), stream.Arrival(0.0, SENTENCES[1])]

    run = stream.run(line(1.0), coming, rate=1.0, bound_s=10.0)

    assert run.latencies == (1.0, 2.0)


@pytest.mark.parametrize("guess", [-20, 3, 10, 13, 14, 17, 40])
def test_climbing_finds_the_limit_from_any_guess(guess: int):
    asked: list[int] = []

    def is_sustained(rung: int) -> bool:
        asked.append(rung)
        return rung <= 13

    assert stream.climb(guess, is_sustained) == 13
    assert len(set(asked)) == len(asked)


def test_climbing_ends_where_there_is_no_limit():
    with pytest.raises(RuntimeError, match="no limit between"):
        stream.climb(0, lambda rung: True)


def test_of_two_rates_that_were_given_up_the_one_with_more_answers_costs_less():
    worse, better = (
        stream.Run(10.0, (1.0,) * answered, num_arrivals=100, bound_s=1.0, is_given_up=True) for answered in (10, 50)
    )
    sustained = stream.Run(10.0, (0.5,) * 100, num_arrivals=100, bound_s=1.0, is_given_up=False)

    assert sustained.cost < better.cost < worse.cost


def test_a_race_of_streams_gives_the_ratio_of_the_rates(monkeypatch: pytest.MonkeyPatch):
    limits = {"fast": 80.0, "slow": 40.0}

    class Named:
        def __init__(self, name: str) -> None:
            self.name = name

    def try_rate(conditions: Any, server: Any, rate: float, seed: int) -> stream.Run:
        latency = 0.1 if rate <= limits[server.name] else 9.0
        return stream.Run(rate, (latency,), num_arrivals=1, bound_s=1.0, is_given_up=False)

    monkeypatch.setattr(stream.Conditions, "try_rate", try_rate)
    conditions = stream.Conditions(sentences=SENTENCES, duration_s=1.0, bound_s=1.0)
    servers: Any = {"ours": Named("fast"), "theirs": Named("slow")}

    result = stream.race(servers, {"ours": 70.0, "theirs": 70.0}, conditions, seeds=(1, 2))

    assert result.rate_ratio == pytest.approx(2.0, rel=stream.STEP - 1)
    assert [ours.rate for ours, _ in result.equal_rates] == [theirs.rate for _, theirs in result.equal_rates]


def test_own_text_is_cut_into_halves_without_a_common_sentence(tiny_tokenizer_path: Path):
    from model.tokenizer import Tokenizer
    from tests.bench.race.texts import load_text
    from tests.parity.ctranslate2_model import pieces

    text = load_text(None, Tokenizer.load(tiny_tokenizer_path), pieces(tiny_tokenizer_path), max_source_tokens=512)

    tuning, timed = ({sentence.ids for sentence in half} for half in (text.tuning, text.timed))
    assert min(len(tuning), len(timed)) > 900
    assert not tuning & timed
