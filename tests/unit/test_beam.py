"""The vectorised search against a plain one, and its rules against worked examples."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.config import BOS_ID, EOS_ID
from service.engine.beam import (
    BeamSearch,
    Candidates,
    Progress,
    find_non_finite,
    has_non_finite,
    normalize,
    num_candidates,
    num_wanted,
    stops_at_top,
)
from service.engine.job import FinishReason, Hypothesis, SearchParams
from tests.fakes.extensions import best_extensions

VOCABULARY = 13

Script = Callable[[tuple[int, ...]], np.ndarray]  # prefix with beginning-of-sentence -> log-probabilities [V]


def random_script(seed: int, *, with_ties: bool = False) -> Script:
    """Log-probabilities that depend on the whole prefix; quarters, which float32 adds exactly, if `with_ties`.

    Some scripts are unsure of every token, some are sure of most: then a worse hypothesis often ends first.
    """
    scale = 1.0 + seed % 5

    def script(prefix: tuple[int, ...]) -> np.ndarray:
        logits = np.random.default_rng([seed, *prefix]).normal(scale=scale, size=VOCABULARY)
        log_probs = logits - np.log(np.exp(logits).sum())
        return np.asarray(np.round(log_probs * 4) / 4 if with_ties else log_probs, np.float32)

    return script


def reluctant_script(seed: int, reluctance: float) -> Script:
    """Ends seldom, or never: then nothing but the last step makes the search look closely."""
    script = random_script(seed)

    def reluctant(prefix: tuple[int, ...]) -> np.ndarray:
        log_probs = script(prefix)
        log_probs[EOS_ID] -= np.float32(reluctance)
        return log_probs

    return reluctant


# The plain search: one sentence, Python lists, every candidate looked at.


@dataclass(frozen=True)
class Found:
    hypotheses: tuple[Hypothesis, ...]
    num_steps: int


def plain_search(script: Script, params: SearchParams) -> Found:
    beam: list[tuple[np.float32, tuple[int, ...]]] = [(np.float32(0), ())]
    finished: list[Hypothesis] = []
    top_finished, num_steps, is_enough = False, 0, False
    while not is_enough:
        num_steps += 1
        is_last = num_steps == params.max_target_tokens
        candidates = plain_candidates(script, beam)[: 2 * params.beam_size]
        spare = [candidate for candidate in candidates[params.beam_size :] if candidate[1][-1] != EOS_ID]
        beam = []
        for place, (score, tokens) in enumerate(candidates[: params.beam_size]):
            if tokens[-1] != EOS_ID and not is_last:
                beam.append((score, tokens))
                continue
            finished.append(plain_hypothesis(score, tokens, params.length_penalty))
            top_finished = top_finished or place == 0
            if not is_last:
                beam.append(spare.pop(0))
        is_enough = is_last or plain_is_enough(len(finished), params, top_finished=top_finished)
    best_first = sorted(finished, key=lambda hypothesis: -hypothesis.score)
    return Found(tuple(best_first[: params.num_hypotheses]), num_steps)


def plain_candidates(
    script: Script, beam: list[tuple[np.float32, tuple[int, ...]]]
) -> list[tuple[np.float32, tuple[int, ...]]]:
    flat = [
        (score + log_prob, (*tokens, token))
        for score, tokens in beam
        for token, log_prob in enumerate(script((BOS_ID, *tokens)))
    ]
    return sorted(flat, key=lambda candidate: -candidate[0])  # stable: of equals the lower flat index


def plain_hypothesis(score: np.float32, tokens: tuple[int, ...], length_penalty: float) -> Hypothesis:
    normalized = score / np.float32(len(tokens)) ** np.float32(length_penalty)
    if tokens[-1] == EOS_ID:
        return Hypothesis(token_ids=tokens[:-1], score=float(normalized), finish_reason=FinishReason.END_OF_SENTENCE)
    return Hypothesis(token_ids=tokens, score=float(normalized), finish_reason=FinishReason.LENGTH)


def plain_is_enough(num_finished: int, params: SearchParams, *, top_finished: bool) -> bool:
    if params.beam_size == 1:
        return num_finished == 1
    if params.length_penalty == 0:
        return top_finished and num_finished >= params.num_hypotheses
    return num_finished >= max(int(params.beam_size * params.patience + 0.5), params.num_hypotheses)


def plain_greedy(script: Script, params: SearchParams) -> tuple[int, ...]:
    tokens: tuple[int, ...] = ()
    while len(tokens) < params.max_target_tokens:
        token = int(np.argmax(script((BOS_ID, *tokens))))
        if token == EOS_ID:
            break
        tokens += (token,)
    return tokens


# A driver that keeps every hypothesis' prefix by following `parents`, as the key/value cache does.


@dataclass
class Driver:
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

    def step(self) -> Progress:
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


def test_greedy_search_ranks_by_log_probability_alone_and_adds_the_sums_itself():
    """With a large sum added, the better token and its neighbour would round to the same number."""
    search = BeamSearch(1)
    search.add(SearchParams(beam_size=1, length_penalty=0.0))
    search.advance(one_sentence([(-1e8, 7, 0), (-2e8, 8, 0)]))
    assert search.scores.tolist() == [[0.0]]

    search.advance(best_extensions(np.array([[[-9.0, -9.0, -9.0, -9.0, -1.1, -1.0]]], np.float32), search.scores))
    assert (search.tokens.tolist(), search.scores.tolist()) == ([[5]], [[0.0]])
    search.advance(one_sentence([(-64.0, EOS_ID, 0), (-65.0, 8, 0)]))

    (hypothesis,) = search.hypotheses(0)
    assert hypothesis.token_ids == (7, 5)
    assert hypothesis.score == np.float32(np.float32(-1e8) + np.float32(-1.0)) + np.float32(-64.0)


def test_scores_of_a_beam_are_the_sums_and_only_the_first_hypothesis_is_born():
    search = BeamSearch(3)
    search.add(SearchParams(beam_size=3))
    assert search.scores.tolist() == [[0.0, -np.inf, -np.inf]]

    search.advance(one_sentence([(-0.5, 7, 0), (-1.0, 8, 0), (-1.5, 9, 0), (-2.0, 4, 0), (-3.0, 5, 0), (-4.0, 6, 0)]))

    assert search.scores.tolist() == [[-0.5, -1.0, -1.5]]
    assert search.scores.dtype == np.float32


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


# The rules, one by one.


def one_sentence(ranked: Sequence[tuple[float, int, int]], check: float = 0.0) -> Candidates:
    """(score, token, parent) of a sentence's candidates, best first."""
    scores, tokens, parents = zip(*ranked, strict=True)
    return Candidates(
        np.array([scores], np.float32), np.array([tokens]), np.array([parents]), np.array([check], np.float32)
    )


def candidates_of(search: BeamSearch, *rows: dict[int, float]) -> Candidates:
    """One sentence; each row {token: log-probability} of one hypothesis."""
    log_probs = np.full((1, len(rows), VOCABULARY), -99.0, np.float32)
    for hypothesis, row in enumerate(rows):
        log_probs[0, hypothesis, list(row)] = list(row.values())
    return best_extensions(log_probs, search.scores)


def test_search_looks_at_twice_the_beam():
    assert [num_candidates(beam_size) for beam_size in (1, 4, 5)] == [2, 8, 10]


@pytest.mark.parametrize(
    ("tokens", "survivors"),
    [
        ([7, 8, 9, 10], [0, 1]),
        ([7, EOS_ID, 8, 9], [0, 2]),
        ([EOS_ID, 7, 8, 9], [2, 1]),
        ([EOS_ID, 7, EOS_ID, 9], [3, 1]),
        ([EOS_ID, EOS_ID, 8, 9], [2, 3]),
        ([7, 8, EOS_ID, EOS_ID], [0, 1]),
        ([EOS_ID, 5, EOS_ID, EOS_ID, 6, 7], [4, 1, 5]),
        ([EOS_ID, 5, 6, 7, EOS_ID, 8], [3, 1, 2]),
        ([4, EOS_ID, EOS_ID, 7, EOS_ID, 8], [0, 3, 5]),
    ],
)
def test_an_ended_place_goes_on_with_the_best_unused_candidate_that_is_no_end(tokens, survivors):
    beam_size = len(tokens) // 2
    search = BeamSearch(beam_size)
    search.add(SearchParams(beam_size=beam_size, patience=9.0))
    parents = [(7 * rank + 1) % beam_size for rank in range(len(tokens))]
    ranked = [(-1.0 - rank, token, parent) for rank, (token, parent) in enumerate(zip(tokens, parents, strict=True))]

    progress = search.advance(one_sentence(ranked))

    assert not progress.finished
    assert progress.parents.tolist() == [[parents[rank] for rank in survivors]]
    assert search.tokens.tolist() == [[tokens[rank] for rank in survivors]]
    assert search.scores.tolist() == [[-1.0 - rank for rank in survivors]]


def test_survivors_are_chosen_for_each_sentence_alone():
    search = BeamSearch(2)
    for _ in range(3):
        search.add(SearchParams(beam_size=2, patience=9.0))
    tokens = np.array([[7, 8, 9, 10], [EOS_ID, 5, EOS_ID, 6], [4, EOS_ID, 9, 7]])
    parents = np.array([[0, 1, 0, 1], [1, 0, 0, 1], [0, 0, 1, 0]])
    scores = np.tile(np.array([-1.0, -2.0, -3.0, -4.0], np.float32), (3, 1))

    progress = search.advance(Candidates(scores, tokens, parents, np.zeros(3, np.float32)))

    assert search.tokens.tolist() == [[7, 8], [6, 5], [4, 9]]
    assert progress.parents.tolist() == [[0, 1], [1, 0], [0, 1]]
    assert search.scores.tolist() == [[-1.0, -2.0], [-4.0, -2.0], [-1.0, -3.0]]


def test_an_end_behind_the_first_k_finishes_nothing():
    search = BeamSearch(2)
    search.add(SearchParams(beam_size=2, patience=0.5))

    progress = search.advance(one_sentence([(-1.0, 7, 0), (-2.0, 8, 0), (-3.0, EOS_ID, 0), (-4.0, 9, 0)]))

    assert not progress.finished
    assert search.hypotheses(0) == ()


def test_at_the_last_step_the_first_k_finish_as_they_stand():
    search = BeamSearch(2)
    search.add(SearchParams(beam_size=2, num_hypotheses=2, max_target_tokens=2, length_penalty=0.0, patience=3.0))
    search.advance(one_sentence([(-1.0, 7, 0), (-2.0, 8, 0), (-3.0, 9, 0), (-4.0, 4, 0)]))

    progress = search.advance(one_sentence([(-2.0, 5, 1), (-3.0, EOS_ID, 0), (-4.0, EOS_ID, 1), (-5.0, 6, 0)]))

    assert progress.finished == [0]
    assert search.num_steps(0) == 2
    assert search.hypotheses(0) == (
        Hypothesis(token_ids=(8, 5), score=-2.0, finish_reason=FinishReason.LENGTH),
        Hypothesis(token_ids=(7,), score=-3.0, finish_reason=FinishReason.END_OF_SENTENCE),
    )


def test_a_hypothesis_is_the_walk_back_along_its_own_parents_whatever_became_of_the_beam_since():
    search = BeamSearch(2)
    search.add(SearchParams(beam_size=2, num_hypotheses=2, length_penalty=0.0, patience=1.0))
    search.advance(one_sentence([(-1.0, 4, 0), (-1.0, 5, 0), (-9.0, 6, 0), (-9.0, 7, 0)]))
    search.advance(one_sentence([(-2.0, 8, 1), (-2.0, 9, 0), (-9.0, 6, 0), (-9.0, 7, 0)]))  # 5 8 | 4 9
    search.advance(one_sentence([(-3.0, 10, 1), (-3.5, EOS_ID, 1), (-4.0, 11, 0), (-9.0, 7, 0)]))  # 4 9 10 | 5 8 11
    progress = search.advance(one_sentence([(-5.0, EOS_ID, 1), (-6.0, 4, 1), (-7.0, 5, 1), (-8.0, 6, 1)]))

    assert progress.finished == [0]
    assert [hypothesis.token_ids for hypothesis in search.hypotheses(0)] == [(4, 9), (5, 8, 11)]


def test_removing_a_sentence_gives_its_number_to_the_last_with_all_it_has():
    search = BeamSearch(2)
    for limit in (9, 8, 3):
        search.add(SearchParams(beam_size=2, max_target_tokens=limit, length_penalty=0.0))
    tokens = np.array([[4, 5, 6, 7], [5, 6, 7, 8], [6, 7, 8, 9]])
    scores, parents = np.tile(np.array([-1, -2, -3, -4], np.float32), (3, 1)), np.zeros((3, 4), np.int64)
    scores[2] -= 1
    search.advance(Candidates(scores, tokens, parents, np.zeros(3, np.float32)))

    search.remove(0)

    assert search.num_sentences == 2
    assert search.tokens.tolist() == [[6, 7], [5, 6]]
    assert search.scores.tolist() == [[-2.0, -3.0], [-1.0, -2.0]]
    rest = Candidates(scores[:2] - 9, tokens[:2], parents[:2], np.zeros(2, np.float32))
    assert search.advance(rest).finished == ()
    assert search.advance(rest).finished == [0]  # the one with a limit of three steps
    assert search.hypotheses(0)[0].token_ids == (6, 4, 4)


@pytest.mark.parametrize(
    ("beam_size", "patience", "num_hypotheses", "wanted"),
    [
        (4, 1.0, 1, 4),
        (4, 2.0, 1, 8),
        (4, 0.5, 1, 2),
        (4, 0.5, 3, 3),
        (4, 0.1, 1, 1),  # rounds to none, but one is asked for
        (5, 0.5, 1, 3),  # 2.5: half away from zero
        (3, 0.8, 1, 2),  # 2.4
        (3, 0.9, 1, 3),  # 2.7
        (1, 4.0, 1, 1),  # greedy
        (2, 1.0, 1, 2),
    ],
)
def test_number_of_finished_hypotheses_that_end_a_sentence(beam_size, patience, num_hypotheses, wanted):
    params = SearchParams(beam_size=beam_size, patience=patience, num_hypotheses=num_hypotheses)

    assert num_wanted(params) == wanted


def test_without_length_penalty_a_sentence_stops_at_its_top_hypothesis():
    params = SearchParams(beam_size=4, length_penalty=0.0, num_hypotheses=2, patience=2.0)

    assert stops_at_top(params)
    assert num_wanted(params) == 2
    assert not stops_at_top(replace(params, length_penalty=0.1))
    assert not stops_at_top(replace(params, beam_size=1))
    assert stops_at_top(replace(params, beam_size=2))


def test_without_length_penalty_a_hypothesis_that_ends_in_second_place_does_not_end_the_sentence():
    search = BeamSearch(2)
    search.add(SearchParams(beam_size=2, length_penalty=0.0))
    second = {7: -0.5, EOS_ID: -1.0, 8: -2.0, 9: -3.0}
    first = {EOS_ID: -0.1, 7: -4.0, 8: -5.0, 9: -6.0}

    progress = search.advance(candidates_of(search, second, second))
    assert not progress.finished
    progress = search.advance(candidates_of(search, first, first))

    assert progress.finished == [0]
    assert [hypothesis.token_ids for hypothesis in search.hypotheses(0)] == [(7,)]


def test_without_length_penalty_a_sentence_goes_on_until_it_has_as_many_hypotheses_as_asked_for():
    search = BeamSearch(2)
    search.add(SearchParams(beam_size=2, length_penalty=0.0, num_hypotheses=2))
    first = {EOS_ID: -0.1, 7: -1.0, 8: -1.5, 9: -6.0}
    second = {7: -0.1, EOS_ID: -1.0, 8: -6.0, 9: -7.0}

    progress = search.advance(candidates_of(search, first, first))
    assert not progress.finished
    progress = search.advance(candidates_of(search, second, {4: -9.0, 5: -9.5, 6: -10.0, 8: -11.0}))

    assert progress.finished == [0]
    assert [hypothesis.token_ids for hypothesis in search.hypotheses(0)] == [(), (8,)]


def test_score_is_divided_by_the_length_to_the_power_of_the_penalty():
    def score(length_penalty: float) -> float:
        return normalize(-6.0, 4, SearchParams(length_penalty=length_penalty))

    assert score(1.0) == -1.5
    assert score(0.0) == -6.0
    assert score(0.5) == -3.0
    assert score(2.0) == -0.375


@pytest.mark.parametrize(
    ("check", "first", "is_fault"),
    [
        (0.0, -1.0, False),
        (-np.inf, -1.0, False),
        (0.0, np.inf, False),  # cannot be without an infinite check
        (np.nan, -1.0, True),
        (np.inf, -1.0, True),
        (0.0, -np.inf, True),
        (0.0, np.nan, True),
    ],
)
def test_a_sentence_is_non_finite_where_the_model_produced_nan_or_infinity_or_nothing_possible(check, first, is_fault):
    scores = np.full((3, 4), -1.0, np.float32)
    scores[1, 0] = first
    scores[2, 1:] = -np.inf  # forbidden tokens are no fault
    checks = np.array([0.0, check, -3.0], np.float32)
    candidates = Candidates(scores, np.full((3, 4), 5), np.zeros((3, 4), np.int64), checks)

    assert find_non_finite(candidates).tolist() == [False, is_fault, False]
    assert has_non_finite(candidates) is is_fault


@settings(max_examples=100)
@given(
    checks=st.lists(st.sampled_from([0.0, -5.0, -np.inf, np.inf, np.nan]), min_size=1, max_size=6),
    seed=st.integers(0, 10**6),
)
def test_the_quick_look_finds_a_fault_exactly_where_the_close_one_does(checks, seed):
    shape = (len(checks), 4)
    scores = np.random.default_rng(seed).choice([-1.0, -1.0, -np.inf, np.nan], size=shape).astype(np.float32)
    candidates = Candidates(scores, np.zeros(shape, int), np.zeros(shape, int), np.array(checks, np.float32))

    assert has_non_finite(candidates) == find_non_finite(candidates).any()


# The search as a whole, step by step.


def test_first_step_extends_only_one_of_the_equal_hypotheses():
    search = BeamSearch(2)
    search.add(SearchParams(beam_size=2))
    row = {7: -0.5, 8: -1.0, 9: -2.0, 10: -3.0}

    progress = search.advance(candidates_of(search, row, row))

    assert search.tokens.tolist() == [[7, 8]]
    assert progress.parents.tolist() == [[0, 0]]
    assert (progress.finished, progress.non_finite) == ((), ())


def test_new_sentence_starts_from_beginning_of_sentence_also_in_a_used_place():
    search = BeamSearch(2)
    search.add(SearchParams(beam_size=2))
    row = {7: -0.5, 8: -1.0, 9: -2.0, 10: -3.0}
    search.advance(candidates_of(search, row, row))
    search.remove(0)

    search.add(SearchParams(beam_size=2))

    assert search.num_sentences == 1
    assert search.num_steps(0) == 0
    assert search.tokens.tolist() == [[BOS_ID, BOS_ID]]
    search.advance(candidates_of(search, row, row))
    assert search.tokens.tolist() == [[7, 8]]


@pytest.mark.parametrize("max_target_tokens", [1, 5])
def test_non_finite_sentence_is_reported_and_its_neighbours_go_on(max_target_tokens):
    search = BeamSearch(2)
    for _ in range(3):
        search.add(SearchParams(beam_size=2, patience=0.5, max_target_tokens=max_target_tokens))
    log_probs = np.full((3, 2, VOCABULARY), -9.0, np.float32)
    log_probs[:, :, EOS_ID] = -1.0
    log_probs[1] = np.nan

    progress = search.advance(best_extensions(log_probs, search.scores))

    assert progress.finished == [0, 2]
    assert progress.non_finite == [1]
    assert search.hypotheses(1) == ()
    assert search.hypotheses(2)[0].token_ids == ()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_one_hypothesis_with_nan_makes_its_sentence_non_finite(bad):
    search = BeamSearch(2)
    for _ in range(2):
        search.add(SearchParams(beam_size=2))
    log_probs = np.full((2, 2, VOCABULARY), -3.0, np.float32)
    log_probs[1, 1] = bad  # a hypothesis that is not even born

    progress = search.advance(best_extensions(log_probs, search.scores))

    assert (progress.finished, progress.non_finite) == ([], [1])


def test_the_sentence_that_stays_is_extended_while_its_neighbour_ends():
    search = BeamSearch(2)
    for limit in (1, 3):
        search.add(SearchParams(beam_size=2, max_target_tokens=limit))
    tokens = np.array([[7, 8, 9, 10], [4, EOS_ID, 6, 5]])
    scores = np.tile(np.array([-1, -2, -3, -4], np.float32), (2, 1))

    progress = search.advance(Candidates(scores, tokens, np.zeros((2, 4), np.int64), np.zeros(2, np.float32)))
    search.remove(0)

    assert progress.finished == [0]
    assert search.tokens.tolist() == [[4, 6]]
    assert search.scores.tolist() == [[-1.0, -3.0]]


def test_hypotheses_come_best_first_and_no_more_than_asked_for():
    search = BeamSearch(3)
    search.add(SearchParams(beam_size=3, num_hypotheses=2, max_target_tokens=1))
    row = {9: -0.5, EOS_ID: -1.0, 5: -2.0, 6: -3.0, 7: -4.0, 8: -5.0}

    search.advance(candidates_of(search, row, row, row))

    assert search.hypotheses(0) == (
        Hypothesis(token_ids=(9,), score=-0.5, finish_reason=FinishReason.LENGTH),
        Hypothesis(token_ids=(), score=-1.0, finish_reason=FinishReason.END_OF_SENTENCE),
    )


@pytest.mark.parametrize("beam_size", [1, 2])
def test_length_of_the_score_counts_the_end_of_sentence(beam_size):
    search = BeamSearch(beam_size)
    search.add(SearchParams(beam_size=beam_size, length_penalty=1.0, patience=0.5))
    search.advance(candidates_of(search, *[{7: -1.0, 8: -2.0}] * beam_size))

    progress = search.advance(candidates_of(search, *[{EOS_ID: -1.0, 8: -2.0}] * beam_size))

    assert progress.finished == [0]
    assert search.hypotheses(0) == (Hypothesis(token_ids=(7,), score=-1.0, finish_reason=FinishReason.END_OF_SENTENCE),)
