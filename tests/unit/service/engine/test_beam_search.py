"""The vectorised search gives each sentence what a plain one gives it; what the plain one cannot show, in examples."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from model.config import EOS_ID, USUAL_PROFILE, DecodingProfile, StopRule
from model.search import BeamConfig, beam_search
from service.engine.beam_search import BeamSearch
from service.engine.beams import LOOP_TOKENS, StepOutcome
from service.engine.wire import FinishReason, SearchParams
from tests.fakes.plain_search import (
    VOCABULARY,
    Found,
    Script,
    best_extensions,
    one_sentence,
    plain_greedy,
    plain_search,
    random_script,
    reluctant_script,
)


def repeating(period: int, num_steps: int, *, other: int = 0) -> BeamSearch:
    """A search of two hypotheses that repeat so many tokens, the second with another one in a step, until it ends."""
    search = BeamSearch(2)
    search.add(SearchParams(beam_size=2, max_target_tokens=200, stop_repetition=True))
    for step in range(1, num_steps + 1):
        token = 10 + step % period
        second = 99 if step == other else token
        ranked = [(-1.0 * step, token, 0), (-2.0 * step, second, 1), (-3.0 * step, 50, 0), (-4.0 * step, 51, 1)]
        if search.advance(one_sentence(ranked)).finished:
            break
    return search


@pytest.mark.parametrize("period", [1, 3, 8])
def test_a_sentence_whose_hypotheses_only_repeat_themselves_ends_for_that_reason(period):
    search = repeating(period, 200)

    assert search.num_steps(0) == LOOP_TOKENS
    (hypothesis,) = search.hypotheses(0)
    assert hypothesis.finish_reason is FinishReason.REPETITION
    assert hypothesis.token_ids == tuple(10 + step % period for step in range(1, LOOP_TOKENS + 1))
    assert hypothesis.score == -1.0


@pytest.mark.parametrize(("period", "other"), [(9, 0), (8, 30)])
def test_a_sentence_of_which_one_hypothesis_says_something_else_goes_on(period, other):
    assert repeating(period, 63, other=other).num_steps(0) == 63


@pytest.mark.parametrize("max_target_tokens", [1, 5])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_non_finite_sentence_is_reported_and_its_neighbours_go_on(max_target_tokens, bad):
    search = BeamSearch(2)
    for _ in range(3):
        search.add(SearchParams(beam_size=2, patience=0.5, max_target_tokens=max_target_tokens))
    log_probs = np.full((3, 2, VOCABULARY), -9.0, np.float32)
    log_probs[:, :, EOS_ID] = -1.0
    log_probs[1, 1] = bad  # a hypothesis that is not even born

    progress = search.advance(best_extensions(log_probs, search.scores))

    assert progress.finished == [0, 2]
    assert progress.non_finite == [1]
    assert search.hypotheses(1) == ()
    assert search.hypotheses(2)[0].token_ids == ()


@dataclass
class Driver:
    """Keeps every hypothesis' prefix by following `parents`, as the key/value cache does."""

    beam_size: int
    profile: DecodingProfile = USUAL_PROFILE
    search: BeamSearch = field(init=False)
    scripts: list[Script] = field(default_factory=list)
    names: list[int] = field(default_factory=list)
    prefixes: list[list[tuple[int, ...]]] = field(default_factory=list)  # by sentence and hypothesis
    results: dict[int, Found] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.search = BeamSearch(self.beam_size, self.profile)

    def join(self, name: int, script: Script, params: SearchParams) -> None:
        assert self.search.add(params) == len(self.scripts)
        self.scripts.append(script)
        self.names.append(name)
        self.prefixes.append([()] * self.beam_size)

    def step(self) -> StepOutcome:
        self.prefixes = [
            [(*prefix, token) for prefix, token in zip(prefixes, tokens, strict=True)]
            for prefixes, tokens in zip(self.prefixes, self.search.tokens.tolist(), strict=True)
        ]
        progress = self.search.advance(best_extensions(self.log_probs(), self.search.scores))
        self.prefixes = [
            [prefixes[parent] for parent in parents]
            for prefixes, parents in zip(self.prefixes, progress.parents.tolist(), strict=True)
        ]
        for index in reversed(progress.finished):
            self.results[self.names[index]] = Found(self.search.hypotheses(index), self.search.num_steps(index))
            self.leave(index)
        return progress

    def log_probs(self) -> np.ndarray:
        """[B, K, V]."""
        return np.array(
            [
                [script(prefix) for prefix in prefixes]
                for script, prefixes in zip(self.scripts, self.prefixes, strict=True)
            ]
        )

    def leave(self, index: int) -> None:
        self.search.remove(index)
        self.prefixes[index], self.scripts[index] = self.prefixes[-1], self.scripts[-1]
        self.names[index] = self.names[-1]
        for entries in (self.prefixes, self.scripts, self.names):
            del entries[-1]

    def run(self, arrivals: Iterable[Sequence[tuple[int, Script, SearchParams]]]) -> dict[int, Found]:
        """Let sentences join before each step, then go on until all are done."""
        for joining in arrivals:
            for name, script, params in joining:
                self.join(name, script, params)
            if self.scripts:
                self.step()
        while self.scripts:
            self.step()
        assert self.search.num_sentences == 0
        return self.results


beam_sizes = st.integers(2, 5)


def params_of(beam_size: int, seed: int) -> SearchParams:
    rng = np.random.default_rng(seed)
    return SearchParams(
        beam_size=beam_size,
        num_hypotheses=int(rng.integers(1, beam_size + 1)),
        length_penalty=float(rng.choice([0.0, 0.6, 1.0, 2.0])),
        patience=float(rng.choice([0.25, 0.6, 1.0, 1.5, 2.0])),
        max_target_tokens=int(rng.integers(1, 12)),
    )


@settings(max_examples=20, deadline=None)
@given(beam_size=beam_sizes, seeds=st.lists(st.integers(0, 10**6), min_size=1, max_size=4), with_ties=st.booleans())
def test_batch_gives_what_the_plain_search_gives_each_sentence(beam_size, seeds, with_ties):
    sentences = [
        (number, random_script(seed, with_ties=with_ties), params_of(beam_size, seed))
        for number, seed in enumerate(seeds)
    ]

    results = Driver(beam_size).run([sentences])

    assert results == {name: plain_search(script, params) for name, script, params in sentences}


class ScriptedModel:
    """A script as the reference search wants its models: the "states" are the tokens so far."""

    def __init__(self, script: Script) -> None:
        self.script = script

    def encode(self, source: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        return torch.zeros(1, 1, 1)

    def decode(self, tokens: torch.Tensor, memory: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        return tokens.unsqueeze(1)  # [B, 1, T]: the search takes [:, -1]

    def project(self, tokens: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(np.array([self.script(tuple(row)) for row in tokens.tolist()]))


@settings(max_examples=20, deadline=None)
@given(
    beam_size=st.integers(1, 5),
    rule=st.sampled_from(StopRule),
    forced_end=st.booleans(),
    seeds=st.lists(st.integers(0, 10**6), min_size=1, max_size=4),
)
def test_every_stop_rule_gives_what_the_reference_search_gives(beam_size, rule, forced_end, seeds):
    profile = DecodingProfile(stop_rule=rule, forced_end=forced_end)
    sentences = [
        (number, random_script(seed), params_of(beam_size, seed)._replace(num_hypotheses=1))
        for number, seed in enumerate(seeds)
    ]

    results = Driver(beam_size, profile).run([sentences[:1], sentences[1:]])

    for name, script, params in sentences:
        config = BeamConfig(
            beam_size=beam_size,
            length_penalty=params.length_penalty,
            patience=params.patience,
            max_target_tokens=params.max_target_tokens,
            profile=profile,
        )
        found, wanted = results[name].hypotheses[0], beam_search(ScriptedModel(script), [EOS_ID], config)[0]
        assert list(found.token_ids) == wanted.tokens
        assert found.score == pytest.approx(wanted.score, abs=1e-4)
        is_longest = len(found.token_ids) + 1 >= params.max_target_tokens
        assert found.finish_reason is FinishReason.END_OF_SENTENCE or is_longest


def test_an_end_that_was_forced_is_told_as_the_longest_length():
    never_ends = reluctant_script(7, np.inf)
    params = SearchParams(beam_size=2, max_target_tokens=5)

    found = Driver(2, DecodingProfile(forced_end=True)).run([[(0, never_ends, params)]])[0].hypotheses[0]

    assert (len(found.token_ids), found.finish_reason) == (4, FinishReason.LENGTH)


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 10**6), patience=st.sampled_from([0.3, 1.0, 3.0]), length_penalty=st.sampled_from([0.0, 1.0])
)
def test_beam_of_one_is_greedy_search(seed, patience, length_penalty):
    params = SearchParams(beam_size=1, patience=patience, length_penalty=length_penalty, max_target_tokens=8)
    script = random_script(seed)

    found = Driver(1).run([[(0, script, params)]])[0]

    assert found == plain_search(script, params)
    assert [hypothesis.token_ids for hypothesis in found.hypotheses] == [plain_greedy(script, params)]


@settings(max_examples=20, deadline=None)
@given(beam_size=st.integers(1, 5), seed=st.integers(0, 10**6), reluctance=st.sampled_from([0.0, 3.0, 8.0, np.inf]))
def test_no_last_step_is_missed_whoever_joins_and_leaves(beam_size, seed, reluctance):
    """The search looks for last steps only when one may be due.  Sentences are also removed before they are done."""
    rng = np.random.default_rng(seed)
    driver, sentences = Driver(beam_size), dict[int, tuple[Script, SearchParams]]()
    for name in range(40):
        for joins in rng.random(3) < 0.3:
            if joins:
                limit = int(rng.choice([1, 2, 3, 5, 9, 20]))
                params = params_of(beam_size, int(rng.integers(10**6)))._replace(max_target_tokens=limit)
                sentences[len(sentences)] = reluctant_script(seed + name, reluctance), params
                driver.join(len(sentences) - 1, *sentences[len(sentences) - 1])
        if driver.scripts and rng.random() < 0.3:
            driver.leave(int(rng.integers(len(driver.scripts))))
        if driver.scripts:
            driver.step()
    results = driver.run([])

    assert results == {name: plain_search(*sentences[name]) for name in results}
