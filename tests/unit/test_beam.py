"""The vectorised search against a plain one, and its named steps against worked examples."""

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
    Moves,
    Progress,
    Ranked,
    choose_survivors,
    find_ends,
    find_non_finite,
    normalize,
    num_candidates,
    num_wanted,
    rank,
    stops_at_top,
)
from service.engine.job import FinishReason, Hypothesis, SearchParams

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


# The plain search: one sentence, Python lists, every candidate looked at.


def plain_search(script: Script, params: SearchParams) -> tuple[Hypothesis, ...]:
    beam: list[tuple[np.float32, tuple[int, ...]]] = [(np.float32(0), ())]
    finished: list[Hypothesis] = []
    top_finished = False
    for step in range(params.max_target_tokens):
        is_last = step + 1 == params.max_target_tokens
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
        if plain_is_enough(len(finished), params, top_finished=top_finished):
            break
    return tuple(sorted(finished, key=lambda hypothesis: -hypothesis.score)[: params.num_hypotheses])


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


# A driver that keeps every row's prefix by following `moves`, as the key/value cache does.


@dataclass
class Driver:
    beam_size: int
    search: BeamSearch = field(init=False)
    scripts: list[Script] = field(default_factory=list)
    names: list[int] = field(default_factory=list)
    prefixes: list[list[int]] = field(default_factory=list)  # per row
    results: dict[int, tuple[Hypothesis, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.search = BeamSearch(self.beam_size)

    def join(self, name: int, script: Script, params: SearchParams) -> None:
        assert self.search.add(params) == len(self.scripts)
        self.scripts.append(script)
        self.names.append(name)
        self.prefixes += [[] for _ in range(self.beam_size)]

    def step(self) -> Progress:
        for prefix, token in zip(self.prefixes, self.search.tokens().ravel().tolist(), strict=True):
            prefix.append(token)
        progress = self.search.advance(self.candidates())
        self.follow(progress.moves)
        for index in reversed(progress.finished.tolist()):
            self.results[self.names[index]] = self.search.hypotheses(index)
            self.leave(index)
        return progress

    def candidates(self) -> Candidates:
        log_probs = np.stack(
            [self.scripts[row // self.beam_size](tuple(prefix)) for row, prefix in enumerate(self.prefixes)]
        ).reshape(-1, self.beam_size, VOCABULARY)
        order = np.argsort(-log_probs, axis=-1, kind="stable")[:, :, : 2 * self.beam_size]
        return Candidates(np.take_along_axis(log_probs, order, axis=-1), order)

    def follow(self, moves: Moves) -> None:
        before = [list(prefix) for prefix in self.prefixes]
        for row, source, start, stop in zip(
            *(part.tolist() for part in (moves.rows, moves.sources, moves.starts, moves.stops)), strict=True
        ):
            assert row // self.beam_size == source // self.beam_size
            assert stop == len(before[source])
            assert row != source
            self.prefixes[row][start:stop] = before[source][start:stop]
            assert self.prefixes[row] == before[source]

    def leave(self, index: int) -> None:
        self.search.remove(index)
        last = len(self.scripts) - 1
        rows = slice(index * self.beam_size, (index + 1) * self.beam_size)
        self.prefixes[rows] = self.prefixes[last * self.beam_size :]
        del self.prefixes[last * self.beam_size :]
        self.scripts[index], self.names[index] = self.scripts[last], self.names[last]
        self.scripts.pop()
        self.names.pop()

    def run(self, arrivals: Iterable[Sequence[tuple[int, Script, SearchParams]]]) -> dict[int, tuple[Hypothesis, ...]]:
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

    results = Driver(1).run([[(0, script, params)]])

    assert [hypothesis.token_ids for hypothesis in results[0]] == [plain_greedy(script, params)]


def test_greedy_search_follows_the_better_token_where_the_sums_round_to_the_same_number():
    scores = np.array([[-1e8]], np.float32)
    candidates = Candidates(np.array([[[-1.0, -1.1]]], np.float32), np.array([[[9, 5]]]))

    ranked = rank(scores, candidates)

    assert ranked.scores[0, 0] == ranked.scores[0, 1]
    assert ranked.tokens.tolist() == [[9, 5]]
    assert ranked.parents.tolist() == [[0, 0]]


def test_more_sentences_and_longer_ones_than_there_was_room_for_at_first_keep_their_results():
    never_ends = lambda prefix: np.where(np.arange(VOCABULARY) == EOS_ID, -50.0, random_script(7)(prefix))  # noqa: E731
    long = SearchParams(beam_size=2, max_target_tokens=150)
    short = [(n, random_script(n), params_of(2, n)) for n in range(1, 30)]

    results = Driver(2).run([short[:10], [(0, never_ends, long)], short[10:]])

    assert results[0] == plain_search(never_ends, long)
    assert len(results[0][0].token_ids) == 150
    assert all(results[name] == plain_search(script, params) for name, script, params in short)


# The named steps.


def test_search_looks_at_twice_the_beam():
    assert [num_candidates(beam_size) for beam_size in (1, 4, 5)] == [2, 8, 10]


def test_rank_adds_the_sum_so_far_and_puts_the_best_first():
    scores = np.array([[-1.0, -2.0]], np.float32)
    log_probs = np.array([[[-0.5, -3.0, -4.0, -5.0], [-0.25, -0.75, -6.0, -7.0]]], np.float32)
    tokens = np.array([[[7, 8, 9, 10], [4, 5, 6, 7]]])

    ranked = rank(scores, Candidates(log_probs, tokens))

    assert ranked.scores.tolist() == [[-1.5, -2.25, -2.75, -4.0]]
    assert ranked.tokens.tolist() == [[7, 4, 5, 8]]
    assert ranked.parents.tolist() == [[0, 1, 1, 0]]


def test_rank_of_equal_sums_is_by_hypothesis_then_token():
    scores = np.array([[-1.0, -1.5]], np.float32)
    log_probs = np.array([[[-1.0, -1.0, -1.0, -1.0], [-0.5, -0.5, -0.5, -0.5]]], np.float32)
    tokens = np.array([[[11, 6, 12, 8], [5, 3, 4, 7]]])

    ranked = rank(scores, Candidates(log_probs, tokens))

    assert ranked.tokens.tolist() == [[6, 8, 11, 12]]
    assert ranked.parents.tolist() == [[0, 0, 0, 0]]


def test_rank_sums_in_float32():
    scores = np.array([[np.float32(-10.1), np.float32(-10.1)]])
    log_probs = np.full((1, 2, 4), -0.1, np.float32)

    ranked = rank(scores, Candidates(log_probs, np.array([[[4, 5, 6, 7]] * 2])))

    assert ranked.scores.dtype == np.float32
    assert ranked.scores[0, 0] == np.float32(np.float32(-10.1) + np.float32(-0.1))


def test_ends_are_end_of_sentence_among_the_first_k_and_everything_at_the_last_step():
    tokens = np.array([[EOS_ID, 7, EOS_ID, 8], [9, EOS_ID, 4, 5], [9, 8, 4, EOS_ID], [6, 7, 8, 9]])
    ranked = Ranked(np.zeros((4, 4), np.float32), tokens, np.zeros((4, 4), np.int64))

    ends = find_ends(ranked, np.array([False, False, False, True]))

    assert ends.tolist() == [[True, False], [False, True], [False, False], [True, True]]


@pytest.mark.parametrize(
    ("tokens", "ends", "survivors"),
    [
        ([7, 8, 9, 10], [0, 0], [0, 1]),
        ([7, EOS_ID, 8, 9], [0, 1], [0, 2]),
        ([EOS_ID, 7, 8, 9], [1, 0], [2, 1]),
        ([EOS_ID, 7, EOS_ID, 9], [1, 0], [3, 1]),
        ([EOS_ID, EOS_ID, 8, 9], [1, 1], [2, 3]),
        ([EOS_ID, 5, EOS_ID, EOS_ID, 6, 7], [1, 0, 1], [4, 1, 5]),
        ([EOS_ID, 5, 6, 7, EOS_ID, 8], [1, 0, 0], [3, 1, 2]),
        ([4, EOS_ID, EOS_ID, 7, EOS_ID, 8], [0, 1, 1], [0, 3, 5]),
    ],
)
def test_an_ended_place_goes_on_with_the_best_unused_candidate_that_is_no_end(tokens, ends, survivors):
    chosen = choose_survivors(np.array([tokens]), np.array([ends], bool))

    assert chosen.tolist() == [survivors]


def test_survivors_are_chosen_for_each_sentence_alone():
    tokens = np.array([[7, 8, 9, 10], [EOS_ID, 5, EOS_ID, 6]])

    chosen = choose_survivors(tokens, np.array([[False, False], [True, False]]))

    assert chosen.tolist() == [[0, 1], [3, 1]]


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

    progress = search.advance(candidates_of(second, second))
    assert not progress.finished.size
    progress = search.advance(candidates_of(first, first))

    assert progress.finished.tolist() == [0]
    assert [hypothesis.token_ids for hypothesis in search.hypotheses(0)] == [(7,)]


def test_without_length_penalty_a_sentence_goes_on_until_it_has_as_many_hypotheses_as_asked_for():
    search = BeamSearch(2)
    search.add(SearchParams(beam_size=2, length_penalty=0.0, num_hypotheses=2))
    first = {EOS_ID: -0.1, 7: -1.0, 8: -1.5, 9: -6.0}
    second = {7: -0.1, EOS_ID: -1.0, 8: -6.0, 9: -7.0}

    progress = search.advance(candidates_of(first, first))
    assert not progress.finished.size
    progress = search.advance(candidates_of(second, {4: -9.0, 5: -9.5, 6: -10.0, 8: -11.0}))

    assert progress.finished.tolist() == [0]
    assert [hypothesis.token_ids for hypothesis in search.hypotheses(0)] == [(), (8,)]


def test_score_is_divided_by_the_length_to_the_power_of_the_penalty():
    def score(length_penalty: float) -> float:
        return normalize(np.float32(-6.0), 4, SearchParams(length_penalty=length_penalty))

    assert score(1.0) == -1.5
    assert score(0.0) == -6.0
    assert score(0.5) == -3.0
    assert score(2.0) == -0.375


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_candidate_that_is_no_number_makes_its_sentence_non_finite(bad):
    log_probs = np.full((3, 2, 4), -1.0, np.float32)
    log_probs[1, 1, 3] = bad

    assert find_non_finite(log_probs).tolist() == [False, True, False]


def test_forbidden_tokens_are_no_fault_but_a_hypothesis_without_any_token_is():
    log_probs = np.full((2, 2, 4), -1.0, np.float32)
    log_probs[0, :, 1:] = -np.inf
    log_probs[1, 1, :] = -np.inf

    assert find_non_finite(log_probs).tolist() == [False, True]


# The search as a whole, step by step.


def candidates_of(*rows: dict[int, float]) -> Candidates:
    """One sentence; each row {token: log-probability}, best first."""
    return Candidates(
        np.array([[list(row.values()) for row in rows]], np.float32), np.array([[list(row) for row in rows]])
    )


def test_first_step_extends_only_one_of_the_equal_hypotheses():
    search = BeamSearch(2)
    search.add(SearchParams(beam_size=2))
    row = {7: -0.5, 8: -1.0, 9: -2.0, 10: -3.0}

    progress = search.advance(candidates_of(row, row))

    assert search.tokens().tolist() == [[7, 8]]
    assert not progress.finished.size
    assert not progress.non_finite.size


def test_new_sentence_starts_from_beginning_of_sentence_also_in_a_used_place():
    search = BeamSearch(2)
    search.add(SearchParams(beam_size=2))
    row = {7: -0.5, 8: -1.0, 9: -2.0, 10: -3.0}
    search.advance(candidates_of(row, row))
    search.remove(0)

    search.add(SearchParams(beam_size=2))

    assert search.num_sentences == 1
    assert search.tokens().tolist() == [[BOS_ID, BOS_ID]]
    search.advance(candidates_of(row, row))
    assert search.tokens().tolist() == [[7, 8]]


def test_moves_name_only_changed_rows_and_the_columns_in_which_they_differ():
    search = BeamSearch(2)
    search.add(SearchParams(beam_size=2))
    first = {7: -0.5, 8: -1.0, 9: -2.0, 10: -3.0}
    bad = {4: -20.0, 5: -21.0, 6: -22.0, 9: -23.0}

    no_moves = search.advance(candidates_of(first, first)).moves  # column 0: both hold beginning-of-sentence
    from_first = search.advance(candidates_of(first, bad)).moves  # column 1: 7 and 8
    from_second = search.advance(candidates_of(bad, first)).moves  # column 2: 7 and 8 again; column 1 is the same now

    assert (no_moves.rows.tolist(), no_moves.starts.tolist(), no_moves.stops.tolist()) == ([1], [1], [1])
    assert (from_first.rows.tolist(), from_first.sources.tolist()) == ([1], [0])
    assert (from_first.starts.tolist(), from_first.stops.tolist()) == ([1], [2])
    assert (from_second.rows.tolist(), from_second.sources.tolist()) == ([0], [1])
    assert (from_second.starts.tolist(), from_second.stops.tolist()) == ([2], [3])


def test_finished_sentence_does_not_move():
    search = BeamSearch(2)
    search.add(SearchParams(beam_size=2, max_target_tokens=2))
    row = {7: -0.5, 8: -1.0, 9: -2.0, 10: -3.0}
    search.advance(candidates_of(row, row))

    progress = search.advance(candidates_of(row, dict.fromkeys(row, -9.0)))

    assert progress.finished.tolist() == [0]
    assert not progress.moves.rows.size


def test_non_finite_sentence_is_reported_and_its_neighbours_go_on():
    search = BeamSearch(2)
    for _ in range(3):
        search.add(SearchParams(beam_size=2, max_target_tokens=1))
    log_probs = np.tile(np.array([-1.0, -2.0, -3.0, -4.0], np.float32), (3, 2, 1))
    log_probs[1] = np.nan
    tokens = np.tile(np.array([EOS_ID, 5, 6, 7]), (3, 2, 1))

    progress = search.advance(Candidates(log_probs, tokens))

    assert progress.finished.tolist() == [0, 2]
    assert progress.non_finite.tolist() == [1]
    assert search.hypotheses(1) == ()
    assert len(search.hypotheses(2)) == 1


def test_infinite_log_probability_raises_no_warning_of_its_own():
    search = BeamSearch(2)
    search.add(SearchParams(beam_size=2))

    progress = search.advance(Candidates(np.full((1, 2, 4), np.inf, np.float32), np.full((1, 2, 4), 5)))

    assert progress.non_finite.tolist() == [0]


def test_hypotheses_come_best_first_and_no_more_than_asked_for():
    search = BeamSearch(3)
    search.add(SearchParams(beam_size=3, num_hypotheses=2, max_target_tokens=1))
    row = {9: -0.5, EOS_ID: -1.0, 5: -2.0, 6: -3.0, 7: -4.0, 8: -5.0}

    search.advance(candidates_of(row, row, row))

    assert search.hypotheses(0) == (
        Hypothesis(token_ids=(9,), score=-0.5, finish_reason=FinishReason.LENGTH),
        Hypothesis(token_ids=(), score=-1.0, finish_reason=FinishReason.END_OF_SENTENCE),
    )


def test_length_of_the_score_counts_the_end_of_sentence():
    search = BeamSearch(1)
    search.add(SearchParams(beam_size=1, length_penalty=1.0))
    search.advance(candidates_of({7: -1.0, 8: -2.0}))

    progress = search.advance(candidates_of({EOS_ID: -1.0, 8: -2.0}))

    assert progress.finished.tolist() == [0]
    assert search.hypotheses(0) == (Hypothesis(token_ids=(7,), score=-1.0, finish_reason=FinishReason.END_OF_SENTENCE),)
