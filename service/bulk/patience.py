"""How long a bulk run bears with its server: for room as long as the server is alive, without one for a while.

A call that was late says nothing of which it is, so the server is asked (ARCHITECTURE.md, "A late call is a question").

Pure but for the pauses and the words, which its caller makes.
"""

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from service.client.channel import Backoff, RetryPolicy
from service.errors import DeadlineExceeded, DragomanError, Overloaded, Unavailable

MAX_OUTAGE_S = 300.0
# Why there is no room now, and may be later.  Any other refusal may never pass, as of a text that is late even alone.
_ABOUT_ROOM = frozenset({"queue_full", "token_budget", "client_budget", "queue_seconds"})
_RETRY = RetryPolicy(initial_backoff_s=0.2, max_backoff_s=10.0, backoff_multiplier=2.0)
_SAID_AGAIN_AFTER_S = 60.0

Reply = TypeVar("Reply")


def until_answered(
    call: Callable[[], Reply],
    *,
    max_outage_s: float,
    pause: Callable[[float], bool],
    on_wait: Callable[[DragomanError], None] = lambda _: None,
    is_final: Callable[[DragomanError], bool] = lambda _: False,
    clock: Callable[[], float] = time.monotonic,
) -> Reply:
    """The reply of a call, which is made again while the server has no room, and while it gives no other answer.

    Args:
        call: raises DragomanError.
        max_outage_s: that the server may be away, late, or refuse for other reasons than room, at a stretch.
        pause: waits for so many seconds; False: nobody wants the reply any more.
        on_wait: is told before each pause why there is one.
        is_final: whether such a failure stays, however often the same call is made.

    Raises:
        DragomanError: of the last call.
    """
    backoff, away_since = Backoff(_RETRY), None
    while True:
        try:
            return call()
        except (Overloaded, Unavailable, DeadlineExceeded) as error:
            failure = error
        if is_final(failure):
            raise failure
        if is_about_room(failure):
            away_since = None
        else:
            now = clock()
            away_since = now if away_since is None else away_since
            if now - away_since >= max_outage_s:
                raise failure
        on_wait(failure)
        if not pause(backoff.next_s(at_least_s=failure.retry_after_s if isinstance(failure, Overloaded) else 0.0)):
            raise failure


def late_if_alive(call: Callable[[], Reply], ask: Callable[[], None]) -> Reply:
    """The reply of a call, which is late only if its server lives: one that hangs is away.

    Args:
        call: raises DragomanError.
        ask: returns when the server says that it serves; raises Unavailable when it does not in time.

    Raises:
        Unavailable: the call was late, and the server says nothing, or that it does not serve.
        DragomanError: of the call.
    """
    try:
        return call()
    except DeadlineExceeded as late:
        away = _why_away(ask)
        if away is None:
            raise
        raise Unavailable(f"a call was late ({late}), and {away}") from late


def _why_away(ask: Callable[[], None]) -> Unavailable | None:
    try:
        ask()
    except Unavailable as away:
        return away
    except DragomanError:
        return None  # a refusal is an answer
    return None


def is_about_room(error: DragomanError) -> bool:
    """Whether it passes when the server has done other work."""
    return isinstance(error, Overloaded) and error.reason in _ABOUT_ROOM


def failure_reason(error: DragomanError) -> str:
    """The server's word for why it refused; empty if it did not refuse, or for no reason of ours."""
    return error.reason if isinstance(error, Overloaded) else ""


class WaitReport:
    """Says that a run waits and why, once a minute for each reason; its calls are in threads of their own."""

    def __init__(
        self, say: Callable[[str], None], *, max_outage_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._say = say
        self._max_outage_s = max_outage_s
        self._clock = clock
        self._said_at: dict[tuple[str, str], float] = {}
        self._lock = threading.Lock()

    def waits(self, error: DragomanError) -> None:
        """A call waits because of this."""
        reason, now = (type(error).__name__, failure_reason(error)), self._clock()
        with self._lock:
            said_at = self._said_at.get(reason)
            if said_at is not None and now - said_at < _SAID_AGAIN_AFTER_S:
                return
            self._said_at[reason] = now
        self._say(f"waiting, {self._patience(error)}: {error}")

    def _patience(self, error: DragomanError) -> str:
        return "until there is room" if is_about_room(error) else f"at most {self._max_outage_s:g} s (--max-outage)"
