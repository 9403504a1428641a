"""Glossaries: terms with the translation that they have to get, in texts, in the server's files and of callers.

    uses = glossary.find(text, spans)                  # those without a target are spans to protect
    target, links, uses = honour(uses, target, links)

A term is whole words as they are written: upper and lower case count, and other forms of a word are other words.

The server's glossaries are files NAME.tsv, read at the start and again when they change.  Those of a caller are files
in its own directory, and for it alone; their number and length and the number of owners are limited, so that the
directory is, too.  All processes of a server share them.
"""

import asyncio
import hashlib
import json
import re
import time
import uuid
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from model.files import text_of_line, write_whole
from service.call import Caller
from service.config import ConfigError
from service.errors import InvalidInput, NotFound, Overloaded
from service.records import Link, Span, Term, TermUse
from service.telemetry.logs import get_logger
from service.text.alignment import edited, moved
from service.text.languages import primary
from service.text.protected_spans import IN_WORD
from service.text.span_strategies import find_all
from service.watched_files import WatchedFiles

MAX_CHARACTERS = 100_000  # of a request's terms: an index of so many takes some 10 ms
MAX_SOURCE_CHARACTERS = 200  # of one of them, so that no text is slow to search

_WORD = re.compile(rf"{IN_WORD}++|.", re.DOTALL)


class Glossary:
    """Terms by their text, of one or several sources."""

    def __init__(self, terms: Iterable[Term] = (), others: "Glossary | None" = None) -> None:
        """Index the terms; of several with the same source the first one counts.

        Args:
            others: terms that count where these say nothing.
        """
        index = _Index({}, {})
        for term in terms:
            index.terms.setdefault(term.source, term)
        for source in sorted(index.terms, key=len, reverse=True):
            lengths = index.lengths.setdefault(_WORD.findall(source)[0], [])
            if len(source) not in lengths[-1:]:
                lengths.append(len(source))
        self.indices: list[_Index] = [index, *(others.indices if others else [])]

    def __len__(self) -> int:
        return sum([len(index.terms) for index in self.indices])

    def find(self, text: str, spans: Sequence[Span] = ()) -> tuple[TermUse, ...]:
        """Return the terms of a text in its order, of several at a place the longest; none is honoured yet."""
        words, uses = list(_WORD.finditer(text)), list[TermUse]()
        ends = {word.end() for word in words}
        end, next_span = 0, 0
        for word in words:
            begin = word.start()
            while next_span < len(spans) and spans[next_span].end <= begin:
                next_span += 1
            limit = spans[next_span].begin if next_span < len(spans) else len(text)
            if end <= begin < limit:
                found = [index.longest(text, word, limit, ends) for index in self.indices]
                term = max(found, key=lambda one: len(one.source) if one else 0)
                if term is not None:
                    end = begin + len(term.source)
                    uses.append(TermUse(term, Span(begin, end), is_honoured=False))
        return tuple(uses)


class _Index(NamedTuple):
    terms: dict[str, Term]  # by source
    lengths: dict[str, list[int]]  # of the terms that begin with a word, the longest first

    def longest(self, text: str, word: re.Match[str], limit: int, ends: Container[int]) -> Term | None:
        """Return the longest term that begins with a word, and ends with one of the text's before a limit."""
        begin = word.start()
        for length in self.lengths.get(word[0], ()):
            end = begin + length
            if end <= limit and end in ends and (term := self.terms.get(text[begin:end])) is not None:
                return term
        return None


def check_terms(terms: Sequence[Term]) -> None:
    """Raise InvalidInput for the terms of a request that are too long together, or if one has no source."""
    for index, term in enumerate(terms):
        field, most = f"glossary.terms[{index}].source", MAX_SOURCE_CHARACTERS
        if not term.source.strip():
            raise InvalidInput(f"{field} is {term.source!r}: a term is a word or a phrase", field=field)
        if (length := len(term.source)) > most:
            message = f"{field} has {length} characters, at most {most} are accepted: a term is a word or a phrase"
            raise InvalidInput(message, field=field)
    length = sum(len(term.source) + len(term.target) for term in terms)
    if length > MAX_CHARACTERS:
        message = (
            f"glossary.terms have {length} characters, at most {MAX_CHARACTERS} are accepted; "
            "larger glossaries belong on the server (models.glossaries)"
        )
        raise InvalidInput(message, field="glossary.terms")


def honour(
    uses: Sequence[TermUse], target: str, links: Sequence[Link] = (), kept: Sequence[str] = ()
) -> tuple[str, Sequence[Link], tuple[TermUse, ...]]:
    """Return a translation with the terms that it misses in place of the words that are linked to theirs.

    A term whose target stands in the translation as often as it is asked for is honoured.  Another one is put in place
    of the words that are linked to it, if these stand together: no word between belongs to another part of the source,
    and none to what has to be kept.

    Returns:
        The translation, its links, and the uses, which now say whether they are honoured.
    """
    present = Counter({text: len(spans) for text, spans in find_all(map(_wanted, uses), target).items()})
    taken = [place for places in find_all(kept, target).values() for place in places] if kept else []
    done, edits = list[TermUse](), list[tuple[Span, str]]()
    for use in uses:
        present[_wanted(use)] -= 1
        is_honoured = present[_wanted(use)] >= 0
        if not is_honoured and use.term.target and (place := _place(use.span, links)) is not None:
            is_honoured = all(place.end <= other.begin or other.end <= place.begin for other in taken)
            if is_honoured:
                taken.append(place)
                edits.append((place, use.term.target))
        done.append(use._replace(is_honoured=is_honoured))
    if not edits:
        return target, links, tuple(done)
    written = edited(target, sorted(edits))
    return written.text, moved(links, target=written.moved), tuple(done)


def _wanted(use: TermUse) -> str:
    return use.term.target or use.term.source


def _place(source: Span, links: Iterable[Link]) -> Span | None:
    """Return the range of the translation that belongs to a part of the source alone; None if there is none."""
    own = [link.target for link in links if link.source.begin < source.end and source.begin < link.source.end]
    if not own:
        return None
    place = Span(min(one.begin for one in own), max(one.end for one in own))
    foreign = (link.target for link in links if link.source.end <= source.begin or source.end <= link.source.begin)
    is_alone = all(one.end <= place.begin or place.end <= one.begin for one in foreign)
    return place if is_alone else None


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


MAX_OWN = 100  # glossaries of one client
MAX_OWNERS = 1_000
MAX_NAME = 1_024  # characters
_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class UploadedGlossary(NamedTuple):
    """A glossary of a caller."""

    id: str
    name: str
    source_language: str  # BCP 47
    target_language: str
    created: str  # ISO 8601
    terms: tuple[Term, ...]


class UploadedGlossaries:
    """The glossaries of all callers."""

    def __init__(self, directory: Path | None) -> None:
        """Keep them in this directory; None: there are none.

        Raises:
            ConfigError: there is no such directory.
        """
        if directory is not None and not directory.is_dir():
            raise ConfigError(f"models.uploaded_glossaries is {directory}, which is no directory")
        self._directory = directory

    async def create(
        self, caller: Caller, name: str, source_language: str, target_language: str, terms: Sequence[Term]
    ) -> UploadedGlossary:
        """Keep a new glossary, and return it.

        Raises:
            InvalidInput: name or terms are empty or too long, or a term is there twice; or nothing is kept here.
            Overloaded: the caller has as many as it may have.
        """
        if not 0 < len(name) <= MAX_NAME:
            raise InvalidInput(f"name has {len(name)} characters, 1 to {MAX_NAME:,} are accepted", field="name")
        if not terms:
            raise InvalidInput("entries has no terms", field="entries")
        check_terms(terms)
        sources = [term.source for term in terms]
        if len(set(sources)) < len(sources):
            twice = next(source for place, source in enumerate(sources) if source in sources[:place])
            raise InvalidInput(f"entries has {twice[:40]!a} twice", field="entries")
        created = datetime.now(UTC).isoformat(timespec="milliseconds")
        glossary = UploadedGlossary(str(uuid.uuid4()), name, source_language, target_language, created, tuple(terms))
        try:
            await asyncio.to_thread(self._write, self._directory_of(caller), glossary)
        except OSError as error:
            get_logger().error("glossary_not_written", directory=str(self._directory), reason=error.strerror)
            message = f"the server cannot store glossaries now: {error.strerror}"
            raise Overloaded(message, reason="glossaries", retry_after_s=60) from error
        return glossary

    def _write(self, directory: Path, glossary: UploadedGlossary) -> None:
        if not directory.is_dir():
            if sum(1 for _ in directory.parent.iterdir()) >= MAX_OWNERS:
                raise Overloaded(
                    f"{MAX_OWNERS} clients have glossaries, at most {MAX_OWNERS} may",
                    reason="glossaries",
                    retry_after_s=60,
                )
            directory.mkdir(exist_ok=True)
        if sum(1 for _ in directory.glob("*.json")) >= MAX_OWN:
            message = f"this client has {MAX_OWN} glossaries, at most {MAX_OWN} are accepted: delete one"
            raise Overloaded(message, reason="glossaries", retry_after_s=60)
        content = json.dumps(glossary._asdict(), ensure_ascii=False)
        write_whole(directory / f"{glossary.id}.json", content.encode(), new_mode=0o600)

    async def all_of(self, caller: Caller) -> list[UploadedGlossary]:
        """Return the caller's glossaries, the oldest first."""
        if self._directory is None:
            return []
        directory = self._directory_of(caller)
        found = await asyncio.to_thread(lambda: [_uploaded(file) for file in directory.glob("*.json")])
        return sorted(found, key=lambda one: (one.created, one.id))

    async def find(self, name: str, caller: Caller) -> UploadedGlossary:
        """Return the caller's glossary of this id; raises NotFound."""
        try:
            return await asyncio.to_thread(_uploaded, self._file(name, caller))
        except FileNotFoundError:
            raise _missing(name) from None

    async def delete(self, name: str, caller: Caller) -> None:
        """Delete the caller's glossary of this id; raises NotFound."""
        try:
            self._file(name, caller).unlink()
        except FileNotFoundError:
            raise _missing(name) from None

    async def named(self, names: Sequence[str], caller: Caller, target_language: str) -> tuple[str, tuple[Term, ...]]:
        """Return what a request says that asks for glossaries: the name of one of the server's, and the caller's terms.

        Raises:
            NotFound: a name is like that of an uploaded one, and the caller has none of it.
            InvalidInput: one is for another target language, or two are the server's.
        """
        terms: dict[str, Term] = {}  # by source
        others: list[str] = []
        for name in names:
            if self._directory is None or not _ID.fullmatch(name):
                others.append(name)
                continue
            found = await self.find(name, caller)
            if primary(found.target_language) != primary(target_language):
                message = f"the glossary is for {found.target_language}, the request for {target_language[:20]!a}"
                raise InvalidInput(message, field="glossary_id")
            terms = {term.source: term for term in found.terms} | terms
        if len(others) > 1:
            raise InvalidInput(
                f"{len(others)} of the glossaries are the server's, at most 1 may be", field="glossary_ids"
            )
        return "".join(others), tuple(terms.values())

    def _directory_of(self, caller: Caller) -> Path:
        if self._directory is None:
            message = "the server keeps no glossaries: its operator can name a directory (models.uploaded_glossaries)"
            raise InvalidInput(message, field="glossary_id")
        return self._directory / hashlib.sha256("\0".join(caller.identity).encode()).hexdigest()[:32]

    def _file(self, name: str, caller: Caller) -> Path:
        if not _ID.fullmatch(name):
            raise _missing(name)
        return self._directory_of(caller) / f"{name}.json"


def _uploaded(file: Path) -> UploadedGlossary:
    said = json.loads(file.read_bytes())
    return UploadedGlossary(**{**said, "terms": tuple(Term(*term) for term in said["terms"])})


def _missing(name: str) -> NotFound:
    return NotFound(f"there is no glossary {name[:40]!a} of this client")
