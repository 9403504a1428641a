"""The texts of a `translate_stream` between the caller's iterable and their answers, over however many connections.

Pure and told the time; knows neither threads nor gRPC.  What a lost connection, or a lost engine, left without an
answer is sent again, and each text is answered to the caller exactly once.
"""

from collections import OrderedDict, deque

from service.client.retry import Backoff, RetryPolicy
from service.client.texts import MAX_MESSAGE_CHARACTERS, too_large
from service.errors import DeadlineExceeded, DragomanError, Overloaded, TooLong, Unavailable
from service.records import Translation

# Texts of one message: few enough that the first answers do not wait for the last texts to arrive.
MAX_MESSAGE_TEXTS = 64


def too_late(error: DragomanError) -> DeadlineExceeded:
    """What a stream ends with when there is no time left to go on after this error."""
    why = "" if isinstance(error, DeadlineExceeded) else f": {error}"
    return DeadlineExceeded(f"the deadline passed before everything was answered{why}")


class Unanswered:
    """Texts by number, in the order in which they were taken."""

    def __init__(self, *, max_texts: int, max_text_bytes: int, give_up_s: float, retry: RetryPolicy) -> None:
        """Nothing yet.

        Args:
            max_texts: taken and not answered.
            max_text_bytes: of one text; a larger one fails, and a blank one is sent in its place.
            give_up_s: trouble that lasts longer, without an answer in between, is passed on to the caller.
        """
        self._max_texts = max_texts
        self._max_text_bytes = max_text_bytes
        self._give_up_s = give_up_s
        self._backoff = Backoff(retry)
        self._texts: OrderedDict[int, str] = OrderedDict()
        self._too_large: dict[int, TooLong] = {}
        self._to_send: deque[int] = deque()
        self._refused: list[int] = []  # to be sent again ...
        self._resend_at = 0.0  # ... then
        self._trouble_since: float | None = None
        self._has_progress = False  # an answer came since the last trouble
        self._num_taken = 0
        self._is_closed = False

    @property
    def has_room(self) -> bool:
        """Whether another text may be taken."""
        return len(self._texts) < self._max_texts

    @property
    def is_done(self) -> bool:
        """Whether all texts there will ever be are answered."""
        return self._is_closed and not self._texts

    def take(self, text: str) -> None:
        """Number the next text and send it when possible."""
        error = too_large(text, self._max_text_bytes)
        if error is not None:
            self._too_large[self._num_taken] = error
        self._texts[self._num_taken] = text if error is None else ""
        self._to_send.append(self._num_taken)
        self._num_taken += 1

    def close(self) -> None:
        """There are no more texts."""
        self._is_closed = True

    def next_message(self, now: float) -> list[tuple[int, str]]:
        """Numbers and texts to send now in one message; they count as sent."""
        if self._refused and now >= self._resend_at:
            self._to_send.extend(self._refused)
            self._refused.clear()
        message: list[tuple[int, str]] = []
        size = 0
        while self._to_send and len(message) < MAX_MESSAGE_TEXTS:
            number = self._to_send[0]
            size += len(self._texts[number])
            if message and size > MAX_MESSAGE_CHARACTERS:
                break
            message.append((self._to_send.popleft(), self._texts[number]))
        return message

    def pause_s(self, now: float) -> float | None:
        """Seconds until there is something to send again; None where nothing waits for that."""
        return max(0.0, self._resend_at - now) if self._refused else None

    def answered(self, number: int, translation: Translation, now: float) -> Translation | None:
        """The answer to hand to the caller; None where there is none yet, or was one already."""
        if number not in self._texts:
            return None
        if isinstance(translation.error, Unavailable) and not self._is_hopeless(now):
            if not self._refused:
                self._resend_at = now + self._backoff.next_s()
            self._refused.append(number)
            return None
        del self._texts[number]
        self._has_progress = True
        if not isinstance(translation.error, Unavailable):
            self._trouble_since = None
            self._backoff.reset()
        error = self._too_large.pop(number, None)
        return translation if error is None else Translation(error=error)

    def lost(self, error: DragomanError, now: float) -> float:
        """Seconds to wait before a new connection, which has to be sent everything again.

        Raises:
            DragomanError: `error`, where it does not pass, or has lasted too long.
        """
        # A server ends streams after some hours: no reason to stop unless nothing was answered in that time.
        is_passing = isinstance(error, Unavailable) or (isinstance(error, DeadlineExceeded) and self._has_progress)
        pushback_s = error.retry_after_s if isinstance(error, Overloaded) else 0.0
        if not is_passing and pushback_s == 0.0:
            raise error
        if not self._texts:
            self._trouble_since = None  # nobody waits
        elif self._is_hopeless(now):
            raise error
        self._to_send = deque(self._texts)
        self._refused.clear()
        self._has_progress = False
        return self._backoff.next_s(at_least_s=pushback_s)

    def _is_hopeless(self, now: float) -> bool:
        """Note that there is trouble; true if it has lasted too long."""
        if self._trouble_since is None:
            self._trouble_since = now
        return now - self._trouble_since > self._give_up_s
