"""A legitimate caller beside a load or an attack: what became of its calls, and how long they took."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import grpc
import numpy as np

from protos import translation_pb2 as pb
from tests.fakes.calls import Calls, code_of


@dataclass
class Probe:
    """Calls, one after another."""

    waits: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def p99(self) -> float:
        """Seconds."""
        return float(np.quantile(self.waits, 0.99))


@asynccontextmanager
async def probing(
    calls: Calls, pause_s: float = 0.01, metadata: Sequence[tuple[str, str]] = ()
) -> AsyncIterator[Probe]:
    """A caller that goes on for as long as the block lasts."""
    probe, is_over, options = Probe(), asyncio.Event(), pb.TranslateOptions(beam_size=1)

    async def caller() -> None:
        while not is_over.is_set():
            began = time.monotonic()
            code = await code_of(calls.translate("Hi.", metadata=metadata, options=options))
            probe.waits.append(time.monotonic() - began)
            if code is not grpc.StatusCode.OK:
                probe.errors.append(code.name)
            await asyncio.sleep(pause_s)

    task = asyncio.create_task(caller())
    try:
        yield probe
    finally:
        is_over.set()
        await asyncio.wait_for(task, 30)
