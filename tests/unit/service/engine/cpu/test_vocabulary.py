import numpy as np
import pytest

from model.config import EOS_ID
from model.shortlist import Shortlist
from service.engine.cpu.vocabulary import COLUMNS, FORBIDDEN, LiveVocabulary, Projection

V, D = 500, 6
PROJECTION = Projection(
    np.random.default_rng(0).integers(-127, 128, (V, D)).astype(np.int8), np.arange(V, dtype=np.float32)
)


@pytest.fixture
def shortlist() -> Shortlist:
    rng = np.random.default_rng(1)
    sources = np.repeat(np.arange(V), 7)
    return Shortlist.from_links(V, np.arange(EOS_ID, 40), sources, rng.integers(0, V, sources.size))


def check(vocabulary: LiveVocabulary, shortlist: Shortlist, sources: list[list[int]]) -> None:
    """Every sentence may use exactly its list, and a column holds what belongs to its token."""
    assert vocabulary.mask.shape == (len(sources), 1, vocabulary.tokens.size)
    assert vocabulary.tokens.size % COLUMNS == 0
    assert vocabulary.weights.flags.c_contiguous
    assert vocabulary.scales is not None
    for mask, source in zip(vocabulary.mask[:, 0], sources, strict=True):
        allowed = (mask == 0.0).nonzero()[0]
        assert set(mask.tolist()) <= {0.0, float(FORBIDDEN)}
        np.testing.assert_array_equal(np.sort(vocabulary.tokens[allowed]), shortlist.candidates(source))
        np.testing.assert_array_equal(vocabulary.weights[:, allowed].T, PROJECTION.rows[vocabulary.tokens[allowed]])
        np.testing.assert_array_equal(vocabulary.scales[allowed], vocabulary.tokens[allowed])


@pytest.mark.parametrize("seed", range(5))
def test_any_order_of_coming_and_going(shortlist, seed):
    rng = np.random.default_rng(seed)
    vocabulary, sources = LiveVocabulary(shortlist, PROJECTION), list[list[int]]()
    for _ in range(60):
        if sources and rng.random() < 0.5:
            index = int(rng.integers(len(sources)))
            vocabulary.remove(index)
            sources[index] = sources[-1]
            sources.pop()
        else:
            new = [rng.integers(0, V, rng.integers(1, 12)).tolist() for _ in range(rng.integers(1, 4))]
            vocabulary.append(new)
            sources += new
        check(vocabulary, shortlist, sources)


def addresses(vocabulary: LiveVocabulary) -> list[int]:
    assert vocabulary.scales is not None
    return [array.ctypes.data for array in (vocabulary.weights, vocabulary.scales, vocabulary.mask)]


def test_arrays_stay_where_they_are_unless_the_generation_changes(shortlist):
    vocabulary, moved = LiveVocabulary(shortlist, PROJECTION), 0
    for token in range(0, V, 9):
        generation, before = vocabulary.generation, addresses(vocabulary)
        vocabulary.append([[token, (token + 5) % V]])
        if vocabulary.generation == generation:
            assert addresses(vocabulary) == before
        moved += vocabulary.generation != generation
    assert 0 < moved < 20


def test_columns_of_those_who_left_are_given_up(shortlist):
    vocabulary = LiveVocabulary(shortlist, PROJECTION)
    for token in range(V):
        vocabulary.append([[token]])
        if token:
            vocabulary.remove(0)

    assert vocabulary.tokens.size <= 2 * COLUMNS


def test_columns_are_never_more_than_the_vocabulary_and_a_crowd_is_forgotten(shortlist):
    vocabulary = LiveVocabulary(shortlist, PROJECTION)
    crowd = [[token] for token in range(V)]
    vocabulary.append(crowd)
    assert vocabulary.tokens.size <= V + COLUMNS
    for _ in crowd:
        vocabulary.remove(0)
    vocabulary.append([[100]])

    assert vocabulary.tokens.size - shortlist.candidates([100]).size < COLUMNS
