"""A bulk translation on disk: which parts there are, which are done, and how they become the output.

    OUT.parts/job.json       what is translated, with what and how; a later run must mean the same
    OUT.parts/000042.part    the output of one part, there as a whole or not at all
    OUT                      there as a whole or not at all; then OUT.parts goes

So a run may be killed at any moment, and the next one goes on: what it finds is complete, what is missing is made again
with the same result.
"""

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from service.bulk.formats import Format, Part


class JobError(ValueError):
    """The job cannot be begun or continued; the message says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """What decides every byte of the output."""

    source_sha256: str
    format: str
    part_size: int
    model: str
    model_version: str
    precision: str
    options: dict[str, Any]


class Job:
    """One output in the making."""

    def __init__(self, source: Path, output: Path, file_format: Format, description: Description) -> None:
        self.source = source
        self.output = output
        self.format = file_format
        self._description = description
        self._folder = output.with_name(f"{output.name}.parts")
        self.parts = tuple(file_format.plan(source, description.part_size))

    @contextmanager
    def opened(self, *, is_forced: bool = False) -> Iterator[None]:
        """The job is ours alone inside.

        Args:
            is_forced: begin again, whatever is there.

        Raises:
            JobError: the output exists, another run is at it, or an earlier one meant something else.
        """
        if is_forced:
            self.output.unlink(missing_ok=True)
            shutil.rmtree(self._folder, ignore_errors=True)
        if self.output.exists() and not self._folder.exists():
            raise JobError(f"{self.output} exists: --force translates again")
        self._folder.mkdir(parents=True, exist_ok=True)
        with (self._folder / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise JobError(f"another run is at {self.output}: wait for it, or stop it") from None
            self._check_description()
            yield

    def missing(self) -> list[Part]:
        """The parts that are still to be done, in their order."""
        return [part for part in self.parts if not self.part_file(part).exists()]

    def part_file(self, part: Part) -> Path:
        """Where a part's output is."""
        return self._folder / f"{part.index:06d}.part"

    def write(self, part: Part, translations: Sequence[str]) -> None:
        """Keep the output of a part."""
        write_whole(self.part_file(part), self.format.encode(self.format.read(self.source, part), translations))

    def finish(self) -> None:
        """Join all parts into the output."""
        draft = self._folder / "joined"
        self.format.join(self.source, (self.part_file(part) for part in self.parts), draft)
        _sync(draft)
        draft.replace(self.output)
        _sync(self.output.parent)
        shutil.rmtree(self._folder)

    def _check_description(self) -> None:
        file = self._folder / "job.json"
        ours = asdict(self._description)
        if not file.exists():
            write_whole(file, json.dumps(ours, indent=2).encode())
            return
        theirs = json.loads(file.read_text(encoding="utf-8"))
        changed = [name for name in ours if theirs.get(name) != ours[name]]
        if changed:
            what = ", ".join(f"{name} was {theirs.get(name)!r} and is {ours[name]!r}" for name in changed)
            raise JobError(f"{self._folder} is of another job: {what}; --force begins again")


def write_whole(file: Path, content: bytes) -> None:
    """Have the file there with this content or not at all, also after a power cut."""
    draft = file.with_name(f"{file.name}.{os.getpid()}.draft")
    with draft.open("wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
    draft.replace(file)


def sha256_of(file: Path) -> str:
    """Of its content, in hexadecimal."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
