"""Parallel text on disk -> cleaned sentence pairs.

A corpus NAME lies in DATA/train/NAME/NAME.{en,de}.gz, a development set in DATA/dev/NAME.{en,de}.gz: UTF-8, one
sentence a line, line-aligned.  A NAME with a slash is a path: of A/B the files are DATA/A/B.{en,de}.gz.
Knows text, not tokens.
"""

import gzip
import random
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

from model.ranges import require_at_least, require_share


class Pair(NamedTuple):
    """A sentence and its translation."""

    source: str
    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Languages:
    """Translation direction, BCP 47."""

    source: str
    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusConfig:
    """One corpus of a recipe and how much of it to take."""

    name: str
    max_pairs: int | None = None  # a seeded sample of this many; None: all
    repeat: int = 1  # times each pair is seen in an epoch
    verbatim: bool = False  # every line as it stands: nothing left out, no spelling changed

    def __post_init__(self) -> None:
        table = f"corpus {self.name!r}"
        require_at_least(table, 1, repeat=self.repeat)
        if self.max_pairs is not None:
            require_at_least(table, 1, max_pairs=self.max_pairs)


@dataclass(frozen=True, slots=True, kw_only=True)
class AugmentationConfig:
    """Share of training pairs that are changed, drawn anew each epoch."""

    concatenate: float = 0.0  # joined with the next pair: two sentences in one text
    lowercase_source: float = 0.0
    drop_final_punctuation: float = 0.0  # from both sides
    sample_pieces: float = 0.0  # cut into other pieces than the likeliest; of each side for itself (model/data.py)

    def __post_init__(self) -> None:
        require_share("augmentation", **asdict(self))


def read_lines(path: Path) -> list[str]:
    """Lines of a plain or gzipped UTF-8 file; only a line feed ends one, a carriage return before it goes with it.

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
    """A development set, untouched.

    Raises:
        FileNotFoundError, ValueError: as for `read_lines`; the sides differ in length; the set is empty.
    """
    pairs = _read_pairs(_stem(data, name, f"dev/{name}"), languages)
    if not pairs:
        raise ValueError(f"development set {name} has no sentences")
    return pairs


def read_corpus(data: Path, corpus: CorpusConfig, languages: Languages, seed: int) -> list[Pair]:
    """A training corpus: cleaned unless it is to stay verbatim, then capped.

    Raises:
        FileNotFoundError, ValueError: as for `read_lines`; the sides differ in length.
    """
    pairs = _read_pairs(_stem(data, corpus.name, f"train/{corpus.name}/{corpus.name}"), languages)
    if not corpus.verbatim:
        pairs = [clean for pair in pairs if (clean := _clean(pair, languages))]
    if corpus.max_pairs is not None and len(pairs) > corpus.max_pairs:
        pairs = random.Random(seed).sample(pairs, corpus.max_pairs)  # sampling, not secrets
    return pairs * corpus.repeat


def augment(pairs: Sequence[Pair], config: AugmentationConfig, seed: int) -> Iterator[Pair]:
    """The pairs in their order, some of them changed; the same seed changes the same ones."""
    rng = random.Random(seed)
    for number, pair in enumerate(pairs):
        if rng.random() < config.concatenate:
            pair = _join(pair, pairs[(number + 1) % len(pairs)])  # noqa: PLW2901
        if rng.random() < config.drop_final_punctuation:
            pair = Pair(pair.source.rstrip(".!?"), pair.target.rstrip(".!?"))  # noqa: PLW2901
        if rng.random() < config.lowercase_source:
            pair = Pair(pair.source.lower(), pair.target)  # noqa: PLW2901
        yield pair


def _join(first: Pair, second: Pair) -> Pair:
    return Pair(f"{first.source} {second.source}", f"{first.target} {second.target}")


def _stem(data: Path, name: str, usual: str) -> Path:
    """Where the files of a name begin: the name itself where it is a path, else the usual place."""
    return data / (name if "/" in name else usual)


def _read_pairs(stem: Path, languages: Languages) -> list[Pair]:
    sides = [
        read_lines(stem.with_name(f"{stem.name}.{language}.gz")) for language in (languages.source, languages.target)
    ]
    if len(sides[0]) != len(sides[1]):
        raise ValueError(f"{stem}: {len(sides[0])} source lines but {len(sides[1])} target lines")
    return [Pair(source.strip(), target.strip()) for source, target in zip(*sides, strict=True)]


_MARKUP = re.compile(r"https?://|[<>{}|]|\\|%[sd(]|\[!")
_LETTER = re.compile(r"[^\W\d_]")


def _clean(pair: Pair, languages: Languages) -> Pair | None:
    """The pair in today's spelling, or None where it is markup, has no letters, or is merely copied."""
    if not all(_LETTER.search(side) for side in pair) or any(_MARKUP.search(side) for side in pair):
        return None
    if pair.source == pair.target and len(pair.source.split()) > 3:  # longer copies are untranslated text
        return None
    source, target = (
        modernize_german(side) if language == "de" else side
        for side, language in zip(pair, (languages.source, languages.target), strict=True)
    )
    return Pair(source, target)


# The reform of 1996 writes ss after a short vowel.  These stems are the ones Europarl's old spelling uses.
_SHORT_VOWEL_STEM = re.compile(
    r"(\bda|mu(?!ße)|mü(?!ßig)|schu|schlu|flu|wu|wü|bewu|nu|ku|gu|ru(?=ßland)|proze|kongre|exze|regre|kompromi|gewi|\bbi|\bri|\bmi|"
    r"unmi|ermi|bemi|beimi|vergi|fri|anla|erla|nachla|abla|verla|\bla|lä|\bha|hä|(?<!lit)fa|(?<!s)pa|bla|kra|na)ß",
    re.IGNORECASE,
)


def modernize_german(text: str) -> str:
    """Spelling from before 1996 (daß, muß, Ausschuß) in today's (dass, muss, Ausschuss); Maß, groß and ließ stay."""
    return _SHORT_VOWEL_STEM.sub(r"\1ss", text)
