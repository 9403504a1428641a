"""The sentences of the race: a file or our own text, shuffled once, half to tune on and half to time.

Settings are chosen on other text than they are timed on.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from model.corpus import read_lines
from model.tokenizer import Tokenizer
from tests.fakes.own_text import own_sentences

OWN_SENTENCES = 2_000
SEED = 1
_FEWEST = 16


@dataclass(frozen=True, slots=True)
class Sentence:
    """A source in the forms that the two sides take."""

    ids: tuple[int, ...]  # ends with end-of-sentence
    pieces: list[str]  # the same, by name


@dataclass(frozen=True, slots=True)
class RaceText:
    """Different sentences for tuning and for timing."""

    name: str
    tuning: list[Sentence]
    timed: list[Sentence]


def load_text(path: Path | None, tokenizer: Tokenizer, names: Sequence[str], max_source_tokens: int) -> RaceText:
    """Read and tokenise a file with a sentence a line, plain or .gz; without one, our own sentences.

    Blank, repeated and overlong lines are left out.

    Raises:
        ValueError: there are too few sentences for two halves.
    """
    lines = read_lines(path) if path else own_sentences(OWN_SENTENCES)
    lines = list(dict.fromkeys(line.strip() for line in lines))
    encoded = [ids for line in lines if 0 < len(ids := tokenizer.encode(line)) <= max_source_tokens]
    if len(encoded) < _FEWEST:
        raise ValueError(f"{path} has {len(encoded)} different sentences, at least {_FEWEST} are needed")
    random.Random(SEED).shuffle(encoded)
    sentences = [Sentence(tuple(ids), [names[token] for token in ids]) for ids in encoded]
    half = len(sentences) // 2
    return RaceText(path.name if path else "own sentences", sentences[:half], sentences[half:])


def batches(sentences: Sequence[Sentence], size: int, count: int) -> list[list[Sentence]]:
    """Return so many batches of one size, one after the other; the text begins again when it is used up."""
    endless = [sentences[number % len(sentences)] for number in range(size * count)]
    return [endless[first : first + size] for first in range(0, size * count, size)]
