"""The glossaries that the server has: one NAME.tsv each, read at the start and again when the files change."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from service.config import ConfigError
from service.errors import NotFound
from service.records import Term
from service.text.glossary import Glossary
from service.text.lines import text_of_line
from service.watched_files import WatchedFiles

_MAX_ECHO = 40  # characters of a caller's name in a message


class Glossaries:
    """Named glossaries; may be asked from any thread."""

    def __init__(self, directory: Path | None, *, period_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        """Read all files.

        Args:
            directory: of the files; None: there are no glossaries.
            period_s: seconds between two looks for changes, which the next request makes.

        Raises:
            ConfigError: the directory or a file cannot be read; names the file, and the line at fault.
        """
        self._watched = directory and WatchedFiles(
            lambda: [directory, *directory.glob("*.tsv")],
            lambda: {file.stem: read_glossary(file) for file in _files(directory)},
            name="glossaries",
            facts=lambda glossaries: {"glossaries": len(glossaries), "terms": sum(map(len, glossaries.values()))},
            period_s=period_s,
            clock=clock,
        )

    def find(self, name: str) -> Glossary:
        """Return the glossary of this name; raises NotFound, with the names that there are."""
        glossaries: Mapping[str, Glossary] = self._watched.current() if self._watched else {}
        if name not in glossaries:
            names = ", ".join(sorted(glossaries)) or "none"
            raise NotFound(f"there is no glossary {name[:_MAX_ECHO]!a}; the server has: {names}")
        return glossaries[name]


def read_glossary(file: Path) -> Glossary:
    """Return the terms of a TSV file: source, tab, target; without a target the term is kept; blank lines say nothing.

    Raises:
        ConfigError: the file cannot be read, or a line is no term, or says otherwise than an earlier one.
    """
    terms: dict[str, Term] = {}
    try:
        lines = file.read_bytes().split(b"\n")
    except OSError as error:
        raise ConfigError(f"glossary {file} cannot be read: {error.strerror}") from error
    for number, line in enumerate(lines, start=1):
        try:
            term = _term(text_of_line(line, is_first=number == 1))
        except ValueError as error:
            raise ConfigError(f"glossary {file}, line {number}: {error}") from error
        if term is not None and terms.setdefault(term.source, term) != term:
            other = terms[term.source].target
            raise ConfigError(f"glossary {file}, line {number}: {term.source!r} is {other!r} in an earlier line")
    return Glossary(terms.values())


def _term(line: str) -> Term | None:
    """Return the term of a line, None of a blank one; raises ValueError."""
    if not line.strip():
        return None
    source, *targets = (field.strip() for field in line.split("\t"))
    if not source:
        raise ValueError("nothing stands before the tab, where the term belongs")
    if len(targets) > 1:
        raise ValueError(f"has {len(targets) + 1} fields, a term has 2: source and target")
    return Term(source, *targets)


def _files(directory: Path) -> list[Path]:
    try:
        return sorted(file for file in directory.iterdir() if file.suffix == ".tsv" and not file.name.startswith("."))
    except OSError as error:
        raise ConfigError(f"models.glossaries is {directory}, which cannot be read: {error.strerror}") from error
