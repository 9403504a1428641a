"""Parallel text on disk -> cleaned sentence pairs.

A corpus NAME lies in DATA/train/NAME/NAME.{en,de}.gz, a development set in DATA/dev/NAME.{en,de}.gz: UTF-8, one
sentence a line, line-aligned.  A NAME with a slash is a path: of A/B the files are DATA/A/B.{en,de}.gz.
Knows no tokens.
"""

import gzip
import random
import re
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from model.recipe import CorpusConfig, Languages

_MARKUP = re.compile(r"https?://|[<>{}|]|\\|%[sd(]|\[!")
_DOCUMENT_LINES = 16  # that a sample of a document takes together
_LETTER = re.compile(r"[^\W\d_]")
# The reform of 1996 writes ss after a short vowel.  These stems are the ones Europarl's old spelling uses.
_SHORT_VOWEL_STEM = re.compile(
    r"(\bda|mu(?!ße)|mü(?!ßig)|schu|schlu|flu|wu|wü|bewu|nu|ku|gu|ru(?=ßland)|proze|kongre|exze|regre|kompromi|gewi|\bbi|\bri|\bmi|"
    r"unmi|ermi|bemi|beimi|vergi|fri|anla|erla|nachla|abla|verla|\bla|lä|\bha|hä|(?<!lit)fa|(?<!s)pa|bla|kra|na)ß",
    re.IGNORECASE,
)


class Pair(NamedTuple):
    """A sentence and its translation."""

    source: str
    target: str


def read_lines(path: Path) -> list[str]:
    """Return the lines of a plain or gzipped UTF-8 file; only LF or CRLF ends a line.

    Raises:
        FileNotFoundError: with the path and the layout that is expected.
        ValueError: the file is damaged, or no UTF-8; with the path.
    """
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} does not exist; expected DATA/train/NAME/NAME.LANG.gz and DATA/dev/NAME.LANG.gz"
        )
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rt", encoding="utf-8", newline="\n") as lines:
            return [line.removesuffix("\n").removesuffix("\r") for line in lines]
    except (UnicodeDecodeError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"{path} cannot be read: {error}") from error


def read_dev_set(data: Path, name: str, languages: Languages) -> list[Pair]:
    """Return a development set, untouched.

    Raises:
        FileNotFoundError, ValueError: as for `read_lines`; the sides differ in length; the set is empty.
    """
    pairs = _read_pairs(data / (name if "/" in name else f"dev/{name}"), languages)
    if not pairs:
        raise ValueError(f"development set {name} has no sentences")
    return pairs


def read_corpus(data: Path, corpus: CorpusConfig, languages: Languages, seed: int) -> list[Pair]:
    """Return a training corpus: cleaned unless it is to stay verbatim, then capped.

    Raises:
        FileNotFoundError, ValueError: as for `read_lines`; the sides differ in length.
    """
    pairs = read_raw_corpus(data, corpus.name, languages)
    if not corpus.verbatim:
        pairs = [clean for pair in pairs if (clean := _clean(pair, languages))]
    if corpus.max_pairs is not None and len(pairs) > corpus.max_pairs:
        pairs = _sample(pairs, corpus.max_pairs, _DOCUMENT_LINES if corpus.document else 1, seed)
    return pairs * corpus.repeat


def _sample(pairs: Sequence[Pair], count: int, run: int, seed: int) -> list[Pair]:
    """A random sample of so many pairs, in runs of so many that follow each other."""
    starts = range(0, len(pairs), run)
    chosen = random.Random(seed).sample(starts, min(len(starts), -(-count // run)))
    return [pair for start in chosen for pair in pairs[start : start + run]][:count]


def split_held_out(pairs: Sequence[Pair], share: float) -> tuple[list[Pair], list[Pair]]:
    """Return the pairs to train on and those held out, about this share of them.

    Their text decides which, not their order, so that every run over a corpus, in either direction, holds the same ones
    out.  A pair that shares a side with one of these is in neither list.
    """
    bound = int(share * 2**32)
    held_out = [pair for pair in dict.fromkeys(pairs) if zlib.crc32("\n".join(sorted(pair)).encode()) < bound]
    sides = {side for pair in held_out for side in pair}
    return [pair for pair in pairs if sides.isdisjoint(pair)], held_out


def read_raw_corpus(data: Path, name: str, languages: Languages) -> list[Pair]:
    """Return all pairs of a training corpus as they are.

    Raises:
        FileNotFoundError, ValueError: as for `read_lines`; the sides differ in length.
    """
    return _read_pairs(data / (name if "/" in name else f"train/{name}/{name}"), languages)


def _read_pairs(stem: Path, languages: Languages) -> list[Pair]:
    return read_pairs(
        *(stem.with_name(f"{stem.name}.{language}.gz") for language in (languages.source, languages.target))
    )


def read_pairs(source: Path, target: Path) -> list[Pair]:
    """Return the pairs of two line-aligned files, without blanks at their ends.

    Raises:
        FileNotFoundError, ValueError: as for `read_lines`; the files differ in length.
    """
    sides = read_lines(source), read_lines(target)
    if len(sides[0]) != len(sides[1]):
        raise ValueError(f"{source} has {len(sides[0])} lines, {target} has {len(sides[1])}: they must be aligned")
    return [Pair(*map(str.strip, pair)) for pair in zip(*sides, strict=True)]


def _clean(pair: Pair, languages: Languages) -> Pair | None:
    """The pair in today's spelling, or None where it is markup, has no letters, or is merely copied."""
    if not all(_LETTER.search(side) for side in pair) or any(_MARKUP.search(side) for side in pair):
        return None
    if pair.source == pair.target and len(pair.source.split()) > 3:  # longer copies are untranslated text
        return None
    return modernize_pair(pair, languages)


def modernize_pair(pair: Pair, languages: Languages) -> Pair:
    """Return the pair with its German side in the spelling since 1996."""
    sides = zip(pair, (languages.source, languages.target), strict=True)
    return Pair(*(modernize_german(side) if language == "de" else side for side, language in sides))


def modernize_german(text: str) -> str:
    """Turn spelling from before 1996 (daß, muß, Ausschuß) into today's (dass, muss, Ausschuss); Maß and groß stay."""
    return _SHORT_VOWEL_STEM.sub(r"\1ss", text)
