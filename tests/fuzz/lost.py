"""What one flood alone costs the front process in memory that stays: the figures of LOST_BY_GRPC in __main__.py."""

import time
from functools import partial
from typing import Any

import psutil

from tests.fakes.server_process import ServerProcess
from tests.fuzz.floods import Flood, deaf, flooding, resets

# Each of their calls costs memory that grpcio never frees; by name, as many of them as make enough calls to see it.
ALONE: dict[str, tuple[Flood, ...]] = {"resets": (partial(resets, pause_s=0.0),), "deaf": (deaf,) * 20}
_ROUNDS = 4  # of equal length; in the first ones the heap finds its size
_IDLE_PERCENT = 5.0  # of a CPU: nothing is left to do for the calls of a round
_PATIENCE_S = 30.0


def lost_by_grpc(server: ServerProcess, name: str, seconds: float) -> dict[str, Any]:
    """Bytes of resident memory for each call of this flood, with nothing beside it, in each round."""
    process = psutil.Process(server.process.pid)
    rounds = [_round(server.grpc_port, process, name, seconds / _ROUNDS) for _ in range(_ROUNDS)]
    return {
        "flood": name,
        "calls": [calls for calls, _ in rounds],
        "bytes_per_call": [round(grown / max(1, calls)) for calls, grown in rounds],
    }


def _round(port: int, process: psutil.Process, name: str, seconds: float) -> tuple[int, int]:
    """How many calls that were, and by how many bytes the process grew."""
    before = process.memory_info().rss
    with flooding(port, ALONE[name]) as counts:
        time.sleep(seconds)
    give_up_at = time.monotonic() + _PATIENCE_S
    while process.cpu_percent(interval=1.0) > _IDLE_PERCENT and time.monotonic() < give_up_at:
        pass
    return counts.total() - counts["refused connections"], process.memory_info().rss - before
