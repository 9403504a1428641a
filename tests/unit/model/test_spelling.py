"""All ways to spell a phrase are found, and only where it stands in whole pieces at the beginning of a word."""

import pytest

from model.spelling import ANYWHERE, WORD_START, Speller, Spellings
from model.tokenizer import train_tokenizer
from tests.fakes.tiny_model import SENTENCES

PIECES = ["", "_", "_Hund", "_H", "H", "und", "u", "n", "d", "(", "e", "Hund", "_ist", "s", "狗"]
PIECES = [piece.replace("_", "\u2581") for piece in PIECES]


def completes(edges: Spellings, tokens: list[int]) -> bool:
    """Whether the last token completes a phrase."""
    nodes = {ANYWHERE, WORD_START}
    for token in tokens[:-1]:
        nodes = {ANYWHERE} | {behind for node in nodes for edge, behind in edges[node] if edge == token}
    return any((tokens[-1], ANYWHERE) in edges[node] for node in nodes)


def spells(phrase: str, spelling: str) -> bool:
    edges = Speller(PIECES).spellings(["s s", phrase])
    return completes(edges, [PIECES.index(piece) for piece in spelling.replace("_", "\u2581").split()])


@pytest.mark.parametrize(
    "spelling",
    [
        "_Hund",
        "_H und",
        "_H u n d",
        "_ Hund",
        "_ H und",
        "Hund",
        "H und",
        "( Hund",
        "( H u n d",
        "e _Hund",
        "_ist _Hund",
    ],
)
def test_a_word_is_found_however_it_is_spelled(spelling):
    assert spells("Hund", spelling)


@pytest.mark.parametrize("spelling", ["_H", "und", "_ist Hund", "e H und", "H u n", "_ und", "_H u und"])
def test_a_word_is_not_found_inside_another_one_or_before_its_end(spelling):
    assert not spells("Hund", spelling)


@pytest.mark.parametrize("spelling", ["_ist _Hund", "_ist _H und", "_ist _ H und"])
def test_a_phrase_is_found_over_its_words(spelling):
    assert spells("ist Hund", spelling)
    assert not spells("ist Hund", spelling.removeprefix("_ist "))


def test_what_no_space_sets_apart_is_found_anywhere():
    assert spells("狗", "e 狗")
    assert spells("(", "e (")


@pytest.mark.parametrize("phrase", ["Garten", "dem Garten", "seven", "Kind"])
def test_a_tokenizer_spells_in_the_pieces_that_it_has(phrase, tmp_path):
    tokenizer = train_tokenizer(SENTENCES, tmp_path / "t.spm", vocab_size=80, model_type="bpe")

    edges = tokenizer.spellings(["park", f"  {phrase}"])

    assert completes(edges, tokenizer.encode(f"is {phrase}")[:-1])
    assert not completes(edges, tokenizer.encode(f"is {phrase}")[:-2])
