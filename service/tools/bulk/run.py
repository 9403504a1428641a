"""Translates the missing parts of a job: batches, halves where a batch is too large, patience with an outage.

A server that has no room is waited for as long as it is alive, and one that gives no answer for a while.  A call that
was late says nothing of which it is, so the server is asked.  Knows no
channel; makes no pauses and says no words itself but through what it is given.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

from service.api.grpc.requests import check_encodable
from service.client.channel import Backoff, RetryPolicy
from service.errors import DeadlineExceeded, DragomanError, InvalidInput, Overloaded, TooLong, Unavailable
from service.records import TranslateAll, Translation
from service.tools.bulk.formats import BulkPart
from service.tools.bulk.job import BulkJob, Failures

OnPart = Callable[[BulkPart], None]
TranslateBatch = Callable[[list[str]], Sequence[Translation]]
Reply = TypeVar("Reply")

MAX_OUTAGE_S = 300.0
# Why there is no room now, and may be later.  Any other refusal may never pass, as of a text that is late even alone.
_ABOUT_ROOM = frozenset({"queue_full", "token_budget", "client_budget", "queue_seconds"})
_RETRY = RetryPolicy(initial_backoff_s=0.2, max_backoff_s=10.0, backoff_multiplier=2.0)
_SAID_AGAIN_AFTER_S = 60.0
# gRPC's own refusal of a request or an answer has no reason of ours, only these words.
_MESSAGE_TOO_LARGE = "message larger than max"
# Too large for the memory, or for the time that a call may take.  It may also be that others leave too little of both;
# then half of it is refused too, down to one text, and that waits.
_LESS_MAY_FIT = frozenset({"out_of_memory", "deadline_unattainable"})


def translate_parts(job: BulkJob, parts: Iterable[BulkPart], translate_all: TranslateAll, on_part: OnPart) -> None:
    """Translate and keep these parts, in order; a text that fails becomes an empty one.

    The texts of all parts are one stream, so that the next part's are under way before one is written.  After an error
    (no answer, another version of the model, a source that has changed), what has been kept stays.
    """
    every = tuple(parts)
    mistakes: deque[InvalidInput | None] = deque()  # of the texts taken and not translated yet

    def sendable_texts() -> Iterator[str]:
        for text in job.texts(every):
            try:
                check_encodable(text, "the text")
            except InvalidInput as error:
                mistakes.append(error)
                yield ""  # blank costs nothing
            else:
                mistakes.append(None)
                yield text

    translations = translate_all(sendable_texts())
    for part in every:
        texts: list[str] = []
        failures: Failures = []
        for number, translation in enumerate(islice(translations, part.count)):
            error = mistakes.popleft() or translation.error
            texts.append(translation.text if error is None else "")
            if error is not None:
                failures.append((number, str(error)))
        job.write(part, texts, failures)
        on_part(part)


def is_too_large(error: DragomanError, num_texts: int) -> bool:
    """Whether a batch that was refused like this has to become smaller; waiting alone does not help it."""
    if isinstance(error, Overloaded) and not error.reason and _MESSAGE_TOO_LARGE in str(error):
        return True
    if num_texts == 1:
        return False
    if isinstance(error, InvalidInput):
        return error.field == "texts"  # more of them than the server takes in a call
    if isinstance(error, DeadlineExceeded):
        return True  # the server lives and was too slow: the same batch would be too slow again
    return isinstance(error, Overloaded) and error.reason in _LESS_MAY_FIT


def translated_in_pieces(batch: list[str], translate: TranslateBatch) -> list[Translation]:
    """Translate a batch, by halves where it is too large; a text that is too large alone has that as its error."""
    try:
        return [*translate(batch)]
    except (InvalidInput, Overloaded, DeadlineExceeded) as error:
        if not is_too_large(error, len(batch)):
            raise
        if len(batch) == 1:
            return [Translation(error=TooLong(f"the text does not fit in a message: {error}", field="text"))]
    middle = len(batch) // 2
    return [piece for half in (batch[:middle], batch[middle:]) for piece in translated_in_pieces(half, translate)]


def until_answered(
    call: Callable[[], Reply],
    *,
    max_outage_s: float,
    pause: Callable[[float], bool],
    on_wait: Callable[[DragomanError], None] = lambda _: None,
    is_final: Callable[[DragomanError], bool] = lambda _: False,
    clock: Callable[[], float] = time.monotonic,
) -> Reply:
    """Return the reply of a call, which is made again while the server has no room, and while it gives no other answer.

    Args:
        max_outage_s: how long at a stretch the server may be away, late, or refuse for other reasons than room.
        pause: waits for so many seconds; False: nobody wants the reply any more.
        on_wait: is told before each pause why there is one.
        is_final: whether such a failure stays, however often the same call is made.
    """
    backoff, away_since = Backoff(_RETRY), None
    while True:
        try:
            return call()
        except (Overloaded, Unavailable, DeadlineExceeded) as error:
            failure = error
        if is_final(failure):
            raise failure
        if _is_about_room(failure):
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
    """Return the reply of a call; one that is late becomes Unavailable if its server says nothing, too.

    Args:
        ask: returns when the server says that it serves; raises Unavailable when it does not in time.
    """
    try:
        return call()
    except DeadlineExceeded as late:
        try:
            ask()
        except Unavailable as away:
            raise Unavailable(f"a call was late ({late}), and {away}") from late
        except DragomanError:
            pass  # a refusal is an answer
        raise


def _is_about_room(error: DragomanError) -> bool:
    """Whether it passes when the server has done other work."""
    return isinstance(error, Overloaded) and error.reason in _ABOUT_ROOM


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
        """Note that a call waits because of this."""
        reason = (type(error).__name__, error.reason if isinstance(error, Overloaded) else "")
        now = self._clock()
        with self._lock:
            if now - self._said_at.get(reason, float("-inf")) < _SAID_AGAIN_AFTER_S:
                return
            self._said_at[reason] = now
        until = "until there is room" if _is_about_room(error) else f"at most {self._max_outage_s:g} s (--max-outage)"
        self._say(f"waiting, {until}: {error}")
