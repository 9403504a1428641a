"""Golden sentences: texts with the translations that a bundle's own graphs gave when it was made.

A server translates them again before it lets a bundle serve.  One line a sentence: precision, source and translation
with tabs between.  Translations are greedy (beam 1) and end after MAX_TARGET_TOKENS.  Knows text only; no model.
"""

from collections.abc import Iterable
from dataclasses import dataclass

GOLDEN_NAME = "golden.tsv"
MAX_TARGET_TOKENS = 64  # of a translation, end-of-sentence included


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldenSentence:
    """What the graphs of one precision must make of a text."""

    precision: str
    source: str
    translation: str


def to_tsv(sentences: Iterable[GoldenSentence]) -> str:
    """The text of the file.

    Raises:
        ValueError: a field has a tab or a line break.
    """
    lines = [f"{one.precision}\t{one.source}\t{one.translation}" for one in sentences]
    for number, line in enumerate(lines, start=1):
        if line.count("\t") != 2 or len(line.splitlines()) != 1:
            raise ValueError(f"golden sentence {number} has a tab or a line break: {line!a}")
    return "".join(f"{line}\n" for line in lines)


def from_tsv(text: str) -> list[GoldenSentence]:
    """The inverse of `to_tsv`.

    Raises:
        ValueError: a line has not three fields; the message names it.
    """
    sentences = []
    for number, line in enumerate(text.splitlines(), start=1):
        fields = line.split("\t")
        if len(fields) != 3:
            raise ValueError(f"line {number} has {len(fields)} fields, precision, source and translation are 3")
        precision, source, translation = fields
        sentences.append(GoldenSentence(precision=precision, source=source, translation=translation))
    return sentences
