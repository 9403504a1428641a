"""The glossaries that requests can name: those of the server, and those that callers have made.

The server's are files NAME.tsv, read at the start and again when they change.  Those of a caller are files in its own
directory, and for it alone; their number and length and the number of owners are limited, so that the directory is,
too.  All processes of a server share them; a file is read again when it has changed.
"""

import asyncio
import hashlib
import json
import re
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from model.files import write_whole
from service.call import Caller
from service.config import ConfigError
from service.errors import InvalidInput, NotFound, Overloaded
from service.records import Term
from service.text.glossary import Glossary, check_terms
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


MAX_OWN = 100  # glossaries of one client
MAX_OWNERS = 1_000
MAX_NAME = 1_024  # characters
_KEPT = 64  # that are in memory
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
        self._read: OrderedDict[Path, tuple[tuple[int, int], UploadedGlossary]] = OrderedDict()

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
        await asyncio.to_thread(self._write, self._directory_of(caller), glossary)
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
        found = await asyncio.to_thread(lambda: [self._load(file) for file in directory.glob("*.json")])
        return sorted(found, key=lambda one: (one.created, one.id))

    async def find(self, name: str, caller: Caller) -> UploadedGlossary:
        """Return the caller's glossary of this id; raises NotFound."""
        try:
            return await asyncio.to_thread(self._load, self._file(name, caller))
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
            if _primary(found.target_language) != _primary(target_language):
                message = f"the glossary is for {found.target_language}, the request for {target_language[:20]!a}"
                raise InvalidInput(message, field="glossary_id")
            terms = {term.source: term for term in found.terms} | terms
        if len(others) > 1:
            raise InvalidInput(
                f"{len(others)} of the glossaries are the server's, at most 1 may be", field="glossary_ids"
            )
        return "".join(others), tuple(terms.values())

    def _load(self, file: Path) -> UploadedGlossary:
        status = file.stat()
        signature = status.st_ino, status.st_mtime_ns
        known = self._read.get(file)
        if known is not None and known[0] == signature:
            return known[1]
        said = json.loads(file.read_bytes())
        glossary = UploadedGlossary(**{**said, "terms": tuple(Term(*term) for term in said["terms"])})
        self._read[file] = signature, glossary
        while len(self._read) > _KEPT:
            self._read.popitem(last=False)
        return glossary

    def _directory_of(self, caller: Caller) -> Path:
        if self._directory is None:
            message = "the server keeps no glossaries: its operator can name a directory (models.uploaded_glossaries)"
            raise InvalidInput(message, field="glossary_id")
        return self._directory / hashlib.sha256("\0".join(caller.identity).encode()).hexdigest()[:32]

    def _file(self, name: str, caller: Caller) -> Path:
        if not _ID.fullmatch(name):
            raise _missing(name)
        return self._directory_of(caller) / f"{name}.json"


def _missing(name: str) -> NotFound:
    return NotFound(f"there is no glossary {name[:40]!a} of this client")


def _primary(language: str) -> str:
    return language.replace("_", "-").partition("-")[0].lower()
