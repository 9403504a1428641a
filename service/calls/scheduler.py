"""What a frontend needs of the scheduler: models that take its work, room for its calls, permission for its streams."""

import asyncio

from service.call import Caller
from service.config import LimitsConfig
from service.queue.admission import Admission, Permit
from service.queue.waiting_lines import WaitingLines
from service.registry.catalogue import Catalogue


class SchedulerClient:
    """The way to the scheduler in the frontend's own process; `RemoteScheduler` is that to another process."""

    def __init__(self, catalogue: Catalogue, limits: LimitsConfig) -> None:
        """Let calls in that find their models in `catalogue`."""
        self.catalogue = catalogue
        self.lines = WaitingLines()  # of texts of streams that wait for room
        self._empty = asyncio.Event()
        self.admission = Admission(limits, on_empty=self._empty.set, on_leave=self.lines.departed)

    async def open_stream(self, caller: Caller) -> Permit:
        """Return a permit for a stream; raises as `Admission.admit_stream`."""
        return self.admission.admit_stream(caller)

    async def all_left(self) -> None:
        """Return when every call that was let in has been answered."""
        while self.admission.requests:
            self._empty.clear()
            await self._empty.wait()
