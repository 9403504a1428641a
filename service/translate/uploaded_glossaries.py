"""Glossaries that callers make: each is a file in its owner's directory, and for its owner alone.

The number of each owner's glossaries, their length and the number of owners are limited, so that the directory is, too.
All processes of a server share it; a file is read again when it has changed.
"""

import asyncio
import hashlib
import json
import re
import uuid
from collections import OrderedDict
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from model.files import write_whole
from service.call import Caller
from service.config import ConfigError
from service.errors import InvalidInput, NotFound, Overloaded
from service.records import Term
from service.text.glossary import check_terms

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
