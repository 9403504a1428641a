"""Translates files that callers send, within a call or after its answer, and keeps them until they are fetched."""

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import PurePath
from typing import Literal, NamedTuple, TypeVar
from urllib.parse import quote

from starlette.responses import Response

from service.api.http.fields import File, KindOfWarning, by_kind
from service.call import Call, Identity
from service.documents.draft import Line, Unit
from service.documents.formats import DocumentFormat, format_of, translated_file, units_of
from service.errors import InvalidInput, Overloaded
from service.processes.one_shot import BEHIND_ALL, run_in_subprocess
from service.records import Priority, Translation, TranslationRequest
from service.translate.router import Router

REMARKS_KEY = "x-document-remarks"
KEPT_S = 900.0
MAX_KEPT_BYTES = 128 << 20  # of all files; the oldest go first
MAX_FILES = 8  # in work at a time, in each process
MAX_OWN_FILES = 4  # of one client
TEXTS_AT_ONCE = 64  # of a file: enough for a full batch, and few enough to say how far it is
MAX_READ = 2  # that are taken apart or put together at a time, in threads that nothing else waits for
MAX_OPEN = 256  # jobs that are not over
MAX_OWN_OPEN = 16  # of one client
LOST_AFTER_S = 600.0  # a job that nothing is heard of: the process that did it is gone
_LARGE = 128 << 10  # bytes of a file: 50 ms to read
_RETRY_S = 5.0

_Result = TypeVar("_Result")


def download(file: File, remarks: Sequence[str] = ()) -> Response:
    """Return the response that a browser saves: never shown, since it may be a page with scripts."""
    headers = {
        "content-disposition": f"attachment; filename*=UTF-8''{quote(file.name, safe='')}",
        "x-content-type-options": "nosniff",
    }
    if remarks:
        headers[REMARKS_KEY] = "; ".join(remarks)
    return Response(file.content, media_type="application/octet-stream", headers=headers)


class Progress(NamedTuple):
    """How far a file is, in pieces that are translated by themselves."""

    done: int
    total: int


class TranslatedFile(NamedTuple):
    """A file with its translations in."""

    file: File
    report: list[Line]
    remarks: tuple[str, ...]  # what a user should know of what stays as it was
    characters: int  # of all that was translated

    @property
    def warnings(self) -> list[KindOfWarning]:
        """What went wrong, by kind."""
        return by_kind((line["kind"], line["message"]) for line in self.report)


class FileTranslator:
    """Translates the files that reach one process; how many at a time is limited, in all and for each caller."""

    def __init__(self, router: Router) -> None:
        """Translate nothing yet."""
        self._router = router
        self._open = Counter[Identity]()  # files in work, by caller
        self._freed = asyncio.Event()  # set when a file is done, and then replaced
        self._readers = ThreadPoolExecutor(MAX_READ, thread_name_prefix="files")

    def check(self, wish: TranslationRequest, call: Call) -> None:
        """Raise NotFound or InvalidInput if nothing can be translated as is asked for."""
        self._router.check(wish, call)

    @asynccontextmanager
    async def waited_room(self, call: Call) -> AsyncGenerator[None]:
        """Wait for room for a file of this caller, and hold it in the block."""
        while not self._has_room(call):
            await self._freed.wait()
        with self.room(call):
            yield

    def _has_room(self, call: Call) -> bool:
        return self._open[call.caller.identity] < MAX_OWN_FILES and self._open.total() < MAX_FILES

    @contextmanager
    def room(self, call: Call) -> Iterator[None]:
        """Hold room for a file of this caller in the block, or raise Overloaded."""
        if not self._has_room(call):
            own, others = self._open[call.caller.identity], self._open.total()
            limits = f"at most {MAX_OWN_FILES} and {MAX_FILES} may be at a time"
            message = f"{own} files of this client and {others} of all are being translated, {limits}"
            raise Overloaded(message, reason="files", retry_after_s=_RETRY_S)
        self._open[call.caller.identity] += 1
        try:
            yield
        finally:
            self._open[call.caller.identity] -= 1
            self._open += Counter()  # drops those at 0
            self._freed.set()
            self._freed = asyncio.Event()

    async def translate(
        self, file: File, wish: TranslationRequest, call: Call
    ) -> AsyncGenerator[Progress | TranslatedFile]:
        """Yield how far a file is, and at last the file; all of its requests are one call, which notes the warnings.

        Args:
            wish: what is asked for, without texts; it is batch work unless it says otherwise, since nobody waits for
                the next line.

        Raises:
            InvalidInput: the file is not of the format that its name says, or a piece of it cannot be translated.
            DragomanError: as for translating.
        """
        wish = replace(wish, priority=Priority.BATCH if wish.priority is None else wish.priority)
        wanted = _format(file, self._router.translator.limits.max_message_bytes), wish.target_language
        units = await self._done(partial(units_of, file.content, *wanted), file)
        call.priority = call.caller.allowed(wish.priority)
        places = sorted(range(len(units)), key=lambda place: units[place].format)  # the texts of a request have one
        translations: dict[int, Translation] = {}
        for text_format, alike in groupby(places, key=lambda place: units[place].format):
            request = replace(wish, format=text_format)
            for some in _batches(list(alike), min(TEXTS_AT_ONCE, self._router.translator.limits.max_texts)):
                yield Progress(len(translations), len(units))
                texts = [units[place] for place in some]
                answers = await _translate(texts, request, call, self._router, is_begun=bool(translations))
                translations.update(zip(some, map(_as_written, answers), strict=True))
        ordered = [translations[place] for place in range(len(units))]
        content, report, remarks = await self._done(partial(translated_file, file.content, *wanted, ordered), file)
        call.warn(line["kind"] for line in report)
        yield TranslatedFile(File(file.name, content), report, remarks, sum(len(unit.text) for unit in units))

    async def _done(self, work: "partial[_Result]", file: File) -> _Result:
        """Return the result of work on a file; another process works on a large one, so that no other caller waits."""
        try:
            if len(file.content) < _LARGE:
                return await asyncio.get_running_loop().run_in_executor(self._readers, work)
            return await run_in_subprocess(work, niceness=BEHIND_ALL, executor=self._readers)
        except ValueError as error:
            raise InvalidInput(f"file: {error}", field="file") from error

    async def translated(self, file: File, wish: TranslationRequest, call: Call) -> TranslatedFile:
        """Return a file with its translations; raises as `translate`, and Overloaded where there is no room for it."""
        with self.room(call):
            async with aclosing(self.translate(file, wish, call)) as steps:
                async for step in steps:
                    last = step
        assert isinstance(last, TranslatedFile)
        return last


def _format(file: File, max_text_bytes: int) -> DocumentFormat:
    """Return the format that the name says; raises InvalidInput: there is none, or the file is too large for it."""
    try:
        document_format = format_of(PurePath(file.name))
    except ValueError as error:
        raise InvalidInput(f"file: {error}", field="file") from error
    num_bytes = len(file.content)
    if document_format.read_package is None and num_bytes > max_text_bytes:
        message = f"file has {num_bytes:,} bytes, of a {document_format} file {max_text_bytes:,} are accepted"
        raise InvalidInput(message, field="file")
    return document_format


async def _translate(
    units: Sequence[Unit], request: TranslationRequest, call: Call, router: Router, *, is_begun: bool
) -> Sequence[Translation]:
    """Return the translations of some units; where others were translated before, wait for room as a client would."""
    request = replace(request, texts=tuple(unit.text for unit in units))
    call.texts += len(units)
    result = None
    while result is None:
        part = call.part(len(units))
        try:
            result = await router.translate(request, part)
        except Overloaded as error:
            if not is_begun:
                raise
            await asyncio.sleep(error.retry_after_s)  # at the deadline the call ends
        finally:
            call.join(part, is_next=True)
    for unit, translation in zip(units, result.translations, strict=True):
        fault = translation.error
        if isinstance(fault, InvalidInput):
            raise InvalidInput(fault.about(f"{unit.part or 'line'} {unit.line} of the file"), field="file") from fault
        if fault is not None:
            raise fault
    return result.translations


def _as_written(translation: Translation) -> Translation:
    """Return what a file needs of a translation: of its segments, which are many in 1,000 pages, only the warnings."""
    return translation if translation.warnings else replace(translation, segments=())


def _batches(places: Sequence[int], size: int) -> list[Sequence[int]]:
    return [places[begin : begin + size] for begin in range(0, len(places), size)]


class JobStatus(NamedTuple):
    """How far a file is."""

    state: Literal["queued", "translating", "done", "error"] = "queued"
    seconds_remaining: int | None = None
    characters: int | None = None  # once it is done
    message: str = ""  # of an error
    file: str = ""  # the name that the translated file is kept under
    warnings: str = ""  # kinds with counts
    remarks: tuple[str, ...] = ()  # as of `TranslatedFile`

    @property
    def is_over(self) -> bool:
        """Whether nothing more will happen."""
        return self.state in {"done", "error"}


class _Job(NamedTuple):
    key: str
    owner: Identity
    heard_of: float
    status: JobStatus = JobStatus()


class FileStore:
    """Translated files in memory, each under a name that nobody guesses, and the jobs of the whole server."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin without files and jobs."""
        self._clock = clock
        self._files: dict[str, tuple[float, File]] = {}  # the oldest first
        self._jobs: dict[str, _Job] = {}

    async def keep(self, file: File) -> str:
        """Keep a file for `KEPT_S`, or until others need its room, and return the name to fetch it by."""
        now = self._clock()
        name = secrets.token_urlsafe(24) + PurePath(file.name).suffix.lower()
        self._files[name] = now, file
        num_bytes = sum(len(kept.content) for _, kept in self._files.values())
        for other, (since, kept) in list(self._files.items()):
            if other == name or (num_bytes <= MAX_KEPT_BYTES and now - since <= KEPT_S):
                break
            num_bytes -= len(kept.content)
            del self._files[other]
        return name

    async def find(self, name: str) -> File | None:
        """Return the file of this name; None: there is none, or none any more."""
        now = self._clock()
        for other in [other for other, (since, _) in self._files.items() if now - since > KEPT_S]:
            del self._files[other]
        return self._files[name][1] if name in self._files else None

    async def begin_document(self, owner: Identity) -> tuple[str, str]:
        """Return the id and the key of a new job; raises Overloaded if too many are not over."""
        self._drop_old()
        waiting = [job.owner for job in self._jobs.values() if not job.status.is_over]
        if len(waiting) >= MAX_OPEN or waiting.count(owner) >= MAX_OWN_OPEN:
            message = f"{waiting.count(owner)} documents of this client wait, {len(waiting)} of all clients"
            raise Overloaded(message, reason="files", retry_after_s=_RETRY_S)
        name, key = secrets.token_hex(16).upper(), secrets.token_hex(32).upper()
        self._jobs[name] = _Job(key, owner, self._clock())
        return name, key

    async def note_document(self, name: str, status: JobStatus) -> None:
        """Note how far a job is."""
        job = self._jobs.get(name)
        if job is not None:
            self._jobs[name] = job._replace(status=status, heard_of=self._clock())

    async def find_document(self, name: str, key: str) -> JobStatus | None:
        """Return how far a job is; None: there is none of this name and key, or none any more."""
        self._drop_old()
        job = self._jobs.get(name)
        return job.status if job is not None and secrets.compare_digest(job.key.encode(), key.encode()) else None

    def _drop_old(self) -> None:
        now = self._clock()
        for name, job in list(self._jobs.items()):
            if not job.status.is_over and now - job.heard_of > LOST_AFTER_S:
                lost = JobStatus("error", message="the work on the document was lost: send it again")
                self._jobs[name] = job._replace(status=lost, heard_of=now)
            elif job.status.is_over and now - job.heard_of > KEPT_S:
                del self._jobs[name]
