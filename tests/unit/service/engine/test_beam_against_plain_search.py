"""The vectorised search gives what a plain one gives each sentence, whoever joins and leaves."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from service.engine.beam import BeamSearch, StepOutcome
from service.engine.job import SearchParams
from tests.fakes.extensions import best_extensions
from tests.fakes.plain_search import Found, Script, plain_greedy, plain_search, random_script, reluctant_script


@dataclass
class Driver:
    """Keeps every hypothesis' prefix by following `parents`, as the key/value cache does."""

    beam_size: int
    search: BeamSearch = field(init=False)
    scripts: list[Script] = field(default_factory=list)
    names: list[int] = field(default_factory=list)
    prefixes: list[list[tuple[int, ...]]] = field(default_factory=list)  # by sentence and hypothesis
    results: dict[int, Found] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.search = BeamSearch(self.beam_size)

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


@settings(max_examples=60, deadline=None)
@given(beam_size=beam_sizes, seeds=st.lists(st.integers(0, 10**6), min_size=1, max_size=4), with_ties=st.booleans())
def test_batch_gives_what_the_plain_search_gives_each_sentence(beam_size, seeds, with_ties):
    sentences = [
        (number, random_script(seed, with_ties=with_ties), params_of(beam_size, seed))
        for number, seed in enumerate(seeds)
    ]

    results = Driver(beam_size).run([sentences])

    assert results == {name: plain_search(script, params) for name, script, params in sentences}


@settings(max_examples=30, deadline=None)
@given(beam_size=beam_sizes, seed=st.integers(0, 10**6))
def test_sentences_that_join_and_leave_at_any_step_keep_their_results(beam_size, seed):
    rng = np.random.default_rng(seed)
    sentences = [(n, random_script(seed + n), params_of(beam_size, seed + n)) for n in range(12)]
    cuts = np.sort(rng.integers(0, 13, size=5))
    arrivals = [sentences[start:stop] for start, stop in zip([0, *cuts], [*cuts, 12], strict=True)]

    results = Driver(beam_size).run(arrivals)

    assert results == {name: plain_search(script, params) for name, script, params in sentences}


@settings(max_examples=20, deadline=None)
@given(beam_size=beam_sizes, seed=st.integers(0, 10**6), order=st.permutations(range(5)))
def test_permuting_the_batch_permutes_the_results(beam_size, seed, order):
    sentences = [(n, random_script(seed + n), params_of(beam_size, seed + n)) for n in range(5)]

    straight = Driver(beam_size).run([sentences])
    permuted = Driver(beam_size).run([[sentences[n] for n in order]])

    assert straight == permuted


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6), patience=st.sampled_from([0.3, 1.0, 3.0]), length_penalty=st.sampled_from([0.0, 1.0])
)
def test_beam_of_one_is_greedy_search(seed, patience, length_penalty):
    params = SearchParams(beam_size=1, patience=patience, length_penalty=length_penalty, max_target_tokens=8)
    script = random_script(seed)

    found = Driver(1).run([[(0, script, params)]])[0]

    assert found == plain_search(script, params)
    assert [hypothesis.token_ids for hypothesis in found.hypotheses] == [plain_greedy(script, params)]


def test_more_sentences_and_longer_ones_than_there_was_room_for_at_first_keep_their_results():
    never_ends = reluctant_script(7, np.inf)
    long = SearchParams(beam_size=2, max_target_tokens=150)
    short = [(n, random_script(n), params_of(2, n)) for n in range(1, 30)]

    results = Driver(2).run([short[:10], [(0, never_ends, long)], short[10:]])

    assert results[0] == plain_search(never_ends, long)
    assert len(results[0].hypotheses[0].token_ids) == 150
    assert all(results[name] == plain_search(script, params) for name, script, params in short)


@settings(max_examples=60, deadline=None)
@given(beam_size=st.integers(1, 5), seed=st.integers(0, 10**6), reluctance=st.sampled_from([0.0, 3.0, 8.0, np.inf]))
def test_no_last_step_is_missed_whoever_joins_and_leaves(beam_size, seed, reluctance):
    """The search looks for last steps only when one may be due.  Sentences are also removed before they are done."""
    rng = np.random.default_rng(seed)
    driver, sentences = Driver(beam_size), dict[int, tuple[Script, SearchParams]]()
    for name in range(40):
        for joins in rng.random(3) < 0.3:
            if joins:
                limit = int(rng.choice([1, 2, 3, 5, 9, 20]))
                params = replace(params_of(beam_size, int(rng.integers(10**6))), max_target_tokens=limit)
                sentences[len(sentences)] = reluctant_script(seed + name, reluctance), params
                driver.join(len(sentences) - 1, *sentences[len(sentences) - 1])
        if driver.scripts and rng.random() < 0.3:
            driver.leave(int(rng.integers(len(driver.scripts))))
        if driver.scripts:
            driver.step()
    results = driver.run([])

    assert results == {name: plain_search(*sentences[name]) for name in results}
