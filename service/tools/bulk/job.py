"""A bulk translation on disk: which parts there are, which are done, and how they become the output.

    OUT.parts/job.json       what is translated, with what and how; once there is a part, a later run must mean the same
    OUT.parts/000042.part    the output of one part, there as a whole or not at all
    OUT.parts/000042.failed  why texts of it have no translation; written before the part, and only where there are some
    OUT.parts/lock           held by the run that works on it
    OUT                      there as a whole or as it was
    OUT.parts/done.json      what was job.json, as soon as OUT is there; the last to go of OUT.parts

So a run may be killed at any moment, and the next one goes on: what it finds is complete, what is missing is made again
with the same result.
"""

import fcntl
import hashlib
import json
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Self

from model.files import write_whole, writing
from service.client.messages import check_encodable
from service.errors import InternalError, InvalidInput
from service.records import TranslateAll
from service.tools.bulk.formats import BulkPart, Format, JsonLines, Lines, Parquet, Table

OnPart = Callable[[BulkPart], None]
Failures = list[tuple[int, str]]  # record's number in the part, from 0, and why it has no translation

SUFFIXES = (".txt", ".csv", ".tsv", ".jsonl", ".parquet")

# Goes up when any format reads or writes otherwise than before: parts of both kinds would not fit one output.
_READING = 2


class JobError(ValueError):
    """The job cannot be begun or continued; the message says what to do."""


def format_of(file: Path, column: str | None, target: str) -> Format:
    """Return the format that a file's suffix names; without a known one, lines.  The column is "text" if not given."""
    match file.suffix.lower():
        case ".csv":
            return Table(column or "text", target, delimiter=",")
        case ".tsv":
            return Table(column or "text", target, delimiter="\t")
        case ".jsonl" | ".ndjson":
            return JsonLines(column or "text", target)
        case ".parquet":
            return Parquet(column or "text", target)
    if column is not None:
        raise ValueError(f"{file} has no columns, and --column is {column!r}: columns are in {', '.join(SUFFIXES[1:])}")
    return Lines()


def format_name(file_format: Format) -> str:
    """Return what tells formats apart whose parts do not go together."""
    return f"{file_format!r}, reading {_READING}"


@dataclass(frozen=True, slots=True)
class BulkSource:
    """The file to translate and the content that it had; travels to workers, which see that it is still the same."""

    file: Path
    sha256: str
    stamp: tuple[int, int]  # different after a change: as cheap as can be, and the same on all nodes that see the file

    @classmethod
    def of(cls, file: Path) -> Self:
        """Return the file as it is now; raises JobError if it changed while it was read."""
        stamp = _stamp(file)  # before the first look into it
        with file.open("rb") as stream:
            source = cls(file, hashlib.file_digest(stream, "sha256").hexdigest(), stamp)
        source.require_unchanged()
        return source

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Raise JobError after the block if what it read of the file is not of the content that was hashed."""
        try:
            yield
        except (ValueError, OSError):
            self.require_unchanged()  # else it cannot be read for that reason
            raise
        self.require_unchanged()

    def require_unchanged(self) -> None:
        if _stamp(self.file) != self.stamp:
            raise JobError(
                f"{self.file} has changed while it was translated; what is done stays: "
                "go on when it is as it was, or begin again with --force"
            )


def _stamp(file: Path) -> tuple[int, int]:
    status = file.stat()
    return status.st_size, status.st_mtime_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDescription:
    """What decides every byte of the output."""

    source_sha256: str
    format: str  # how the file is read: `format_name`
    part_size: int
    model: str
    model_version: str
    precision: str
    options: dict[str, Any]


def _noted(file: Path) -> dict[str, Any]:
    """Return what a run has noted of its job; raises JobError for what no run of ours has written."""
    try:
        noted = json.loads(file.read_bytes())
    except ValueError:
        noted = None
    if not isinstance(noted, dict):
        raise JobError(f"{file} is damaged: --force begins again")
    return noted


class BulkJob:
    """One output in the making."""

    def __init__(self, source: BulkSource, output: Path, file_format: Format, description: JobDescription) -> None:
        self._source = source
        self.output = output
        self.format = file_format
        self._description = description
        self._folder = output.with_name(f"{output.name}.parts")
        self._description_file, self._done_file = self._folder / "job.json", self._folder / "done.json"
        self._lock = self._folder / "lock"
        with source.unchanged():
            self.parts = tuple(file_format.plan(source.file, description.part_size))

    @contextmanager
    def opened(self, *, is_forced: bool = False) -> Iterator[None]:
        """Lock the job for the block.  Forced, it begins again; the old output stays until the new one is whole.

        Raises:
            JobError: the output exists, another run has the lock, or an earlier one meant something else and has parts.
        """
        if not is_forced and not self._description_file.exists() and not self._done_file.exists():
            self._require_no_output()
        self._folder.mkdir(parents=True, exist_ok=True)
        with self._lock.open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # A lock whose file has gone was that of a run that has ended since.
                is_ours = os.path.samestat(os.fstat(lock.fileno()), self._lock.stat())
            except (BlockingIOError, FileNotFoundError):
                is_ours = False
            if not is_ours:
                raise JobError(f"another run is at {self.output}: wait for it, or stop it")
            if is_forced:
                self._clear()
            if not self._is_done():
                self._begin_or_go_on()
            yield

    def missing(self) -> list[BulkPart]:
        """Return the parts that are still to be done, in their order."""
        return [] if self._is_done() else [part for part in self.parts if not self.part_file(part).exists()]

    def part_file(self, part: BulkPart) -> Path:
        return self._folder / f"{part.index:06d}.part"

    def failures(self, part: BulkPart) -> Failures:
        """Return which records of a part that is done have no translation, and why."""
        file = self.part_file(part).with_suffix(".failed")
        return [(int(number), str(reason)) for number, reason in json.loads(file.read_bytes())] if file.exists() else []

    def texts(self, parts: Sequence[BulkPart]) -> Iterator[str]:
        """Return what is to be translated of these parts; raises JobError if the source has changed."""
        with self._source.unchanged():
            yield from self.format.texts(self._source.file, parts)

    def write(self, part: BulkPart, translations: Sequence[str], failures: Failures) -> None:
        """Keep the output of a part, and which of its texts failed; raises JobError if the source has changed."""
        if len(translations) != part.count:
            raise InternalError(f"{len(translations)} translations came for {part.count} records")
        with self._source.unchanged():
            content = self.format.encode(self._source.file, part, translations)
        failed_file = self.part_file(part).with_suffix(".failed")
        if failures:
            write_whole(failed_file, json.dumps(failures).encode())
        else:
            failed_file.unlink(missing_ok=True)  # of a run that was killed before it wrote the part
        write_whole(self.part_file(part), content)

    def finish(self) -> None:
        """Join all parts into the output, if no run that was killed afterwards did so; remove the parts."""
        if not self._is_done():
            parts = (self.part_file(part) for part in self.parts)
            with writing(self.output, draft=self._folder / "joined") as stream, self._source.unchanged():
                self.format.join(self._source.file, parts, stream)
            self._description_file.replace(self._done_file)
        self._leave()

    def _is_done(self) -> bool:
        """Whether the output is there, made by this job in a run that was killed before all parts were gone."""
        if not self.output.exists() or not self._done_file.exists():
            return False
        return _noted(self._done_file) == asdict(self._description)

    def _begin_or_go_on(self) -> None:
        """Raise JobError if the parts that are there are of another job."""
        if self._done_file.exists():  # of another job, or its output was taken away
            if self.output.exists():
                self._leave()
            self._require_no_output()
            self._clear()
        if not self._description_file.exists():
            self._describe()
            return
        ours = asdict(self._description)
        theirs = _noted(self._description_file)
        changed = [name for name in ours if theirs.get(name) != ours[name]]
        if not changed:
            return
        if not any(self._folder.glob("*.part")):  # nothing came of it, as where the server refused an option
            self._require_no_output()
            self._describe()
            return
        if "source_sha256" in changed:
            raise JobError(f"{self._source.file} has changed since {self._folder} was begun; --force begins again")
        what = ", ".join(f"{name} was {theirs.get(name)!r} and is {ours[name]!r}" for name in changed)
        raise JobError(f"{self._folder} is of another job: {what}; --force begins again")

    def _require_no_output(self) -> None:
        if self.output.exists():
            raise JobError(f"{self.output} exists: --force translates again")

    def _describe(self) -> None:
        self._clear()  # parts of which nobody knows what they are
        write_whole(self._description_file, json.dumps(asdict(self._description), indent=2).encode())

    def _clear(self) -> None:
        """Remove all but the lock, which is ours; the description first: what is left after a kill is no job."""
        self._description_file.unlink(missing_ok=True)
        self._done_file.unlink(missing_ok=True)
        self._remove(self._folder.iterdir())

    def _leave(self) -> None:
        """Remove the folder of a job that is done.

        Its failures go late, and what says that it is done goes last: a run after a kill knows both.
        """
        self._remove(sorted(self._folder.iterdir(), key=lambda file: file.suffix == ".failed"))
        self._lock.unlink(missing_ok=True)
        self._done_file.unlink(missing_ok=True)
        with suppress(OSError):  # another run has just begun in it
            self._folder.rmdir()

    def _remove(self, files: Iterable[Path]) -> None:
        for file in files:
            if file not in (self._lock, self._done_file):
                file.unlink(missing_ok=True)


def translate_parts(job: BulkJob, parts: Iterable[BulkPart], translate_all: TranslateAll, on_part: OnPart) -> None:
    """Translate and keep these parts, in order; a text that fails becomes an empty one.

    The texts of all parts are one stream, so that the next part's are under way before one is written.  After an error
    (no answer, another version of the model, a source that has changed), what has been kept stays.
    """
    every = tuple(parts)
    mistakes: deque[InvalidInput | None] = deque()  # of the texts taken and not translated yet

    def sendable_texts() -> Iterator[str]:
        for text in job.texts(every):
            try:
                check_encodable(text, "the text")
            except InvalidInput as error:
                mistakes.append(error)
                yield ""  # blank costs nothing
            else:
                mistakes.append(None)
                yield text

    translations = translate_all(sendable_texts())
    for part in every:
        texts: list[str] = []
        failures: Failures = []
        for number, translation in enumerate(islice(translations, part.count)):
            error = mistakes.popleft() or translation.error
            texts.append(translation.text if error is None else "")
            if error is not None:
                failures.append((number, str(error)))
        job.write(part, texts, failures)
        on_part(part)
