"""How long a bulk run bears with its server: for room as long as the server is alive, without one for a while.

Pure but for the pauses, which its caller makes.
"""

import time
from collections.abc import Callable
from typing import TypeVar

from service.client.retry import Backoff, RetryPolicy
from service.errors import DragomanError, Overloaded, Unavailable

MAX_OUTAGE_S = 300.0
_OUT_OF_MEMORY = "out_of_memory"  # a batch that is too large for the server's memory is so the next time, too
_RETRY = RetryPolicy(initial_backoff_s=0.2, max_backoff_s=10.0, backoff_multiplier=2.0)

Reply = TypeVar("Reply")


def until_answered(
    call: Callable[[], Reply],
    *,
    max_outage_s: float,
    pause: Callable[[float], bool],
    clock: Callable[[], float] = time.monotonic,
) -> Reply:
    """The reply of a call, which is made again while the server has no room, and while it is away.

    Args:
        call: raises DragomanError.
        max_outage_s: that the server may be away at a stretch.
        pause: waits for so many seconds; False: nobody wants the reply any more.

    Raises:
        DragomanError: of the last call.
    """
    backoff, away_since = Backoff(_RETRY), None
    while True:
        try:
            return call()
        except Overloaded as error:
            if error.reason == _OUT_OF_MEMORY:
                raise
            failure: DragomanError = error
            away_since, pause_s = None, backoff.next_s(at_least_s=error.retry_after_s)
        except Unavailable as error:
            now = clock()
            away_since = now if away_since is None else away_since
            if now - away_since >= max_outage_s:
                raise
            failure, pause_s = error, backoff.next_s()
        if not pause(pause_s):
            raise failure
