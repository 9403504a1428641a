"""What a caller gives as texts: checked as it is taken, cut into messages, remembered until it is answered.

Pure and told the time; knows no call.  A text that no message can carry fails alone: a blank one, which costs nothing,
is sent in its place.
"""

from collections import OrderedDict, deque
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from service.client.channel import Backoff, RetryPolicy
from service.client.messages import check_encodable
from service.errors import DeadlineExceeded, DragomanError, Overloaded, TooLong, Unavailable
from service.records import Translation

# Of several texts in one message; 1 MiB at most in UTF-8, and servers accept messages of 4 MiB by default.
MAX_MESSAGE_CHARACTERS = 1 << 18
# Texts of one message of a stream: few enough that the first answers do not wait for the last texts to arrive.
MAX_MESSAGE_TEXTS = 64


def require_several(texts: object) -> None:
    """Raise TypeError for one text where several are needed: every character would be translated for itself."""
    if isinstance(texts, str | bytes):
        kind = type(texts).__name__
        raise TypeError(f"texts is one {kind}, an iterable of them is needed: for one text give a list, [text]")


def checked(texts: Iterable[str]) -> Iterator[str]:
    """Yield these texts; TypeError and InvalidInput name by number one that is no str or that UTF-8 cannot carry."""
    for number, text in enumerate(texts):
        check_encodable(text, f"texts[{number}]")
        yield text


async def checked_async(texts: Iterable[str] | AsyncIterable[str]) -> AsyncIterator[str]:
    """Do as `checked`, for either kind of iterable."""
    if not isinstance(texts, AsyncIterable):
        for text in checked(texts):
            yield text
        return
    number = 0
    async for text in texts:
        check_encodable(text, f"texts[{number}]")
        yield text
        number += 1


def too_large(text: str, max_bytes: int) -> TooLong | None:
    """Return the error of a text that no message can carry, None for any other."""
    num_bytes = len(text.encode())
    if num_bytes <= max_bytes:
        return None
    return TooLong(f"the text has {num_bytes} bytes in UTF-8, at most {max_bytes} fit in a message", field="text")


@dataclass(frozen=True, slots=True)
class CallTexts:
    """The texts of one call, and the errors of those that cannot be sent."""

    texts: list[str] = field(default_factory=list)  # to send
    errors: dict[int, TooLong] = field(default_factory=dict)  # by place

    def answered(self, translations: Sequence[Translation]) -> Iterator[Translation]:
        """Yield what became of each text, when these translations came back."""
        for place, translation in enumerate(translations):
            error = self.errors.get(place)
            yield translation if error is None else Translation(error=error)


def split_into_calls(texts: Iterable[str], size: int, max_text_bytes: int) -> Iterator[CallTexts]:
    """Yield `size` texts at a time, or as many as fit in a message; a full one comes before the next text is taken."""
    require_several(texts)
    call, num_characters = CallTexts(), 0
    for text in checked(texts):
        error = too_large(text, max_text_bytes)
        length = len(text) if error is None else 0
        if call.texts and num_characters + length > MAX_MESSAGE_CHARACTERS:
            yield call
            call, num_characters = CallTexts(), 0
        if error is not None:
            call.errors[len(call.texts)] = error
        call.texts.append(text if error is None else "")
        num_characters += length
        if len(call.texts) == size:
            yield call
            call, num_characters = CallTexts(), 0
    if call.texts:
        yield call


def too_late(error: DragomanError) -> DeadlineExceeded:
    """Return what a stream ends with when there is no time left to go on after this error."""
    why = "" if isinstance(error, DeadlineExceeded) else f": {error}"
    return DeadlineExceeded(f"the deadline passed before everything was answered{why}")


class Unanswered:
    """Texts of one stream by number, in the order in which they were taken, over however many connections.

    What a lost connection, or a lost engine, left without an answer is sent again, and each text is answered to the
    caller exactly once.
    """

    def __init__(self, *, max_text_bytes: int, give_up_s: float, retry: RetryPolicy) -> None:
        self._max_text_bytes = max_text_bytes
        self._give_up_s = give_up_s  # trouble that lasts longer without an answer is passed on to the caller
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
    def is_done(self) -> bool:
        """Whether the caller has no more texts and all are answered."""
        return self._is_closed and not self._texts

    def take(self, text: str) -> None:
        """Number the next text, and send it when possible."""
        error = too_large(text, self._max_text_bytes)
        if error is not None:
            self._too_large[self._num_taken] = error
        self._texts[self._num_taken] = text if error is None else ""
        self._to_send.append(self._num_taken)
        self._num_taken += 1

    def close(self) -> None:
        self._is_closed = True

    def next_message(self, now: float) -> list[tuple[int, str]]:
        """Return numbers and texts to send now in one message; they count as sent."""
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
        """Return the seconds until there is something to send again; None where nothing waits for that."""
        return max(0.0, self._resend_at - now) if self._refused else None

    def answered(self, number: int, translation: Translation, now: float) -> Translation | None:
        """Return the answer to hand to the caller; None where there is none yet, or was one already."""
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
        """Return the seconds to wait before a new connection, which has to be sent everything again.

        Raises `error` where it does not pass, or has lasted too long.
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
