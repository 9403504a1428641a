"""Bulk runs, undisturbed and killed at moments that a seed draws, and what was there after each kill."""

import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from tests.fakes.bulk_runs import await_parts, bulk, drafts, parts_done, ray_workers

Say = Callable[[str], None]

# The last kill comes when this part of the undisturbed run's time has been worked: starts and what is done twice take
# time of their own, so there is still something to do then.
LAST = 0.85
MOST_WRITES = 3  # a process that is killed in a write is killed in one of its first


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """One of a process; exactly one of both is given."""

    after_s: float | None = None  # from the start of the process
    in_write: int | None = None  # of which of the parts that the process writes, from 1

    def __post_init__(self) -> None:
        assert (self.after_s is None) != (self.in_write is None)

    def __str__(self) -> str:
        return f"after {self.after_s:.2f} s" if self.after_s is not None else f"in write {self.in_write} of a part"


def planned(seed: int, number: int, undisturbed_s: float) -> list[Kill]:
    """So many kills, one of them inside a write; the others cut the undisturbed run's time at random points."""
    draw = random.Random(seed)
    moments = sorted(draw.uniform(0.0, LAST * undisturbed_s) for _ in range(number - 1))
    kills = [Kill(after_s=later - earlier) for earlier, later in pairwise([0.0, *moments])]
    kills.insert(draw.randrange(number), Kill(in_write=draw.randint(1, MOST_WRITES)))
    return kills


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkRun:
    """One command, which may be started several times."""

    source: Path
    output: Path
    address: str
    options: tuple[str, ...] = ()
    longest_s: float = 60.0

    def start(self, kill: Kill | None = None) -> "subprocess.Popen[str]":
        """Start a process; one that is to be killed in a write does that by itself."""
        in_write = None if kill is None else kill.in_write
        return bulk(self.source, self.output, self.address, *self.options, killed_in_write=in_write)

    def to_end(self) -> float:
        """Return the seconds of a process that comes to its end by itself; raises RuntimeError if it fails."""
        began = time.monotonic()
        with self.start() as process:
            _end(process, self.longest_s)
        return time.monotonic() - began


@dataclass(frozen=True, slots=True, kw_only=True)
class Killed:
    """What a kill left."""

    kill: Kill
    parts: int  # that were there
    draft: tuple[int, int] | None = None  # the part that was being written, and how many bytes of it there were

    def __str__(self) -> str:
        being_written = f", {self.draft[1]:,} bytes of part {self.draft[0]}" if self.draft else ""
        return f"killed {self.kill}: {self.parts} parts{being_written}"


@dataclass(slots=True, kw_only=True)
class Interrupted:
    """A run in several processes."""

    seconds: float = 0.0  # of all of them, added up
    killed: list[Killed] = field(default_factory=list)


def interrupted(run: BulkRun, kills: Iterable[Kill], say: Say) -> Interrupted:
    """Start, kill and start again, until the output is complete; fewer kills if that was before the last one."""
    result = Interrupted()
    for kill in kills:
        known, began = set(drafts(run.output)), time.monotonic()
        is_killed = _is_killed(run, kill)
        result.seconds += time.monotonic() - began
        if not is_killed:
            return result
        new = [draft for draft in drafts(run.output) if draft not in known]
        draft = (int(new[0].name.split(".")[1]), new[0].stat().st_size) if new else None  # .000042.part.PID.draft
        result.killed.append(Killed(kill=kill, parts=len(parts_done(run.output)), draft=draft))
        say(str(result.killed[-1]))
    result.seconds += run.to_end()
    return result


def with_a_worker_killed(run: BulkRun, parts: int, say: Say) -> float:
    """Return the seconds of a run on Ray of which the oldest worker is killed when so many parts are there."""
    began = time.monotonic()
    with run.start() as process:
        await_parts(run.output, parts, process, within_s=run.longest_s)
        victim = ray_workers(process)[0]
        victim.kill()
        say(f"killed worker {victim.pid} of Ray: {len(parts_done(run.output))} parts")
        _end(process, run.longest_s)
    return time.monotonic() - began


def _is_killed(run: BulkRun, kill: Kill) -> bool:
    """Whether the process was killed; False: it came to its end before."""
    with run.start(kill) as process:
        try:
            _end(process, run.longest_s if kill.after_s is None else kill.after_s)
        except subprocess.TimeoutExpired:
            process.kill()
        except RuntimeError:
            if process.returncode != -signal.SIGKILL:
                raise
        return process.wait() == -signal.SIGKILL


def _end(process: "subprocess.Popen[str]", within_s: float) -> None:
    _, said = process.communicate(timeout=within_s)
    if process.returncode:
        raise RuntimeError(f"the run ended with {process.returncode}:\n{said}")
