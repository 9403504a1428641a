"""The parts of a job on a Ray cluster: any worker takes any part, and one that is killed is replaced.

Input, output and bundle are on a file system that all nodes share.  Ray Data hands out the parts; what a killed worker
had begun is handed out again, and a part is kept as a whole or not at all, so nothing is lost or doubled.

What ends a run comes back from a worker as a value: of what is raised there, Ray keeps the traceback and loses the
kind, which decides what the command says and its exit code.
"""

import logging
import os
import pickle
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from typing import Any

from service.bulk.job import Job
from service.bulk.parts import Part
from service.bulk.run import OnPart, translate_parts
from service.bulk.workers import Opener, Say, say_on_stderr
from service.errors import DragomanError
from service.extras import how_to_install
from service.records import TranslateAll

_LAST_WORDS_S = 5.0  # for what workers said before the end


@dataclass(frozen=True, slots=True, kw_only=True)
class RayConfig:
    """Where and how wide."""

    address: str | None = None  # of a running cluster; None: one in this machine
    num_workers: int = 1
    cpus_per_worker: float = 1.0


def translate_on_ray(
    job: Job,
    parts: Iterable[Part],
    opener: Opener,
    config: RayConfig,
    on_part: OnPart,
    say: Say = say_on_stderr,
) -> None:
    """Translate and keep these parts, in whatever order.

    Args:
        say: is told here what the workers say there.

    Raises:
        ValueError: Ray is not installed, or a worker cannot translate these files.
        DragomanError, OSError: likewise; what has been kept stays.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing leaves the machine
    try:
        import ray  # noqa: PLC0415 - of the extra `ray`
        from ray.util.queue import Queue  # noqa: PLC0415 - as above
    except ImportError as error:
        raise ValueError(f"--engine ray needs Ray: {how_to_install('ray')}") from error
    ray.init(address=config.address, ignore_reinit_error=True, log_to_driver=False, logging_level=logging.ERROR)
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    ray.data.DataContext.get_current().enable_progress_bars = False
    with _repeated(Queue(actor_options={"num_cpus": 0}), say) as say_from_afar:
        done = ray.data.from_items([asdict(part) for part in parts]).map_batches(
            _Worker,
            fn_constructor_args=(job, opener, say_from_afar),
            batch_size=1,
            compute=ray.data.ActorPoolStrategy(size=config.num_workers),
            num_cpus=config.cpus_per_worker,
        )
        for row in done.iter_rows():
            _raise(row["failure"])
            on_part(Part(int(row["index"]), int(row["start"]), int(row["count"])))


@contextmanager
def _repeated(lines: Any, say: Say) -> Iterator[Say]:
    """Something that travels to the workers; what it is told there, `say` is told here, through this queue of Ray's."""

    def repeat() -> None:
        with suppress(Exception):  # the queue's node was lost, and with it only words
            while (line := lines.get()) is not None:
                with suppress(Exception):  # of `say`: the next line may be heard
                    say(line)
            lines.shutdown(force=True)  # here, where it holds nobody; a queue that is left ends with the run

    thread = threading.Thread(target=repeat, name="bulk-said", daemon=True)
    thread.start()
    try:
        yield _FromAfar(lines)
    finally:
        _send(lines, None)
        thread.join(_LAST_WORDS_S)


def _send(lines: Any, line: str | None) -> None:
    """Put it into the queue without waiting until it is there: a queue that is lost must hold nobody."""
    with suppress(Exception):
        lines.actor.put_nowait.remote(line)


class _FromAfar:
    """Says a line where the run was started; one that is lost on the way disturbs nobody."""

    def __init__(self, lines: Any) -> None:
        self._lines = lines

    def __call__(self, line: str) -> None:
        _send(self._lines, line)


class _Worker:
    """An actor with a model or a connection of its own, which is opened with the first part."""

    def __init__(self, job: Job, opener: Opener, say: Say) -> None:
        self._job = job
        self._open = partial(opener, say)
        self._failure = ""

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        columns = zip(batch["index"], batch["start"], batch["count"], strict=True)
        parts = [Part(int(index), int(start), int(count)) for index, start, count in columns]
        return batch | {"failure": [self._translate(part) for part in parts]}

    @cached_property
    def _translate_all(self) -> TranslateAll:
        return self._open()

    def _translate(self, part: Part) -> str:
        """Why there is no such part, for `_raise`; empty where there is one now.

        After a failure nothing is tried: Ray hands on what a worker returns when all parts it was given are through.
        """
        try:
            if not self._failure:
                translate_parts(self._job, [part], self._translate_all, lambda _: None)
        except (DragomanError, ValueError, OSError) as error:
            self._failure = pickle.dumps(error).hex()
        return self._failure


def _raise(failure: str) -> None:
    if failure:
        raise pickle.loads(bytes.fromhex(failure))  # noqa: S301 - of a worker of ours
