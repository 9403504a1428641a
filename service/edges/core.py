"""What an edge needs of the core: models that take its work, room for its calls, permission for its streams."""

import asyncio

from service.call import Caller
from service.config import LimitsConfig
from service.queue.admission import Admission, Permit
from service.queue.waiting_lines import WaitingLines
from service.registry.catalogue import Catalogue


class Core:
    """The core in the edge's own process; `CoreLink` is one in another process."""

    def __init__(self, catalogue: Catalogue, limits: LimitsConfig) -> None:
        """Let calls in that find their models in `catalogue`."""
        self.catalogue = catalogue
        self.lines = WaitingLines()  # of texts of streams that wait for room
        self.all_left = asyncio.Event()  # set whenever the last call leaves admission
        self.admission = Admission(limits, on_empty=self.all_left.set, on_leave=self.lines.departed)

    async def open_stream(self, caller: Caller) -> Permit:
        """Return a permit for a stream; raises as `Admission.admit_stream`."""
        return self.admission.admit_stream(caller)
