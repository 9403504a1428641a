"""The parts of a job on a Ray cluster: any worker takes any part, and one that is killed is replaced.

Input, output and bundle are on a file system that all nodes share.  Ray Data hands out the parts; what a killed worker
had begun is handed out again, and a part is kept as a whole or not at all, so nothing is lost or doubled.

What ends a run comes back from a worker as a value: of what is raised there, Ray keeps the traceback and loses the
kind, which decides what the command says and its exit code.
"""

import logging
import os
import pickle
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from service.errors import DragomanError
from service.extras import how_to_install
from service.records import TranslateAll
from service.tools.bulk.formats import BulkPart
from service.tools.bulk.job import BulkJob, OnPart, translate_parts
from service.tools.bulk.workers import BundleWorker, ServerWorker


def translate_on_ray(
    job: BulkJob,
    parts: Iterable[BulkPart],
    worker: ServerWorker | BundleWorker,
    address: str | None,
    num_workers: int,
    on_part: OnPart,
) -> None:
    """Translate and keep these parts, in whatever order; after an error of a worker, what has been kept stays.

    Args:
        address: of a running cluster; None: one in this machine.
        num_workers: processes, each on a CPU of its own.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing leaves the machine
    try:
        import ray  # noqa: PLC0415 - of the extra `ray`
    except ImportError as error:
        raise ValueError(f"--engine ray needs Ray: {how_to_install('ray')}") from error
    # Ray repeats here what workers write, such as why they wait.
    ray.init(address=address, ignore_reinit_error=True, log_to_driver=True, logging_level=logging.ERROR)
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    ray.data.DataContext.get_current().enable_progress_bars = False
    actor: Any = RayWorker  # Ray's types have functions alone
    done = ray.data.from_items([asdict(part) for part in parts]).map(
        actor,
        fn_constructor_args=(job, worker),
        compute=ray.data.ActorPoolStrategy(size=num_workers),
        num_cpus=1,
    )
    for row in done.iter_rows():
        raise_failure(row.pop("failure"))
        on_part(BulkPart(**row))


class RayWorker:
    """An actor with a model or a connection of its own, which is opened with the first part."""

    def __init__(self, job: BulkJob, worker: ServerWorker | BundleWorker) -> None:
        self._job = job
        self._worker = worker
        self._translate_all: TranslateAll | None = None
        self._failure = ""

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        return row | {"failure": self._translate(BulkPart(**row))}

    def _translate(self, part: BulkPart) -> str:
        """Return why there is no such part, for `raise_failure`; empty where there is one now.

        After a failure nothing is tried: Ray hands on what a worker returns when all parts it was given are through.
        """
        try:
            if not self._failure:
                self._translate_all = self._translate_all or self._worker.open()
                translate_parts(self._job, [part], self._translate_all, lambda _: None)
        except (DragomanError, ValueError, OSError) as error:
            self._failure = pickle.dumps(error).hex()
        return self._failure


def raise_failure(failure: str) -> None:
    """Raise what a worker returned, if it is a failure."""
    if failure:
        raise pickle.loads(bytes.fromhex(failure))  # noqa: S301 - of a worker of ours
