"""Word alignment against a slow twin, and the shortlist that is chosen from it."""

import gzip
import random
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import model.tools.learn_shortlist
from model.config import EOS_ID, UNK_ID
from model.data import Example
from model.shortlist import Shortlist
from model.tokenizer import Tokenizer
from model.tools.learn_shortlist import Lexicon, Links, coverage, letterless_ids, read_file_pairs
from tests.conftest import ENGLISH, GERMAN

V = 30
RECIPE = Path(model.tools.learn_shortlist.__file__).parents[1] / "recipes" / "de-en.toml"


def untracked(items, description):
    return items


def random_pairs(count: int, seed: int = 4) -> list[tuple[list[int], list[int]]]:
    rng = random.Random(seed)
    lengths = [(rng.randint(1, 6), rng.randint(1, 6)) for _ in range(count)]
    return [([rng.randrange(4, V) for _ in range(s)], [rng.randrange(4, V) for _ in range(t)]) for s, t in lengths]


def slow_model_1(pairs: list[tuple[list[int], list[int]]], iterations: int) -> dict[tuple[int, int], float]:
    """The textbook's loops: p[source, target]."""
    p: dict[tuple[int, int], float] = defaultdict(lambda: 1.0)
    for _ in range(iterations):
        counts: dict[tuple[int, int], float] = defaultdict(float)
        totals: dict[int, float] = defaultdict(float)
        for source, target in pairs:
            for t in target:
                norm = sum(p[s, t] for s in source)
                for s in source:
                    counts[s, t] += p[s, t] / norm
                    totals[s] += p[s, t] / norm
        p = {(s, t): count / totals[s] for (s, t), count in counts.items()}
    return p


@pytest.mark.parametrize("chunk_links", [40, 1_000_000])
@pytest.mark.parametrize("iterations", [1, 4])
def test_probabilities_are_those_of_the_textbook(monkeypatch, chunk_links, iterations):
    monkeypatch.setattr(model.tools.learn_shortlist, "_CHUNK_LINKS", chunk_links)
    pairs = random_pairs(60)

    links = Links.of(pairs, V, untracked)
    found = links.translation_probabilities(iterations, untracked)

    expected = slow_model_1(pairs, iterations)
    assert (len(links.chunks) > 10) == (chunk_links == 40)
    assert [*zip(links.sources.tolist(), links.targets.tolist(), strict=True)] == sorted(expected)
    assert found == pytest.approx([expected[couple] for couple in sorted(expected)])


def test_probabilities_of_a_source_token_sum_to_one():
    links = Links.of(random_pairs(60), V, untracked)

    sums = np.bincount(links.sources, links.translation_probabilities(3, untracked))

    assert sums[np.unique(links.sources)] == pytest.approx(1.0)


def test_alignment_finds_the_word_for_each_word():
    """Each source token s becomes s + 10, in any order; which is which shows only over many sentences."""
    rng = random.Random(2)
    sources = [rng.sample(range(4, 14), 4) for _ in range(200)]
    pairs = [(source, rng.sample([token + 10 for token in source], 4)) for source in sources]

    links = Links.of(pairs, V, untracked)
    best = links.translation_probabilities(5, untracked) > 0.5

    assert (links.targets[best] - links.sources[best]).tolist() == [10] * 10


def test_a_target_token_is_unexplained_where_no_chosen_couple_stands_in_its_sentence_pair():
    links = Links.of([([4, 5], [20, 21]), ([5], [20])], V, untracked)
    chosen = np.isin(links.keys, [4 * V + 20, 5 * V + 21])

    missed = links.unexplained(chosen)

    assert {int(token): int(missed[token]) for token in np.flatnonzero(missed)} == {20: 1}


@pytest.fixture(scope="module")
def tokenizer(tiny_tokenizer_path) -> Tokenizer:
    return Tokenizer.load(tiny_tokenizer_path)


@pytest.fixture(scope="module")
def examples(tokenizer) -> list[Example]:
    pairs = [*zip(ENGLISH, GERMAN, strict=True)] * 4
    return [Example(tokenizer.encode(source), tokenizer.encode(target)) for source, target in pairs]


@pytest.fixture(scope="module")
def lexicon(examples, tokenizer) -> Lexicon:
    return Lexicon.learn(examples, tokenizer, untracked)


def test_every_translation_may_end_have_unknown_tokens_and_have_punctuation(lexicon, tokenizer):
    found = lexicon.shortlist(candidates=1, always=0)

    assert {EOS_ID, UNK_ID, *tokenizer.encode(",")} <= set(found.always.tolist())
    assert found.always.tolist() == letterless_ids(tokenizer).tolist()


def test_every_source_token_may_be_copied(lexicon, tokenizer):
    found = lexicon.shortlist(candidates=1, always=0)

    for token in range(EOS_ID, tokenizer.vocab_size):
        assert token in found.candidates([token])


def test_a_source_token_has_as_many_candidates_as_asked_for_and_itself(lexicon):
    counts = np.diff(lexicon.shortlist(candidates=3, always=0).offsets)

    assert counts.max() == 4
    assert counts[EOS_ID] == 0


def test_more_candidates_and_more_tokens_always_cover_more(lexicon, examples):
    sizes = [(1, 0), (3, 0), (3, 15), (8, 15)]

    found = [coverage(lexicon.shortlist(candidates=n, always=m), examples) for n, m in sizes]

    tokens, candidates = [each.tokens for each in found], [each.candidates for each in found]
    assert tokens == sorted(tokens)
    assert tokens[0] < tokens[-1]
    assert candidates == sorted(set(candidates))


def test_always_allowed_are_the_tokens_that_held_out_pairs_miss_most(lexicon):
    without, one = (lexicon.shortlist(candidates=1, always=count) for count in (0, 1))

    missed = dict.fromkeys(range(without.vocab_size), 0)
    for source, target in lexicon.held_out:
        for token in set(target) - set(without.candidates(source).tolist()):
            missed[token] += target.count(token)
    [added] = set(one.always.tolist()) - set(without.always.tolist())
    assert missed[added] == max(missed.values())


def test_tokens_that_nothing_needs_are_not_always_allowed(lexicon):
    everything = lexicon.shortlist(candidates=200, always=1_000)

    assert len(everything.always) < 80


def test_coverage_counts_allowed_tokens_and_candidates():
    shortlist = Shortlist.from_links(V, np.array([UNK_ID, EOS_ID]), np.array([4, 5]), np.array([20, 21]))

    found = coverage(shortlist, [([4, EOS_ID], [20, 21, EOS_ID]), ([6, EOS_ID], [EOS_ID])])

    assert found.tokens == 3 / 4
    assert found.candidates == 2.5


def test_few_pairs_are_refused(examples, tokenizer):
    with pytest.raises(ValueError, match="9 usable sentence pairs to learn from, at least 10 are needed"):
        Lexicon.learn(examples[:9], tokenizer, untracked)


def write(path: Path, lines: tuple[str, ...]) -> Path:
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "wt", encoding="utf-8") as out:
        out.writelines(f"{line}\n" for line in lines)
    return path


@pytest.fixture
def texts(tmp_path) -> tuple[Path, Path]:
    return write(tmp_path / "said.en", ENGLISH * 2), write(tmp_path / "said.de.gz", GERMAN * 2)


def test_files_of_unequal_length_are_refused(tmp_path, texts):
    short = write(tmp_path / "short.de", GERMAN)

    with pytest.raises(ValueError, match=r"said\.en has 20 lines, .*short\.de has 10: they must be aligned"):
        read_file_pairs([texts[0]], [short])


def run(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(model.tools.learn_shortlist.app, [str(argument) for argument in arguments])
    return result.exit_code, " ".join(result.output.split())


def test_command_learns_from_two_files(tmp_path, texts, tiny_tokenizer_path):
    out = tmp_path / "shortlist.csr"
    options = ("--source", texts[0], "--target", texts[1], "--candidates", 2, "--always", 5)

    assert run(tiny_tokenizer_path, out, *options)[0] == 0
    assert len(Shortlist.load(out, 120).candidates([EOS_ID])) <= 5 + 10


def test_command_learns_from_a_recipe(tmp_path, tiny_tokenizer_path):
    corpus = tmp_path / "train" / "own"
    corpus.mkdir(parents=True)
    write(corpus / "own.en.gz", ENGLISH)
    write(corpus / "own.de.gz", GERMAN)
    recipe = tmp_path / "own.toml"
    recipe.write_text('name = "own"\nlanguages = {source = "en", target = "de"}\ncorpora = [{name = "own"}]\n')

    assert run(tiny_tokenizer_path, tmp_path / "out", "--data", tmp_path, "--recipe", recipe)[0] == 0
    assert Shortlist.load(tmp_path / "out", 120).vocab_size == 120


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "0 usable sentence pairs to learn from"),
        (("--source", "none.en", "--target", "none.de"), "none.en does not exist"),
        (("--source", "none.en"), "1 source files, 0 target files"),
        (("--data", "nowhere", "--recipe", RECIPE), "does not exist; expected DATA/train/NAME/NAME.LANG.gz"),
        (("--data", "nowhere"), "--data needs --recipe"),
        (("--recipe", RECIPE), "--recipe needs --data"),
    ],
)
def test_command_says_what_is_missing(tmp_path, tiny_tokenizer_path, options, message):
    code, output = run(tiny_tokenizer_path, tmp_path / "out", *options)

    assert code == 2
    assert message in output.replace("│ ", "")
    assert not (tmp_path / "out").exists()


def test_an_output_that_cannot_be_written_is_noticed_before_the_work(tmp_path, texts, tiny_tokenizer_path, monkeypatch):
    monkeypatch.setattr(Tokenizer, "load", lambda path: pytest.fail("began"))
    arguments = [tiny_tokenizer_path, tmp_path / "none" / "shortlist.csr", "--source", texts[0], "--target", texts[1]]

    result = CliRunner().invoke(model.tools.learn_shortlist.app, [str(argument) for argument in arguments])

    assert result.exit_code == 2
    assert "is no directory" in " ".join(result.output.replace("│", "").split())
