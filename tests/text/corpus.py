"""The cases of tests/text/cases/, whose README says how they are written."""

import tomllib
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from service.records import TextFormat

CASES = Path(__file__).with_name("cases")
DEFAULT_LANGUAGES = "en-de"


class Case(NamedTuple):
    """A text, and what is known of its answer by construction."""

    name: str
    text: str
    format: TextFormat = TextFormat.PLAIN
    languages: str = DEFAULT_LANGUAGES  # "en-de"
    keeps: tuple[str, ...] = ()  # come back as often as they are in the text
    sentences: int | None = None  # number of segments; None: not checked
    translated: tuple[str, ...] = ()  # values of attributes that are segments
    codes: tuple[str, ...] = ()  # words that the included models give back as often, or there is a warning

    @property
    def is_broken(self) -> bool:
        """Whether it is broken on purpose, or random, so that nobody can say what is a tag or a word in it."""
        return self.name.startswith("html/broken/")


@cache
def all_cases() -> tuple[Case, ...]:
    """Return every case, in the order of their names."""
    return tuple(sorted(case for path in CASES.glob("*/*") for case in _cases_of(path)))


def _cases_of(path: Path) -> Iterator[Case]:
    kind = TextFormat(path.parent.name)
    prefix = f"{path.parent.name}/{path.stem}"
    if path.suffix == ".toml":
        tables = tomllib.loads(path.read_text("utf-8"))
        languages = tables.pop("languages", DEFAULT_LANGUAGES)
        for name, table in tables.items():
            yield _case(f"{prefix}/{name}", kind, **{"languages": languages} | table)
    else:
        languages = "de-en" if path.stem.endswith("_de") else DEFAULT_LANGUAGES
        yield Case(prefix, path.read_bytes().decode(), kind, languages)


def _case(
    name: str,
    kind: TextFormat,
    *,
    languages: str,
    text: str,
    keeps: Sequence[str] = (),
    sentences: int | None = None,
    translated: Sequence[str] = (),
    codes: Sequence[str] = (),
) -> Case:
    return Case(name, text, kind, languages, tuple(keeps), sentences, tuple(translated), tuple(codes))
