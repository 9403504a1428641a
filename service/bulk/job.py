"""A bulk translation on disk: which parts there are, which are done, and how they become the output.

    OUT.parts/job.json       what is translated, with what and how; once there is a part, a later run must mean the same
    OUT.parts/000042.part    the output of one part, there as a whole or not at all
    OUT.parts/000042.failed  why texts of it have no translation; written before the part, and only where there are some
    OUT.parts/lock           held by the run that is at it
    OUT                      there as a whole or as it was
    OUT.parts/done.json      what was job.json, as soon as OUT is there; the last to go of OUT.parts

So a run may be killed at any moment, and the next one goes on: what it finds is complete, what is missing is made again
with the same result.
"""

import fcntl
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

from service.bulk.parts import Format, Part
from service.bulk.source import JobError, Source
from service.errors import InternalError
from service.files import sync, write_whole

Failures = list[tuple[int, str]]  # record's number in the part, from 0, and why it has no translation


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """What decides every byte of the output."""

    source_sha256: str
    format: str  # how the file is read: `formats.name_of`
    part_size: int
    model: str
    model_version: str
    precision: str
    options: dict[str, Any]


class Job:
    """One output in the making."""

    def __init__(self, source: Source, output: Path, file_format: Format, description: Description) -> None:
        self._source = source
        self.output = output
        self.format = file_format
        self._description = description
        self._folder = output.with_name(f"{output.name}.parts")
        with source.unchanged():
            self.parts = tuple(file_format.plan(source.file, description.part_size))

    @contextmanager
    def opened(self, *, is_forced: bool = False) -> Iterator[None]:
        """The job is ours alone inside.

        Args:
            is_forced: begin again, whatever is there; an output that is there stays until the new one is complete.

        Raises:
            JobError: the output exists, another run is at it, or an earlier one meant something else and has parts.
        """
        if not is_forced and not self._description_file.exists() and not self._done_file.exists():
            self._require_no_output()
        self._folder.mkdir(parents=True, exist_ok=True)
        with self._lock.open("w") as lock:
            self._take(lock)
            if is_forced:
                self._clear()
            if not self._is_done():
                self._begin_or_go_on()
            yield

    def missing(self) -> list[Part]:
        """The parts that are still to be done, in their order."""
        return [] if self._is_done() else [part for part in self.parts if not self.part_file(part).exists()]

    def part_file(self, part: Part) -> Path:
        """Where a part's output is."""
        return self._folder / f"{part.index:06d}.part"

    def failures(self, part: Part) -> Failures:
        """Which records of a part that is done have no translation, and why."""
        file = self._failed_file(part)
        return [(int(number), str(reason)) for number, reason in json.loads(file.read_bytes())] if file.exists() else []

    def texts(self, parts: Sequence[Part]) -> Iterator[str]:
        """What is to be translated of these parts.

        Raises:
            JobError: the source has changed.
        """
        with self._source.unchanged():
            yield from self.format.texts(self._source.file, parts)

    def write(self, part: Part, translations: Sequence[str], failures: Failures) -> None:
        """Keep the output of a part, and which of its texts failed.

        Raises:
            JobError: the source has changed; the part is not kept, as in the next one.
            InternalError: there are not as many translations as records.
        """
        if len(translations) != part.count:
            raise InternalError(f"{len(translations)} translations came for {part.count} records")
        with self._source.unchanged():
            content = self.format.encode(self._source.file, part, translations)
        if failures:
            write_whole(self._failed_file(part), json.dumps(failures).encode())
        else:
            self._failed_file(part).unlink(missing_ok=True)  # of a run that was killed before it wrote the part
        write_whole(self.part_file(part), content)

    def finish(self) -> None:
        """Join all parts into the output, if that was not done by a run that was killed afterwards; remove the parts.

        Raises:
            JobError: the source has changed.
        """
        if not self._is_done():
            draft = self._folder / "joined"
            with self._source.unchanged():
                self.format.join(self._source.file, (self.part_file(part) for part in self.parts), draft)
            sync(draft)
            draft.replace(self.output)
            sync(self.output.parent)
            self._description_file.replace(self._done_file)
        self._leave()

    @property
    def _description_file(self) -> Path:
        return self._folder / "job.json"

    @property
    def _done_file(self) -> Path:
        return self._folder / "done.json"

    @property
    def _lock(self) -> Path:
        return self._folder / "lock"

    def _failed_file(self, part: Part) -> Path:
        return self.part_file(part).with_suffix(".failed")

    def _take(self, lock: TextIO) -> None:
        """Lock the folder; a lock whose file has gone was that of a run that has ended since."""
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_there = os.path.samestat(os.fstat(lock.fileno()), self._lock.stat())
        except (BlockingIOError, FileNotFoundError):
            is_there = False
        if not is_there:
            raise JobError(f"another run is at {self.output}: wait for it, or stop it") from None

    def _is_done(self) -> bool:
        """Whether the output is there, made by this job in a run that was killed before all parts were gone."""
        if not self.output.exists() or not self._done_file.exists():
            return False
        theirs: dict[str, Any] = json.loads(self._done_file.read_text(encoding="utf-8"))
        return theirs == asdict(self._description)

    def _begin_or_go_on(self) -> None:
        if self._done_file.exists():  # of another job, or its output was taken away
            if self.output.exists():
                self._leave()
            self._require_no_output()
            self._clear()
        self._check_description()

    def _require_no_output(self) -> None:
        if self.output.exists():
            raise JobError(f"{self.output} exists: --force translates again")

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

    def _check_description(self) -> None:
        if not self._description_file.exists():
            self._describe()
            return
        ours = asdict(self._description)
        theirs = json.loads(self._description_file.read_text(encoding="utf-8"))
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

    def _describe(self) -> None:
        self._clear()  # parts of which nobody knows what they are
        write_whole(self._description_file, json.dumps(asdict(self._description), indent=2).encode())
