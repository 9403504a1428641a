"""What grpcio itself never gives back for each call of a flood, measured on a server with nothing of ours in it.

An operation that fails because its call is gone is not freed, nor what it was to send; it is compiled code, a server
cannot free it (github.com/grpc/grpc/issues/43360, open in grpcio 1.85.1).
"""

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import grpc
import numpy as np

from tests.fakes.server_process import ROOT
from tests.fuzz.bare_server import IN_USE
from tests.fuzz.floods import Flood, deaf, flooding, resets

# Floods whose calls end while something is sent or awaited for them; as many of them as make enough calls to see it.
LOSSES: dict[str, tuple[str, tuple[Flood, ...]]] = {
    "resets": ("resets", (partial(resets, pause_s=0.5),)),
    "deaf": ("calls nobody reads", (deaf,) * 5),
}
_ROUNDS = 4  # of equal length; the first one does not count, what is made once is made then
_SETTLED_S = 3.0  # after a round: its connections have ended


def lost_bytes_per_call(name: str, *, answer_bytes: int, seconds: float) -> list[float]:
    """Bytes that stay in use for each call of this flood, by round.

    Args:
        name: of `LOSSES`.
        answer_bytes: of each answer, as the server's that is judged.
        seconds: of all rounds.
    """
    counted, floods = LOSSES[name]
    with _bare_server(answer_bytes) as port, grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        in_use: Any = channel.unary_unary(IN_USE)
        lost, before = [], int(in_use(b"", wait_for_ready=True))
        for _ in range(_ROUNDS):
            with flooding(port, floods) as counts:
                time.sleep(seconds / _ROUNDS)
            time.sleep(_SETTLED_S)
            after = int(in_use(b""))
            lost.append((after - before) / max(1, counts[counted]))
            before = after
    return lost


def settled(rounds: Sequence[float]) -> float:
    """The mean of the rounds that count."""
    return float(np.mean(rounds[1:]))


@contextmanager
def _bare_server(answer_bytes: int) -> Iterator[int]:
    """Its port."""
    command = [sys.executable, "-m", "tests.fuzz.bare_server", str(answer_bytes)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()
