"""Files that are translated after the answer to the request that brought them: how far each is, for who has its key."""

import secrets
import time
from collections.abc import Callable
from typing import Literal, NamedTuple

from service.api.http.files import KEPT_S
from service.call import Identity
from service.errors import Overloaded

MAX_OPEN = 256  # jobs that are not over
MAX_OWN_OPEN = 16  # of one client
LOST_AFTER_S = 600.0  # a job that nothing is heard of: the process that did it is gone
_RETRY_S = 5.0


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


class DocumentJobs:
    """The jobs of the whole server."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin without jobs."""
        self._clock = clock
        self._jobs: dict[str, _Job] = {}

    def begin(self, owner: Identity) -> tuple[str, str]:
        """Return the id and the key of a new job; raises Overloaded if too many are not over."""
        self._forget()
        waiting = [job.owner for job in self._jobs.values() if not job.status.is_over]
        if len(waiting) >= MAX_OPEN or waiting.count(owner) >= MAX_OWN_OPEN:
            message = f"{waiting.count(owner)} documents of this client wait, {len(waiting)} of all clients"
            raise Overloaded(message, reason="files", retry_after_s=_RETRY_S)
        name, key = secrets.token_hex(16).upper(), secrets.token_hex(32).upper()
        self._jobs[name] = _Job(key, owner, self._clock())
        return name, key

    def note(self, name: str, status: JobStatus) -> None:
        """Note how far a job is."""
        job = self._jobs.get(name)
        if job is not None:
            self._jobs[name] = job._replace(status=status, heard_of=self._clock())

    def find(self, name: str, key: str) -> JobStatus | None:
        """Return how far a job is; None: there is none of this name and key, or none any more."""
        self._forget()
        job = self._jobs.get(name)
        return job.status if job is not None and secrets.compare_digest(job.key.encode(), key.encode()) else None

    def _forget(self) -> None:
        now = self._clock()
        for name, job in list(self._jobs.items()):
            if not job.status.is_over and now - job.heard_of > LOST_AFTER_S:
                self.note(name, JobStatus("error", message="the work on the document was lost: send it again"))
            elif job.status.is_over and now - job.heard_of > KEPT_S:
                del self._jobs[name]
