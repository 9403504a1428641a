"""Decides whether a request may come in, before it costs anything, and counts what is inside.

Pure and synchronous; knows neither gRPC nor engines.  The counts are exact: a reservation gives back what it took when
it is released, once.  Where room is short, a caller that holds less than an equal share of it still gets in.
"""

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Literal, Self

from service.call import ANYBODY, Caller, Identity
from service.config import LimitsConfig
from service.errors import DeadlineExceeded, DragomanError, InvalidInput, Overloaded, Unavailable

# Texts wait to be tokenised and are kept until they are answered; languages have about 4 characters per token.
CHARACTERS_PER_TOKEN = 8
# A limit of the server is twice this large for those who hold less than their share of it.
RESERVE = 2
MARGIN = 0.1  # an estimate is taken for so much longer before a request is refused for it
MIN_RETRY_S = 0.1
MAX_RETRIES = 10  # times `limits.retry_after_s`: the longest wait that an estimate can ask for

Kind = Literal["request", "stream", "part"]  # of reservations; a part is one text of a stream, or a part of a request


@dataclass(slots=True)
class _Held:
    """What one reservation holds, or all reservations of one caller but those of streams."""

    requests: int = 0
    parts: int = 0  # texts of streams, parts of requests
    characters: int = 0
    tokens: int = 0


_NOTHING = _Held()  # of a caller that is not inside


class Admission:
    """Lets requests in; everything that is inside holds a `Reservation`."""

    def __init__(
        self,
        limits: LimitsConfig,
        *,
        on_empty: Callable[[], None] | None = None,
        on_leave: Callable[[], None] | None = None,
    ) -> None:
        """Let everybody in, within the limits.

        Args:
            limits: how much may be inside.
            on_empty: called whenever the last reservation comes back.
            on_leave: called whenever a reservation comes back that was not refused anything.  (A refused reservation
                holds too little to matter to others, and a waiting text would wake itself with each refusal.)
        """
        self.limits = limits
        self._on_empty = on_empty
        self._on_leave = on_leave
        self._refusal: Callable[[], Unavailable] | None = None
        self._held: dict[Identity, _Held] = {}  # by callers that hold a reservation of a request or a part
        self._streams: Counter[Identity] = Counter()  # of callers that have streams: an idle stream takes no share
        self._requests = 0  # that are inside
        self.characters = 0  # that the reservations hold
        self.tokens = 0  # source tokens that the reservations hold

    def close(self, why: str, *, reason: str = "draining") -> None:
        """Refuse every later request with Unavailable(why), counted as `reason`; who is inside stays."""
        self._refusal = partial(Unavailable, why, reason=reason)

    def open(self) -> None:
        """Let requests in again."""
        self._refusal = None

    @property
    def is_open(self) -> bool:
        """Whether it is not closed to all."""
        return self._refusal is None

    @property
    def streams(self) -> int:
        """Number of streams that are inside."""
        return self._streams.total()

    @property
    def requests(self) -> int:
        """Number of requests that are inside, streams among them."""
        return self._requests + self.streams

    def admit(
        self,
        num_texts: int,
        *,
        now: float,
        deadline: float | None = None,
        caller: Caller = ANYBODY,
        field: str = "texts",
    ) -> "Reservation":
        """Return a reservation for one request; release it when the request is answered.

        Args:
            num_texts: texts in the request.
            now: time.monotonic().
            deadline: on the same clock; None for none.
            caller: who asks.
            field: of the request, that has the texts.

        Raises:
            Unavailable: it is closed.
            InvalidInput: no texts, or too many.
            DeadlineExceeded: nobody waits for the answer any more.
            Overloaded: as many requests, or as many source tokens, as allowed are inside.
        """
        if self._refusal is not None:
            raise self._refusal()
        max_texts = self.limits.max_texts
        if not 1 <= num_texts <= max_texts:
            message = f"{field} has {num_texts} entries, from 1 to {max_texts} are accepted"
            raise InvalidInput(message, field=field)
        if (refusal := self.refusal(caller, now=now, deadline=deadline)) is not None:
            raise refusal
        return Reservation(self, caller, "request")

    def refusal(self, caller: Caller, *, now: float, deadline: float | None) -> DragomanError | None:
        """Return why any request of this caller would be refused now; None: `admit` may let it in."""
        if self._refusal is not None:
            return self._refusal()
        if deadline is not None and deadline <= now:
            return DeadlineExceeded("the deadline had passed when the request arrived")
        return self._lack_of_room(caller)

    def _lack_of_room(self, caller: Caller) -> Overloaded | None:
        limits, requests = self.limits, self._requests
        has_room = requests < limits.max_concurrent_requests and self.tokens < limits.max_queued_tokens
        if has_room and caller.max_queued_tokens is None:
            return None
        held = self._held.get(caller.identity, _NOTHING)
        if self.is_full(requests, 1, held.requests, limits.max_concurrent_requests, caller):
            message = f"{requests} requests are being served, at most {limits.max_concurrent_requests} may be"
            return self.overloaded(message, "queue_full")
        if self.is_full(self.tokens, 1, held.tokens, limits.max_queued_tokens, caller):
            message = f"{self.tokens} source tokens wait or run, at most {limits.max_queued_tokens} may"
            return self.overloaded(message, "token_budget")
        if caller.max_queued_tokens is not None and held.tokens >= caller.max_queued_tokens:
            message = f"{held.tokens} of your source tokens wait or run, at most {caller.max_queued_tokens} may"
            return self.overloaded(message, "client_budget")
        return None

    def late(self, ahead_s: float, finish_s: float, *, now: float, deadline: float | None) -> Overloaded | None:
        """Return why a request is refused that waits, and is done, after so many seconds; see `Reservation.check`."""
        limit_s = self.limits.max_queue_seconds
        if ahead_s > limit_s:
            message = f"about {ahead_s:.3g} s of work wait before the request, at most {limit_s:g} s may"
            return self.overloaded(message, "queue_seconds", room_in_s=ahead_s - limit_s)
        if deadline is None or not finish_s:
            return None
        needed_s, left_s = finish_s * (1 + MARGIN), deadline - now
        if needed_s <= left_s:
            return None
        message = f"the answer would take about {finish_s:.3g} s"
        message = f"{message}, the deadline is {max(0.0, left_s):.3g} s away"
        return self.overloaded(message, "deadline_unattainable", room_in_s=needed_s - left_s)

    def admit_stream(self, caller: Caller = ANYBODY) -> "Reservation":
        """Return a reservation for one stream, whose texts take theirs from it; a full token budget does not refuse it.

        Raises:
            Unavailable: it is closed.
            Overloaded: as many streams as allowed are inside, and the caller has its share of them.
        """
        if self._refusal is not None:
            raise self._refusal()
        limit, streams = self.limits.max_streams, self.streams
        if self.is_full(streams, 1, self._streams[caller.identity], limit, caller, of_streams=True):
            raise self.overloaded(f"{streams} streams are open, at most {limit} may be", "streams")
        return Reservation(self, caller, "stream")

    def admit_part(self, caller: Caller, on_room: Callable[[], None] | None = None) -> "Reservation":
        """Return a reservation for one text of a stream, or a part of a request, that was admitted.

        Args:
            on_room: called once there is room for everything that it asks for, before that goes to an engine.
        """
        return Reservation(self, caller, "part", on_room)

    def enter(self, caller: Caller, kind: Kind) -> _Held:
        """Count a reservation in, for that reservation; return what its caller holds."""
        if kind == "stream":
            self._streams[caller.identity] += 1
            return _Held()
        held = self._held.get(caller.identity)
        if held is None:
            held = self._held[caller.identity] = _Held()
        if kind == "request":
            held.requests += 1
            self._requests += 1
        else:
            held.parts += 1
        return held

    def leave(self, caller: Caller, kind: Kind, held: _Held, *, was_refused: bool) -> None:
        """Count a reservation out, for that reservation."""
        if kind == "stream":
            self._streams[caller.identity] -= 1
            if not self._streams[caller.identity]:
                del self._streams[caller.identity]
        else:
            if kind == "request":
                held.requests -= 1
                self._requests -= 1
            else:
                held.parts -= 1
            if held.requests == held.parts == 0:
                del self._held[caller.identity]
        if not was_refused and self._on_leave is not None:
            self._on_leave()
        if not self._requests and not self._streams and self._on_empty is not None:
            self._on_empty()

    def is_full(self, used: int, count: int, own: int, limit: int, caller: Caller, *, of_streams: bool = False) -> bool:
        """Whether there is no room for `count` more, for a caller that holds `own` of the `used`."""
        if used + count <= limit:
            return False
        holders: Collection[Identity] = self._streams if of_streams else self._held
        num_sharing = len(holders) + (caller.identity not in holders)
        return own + count > limit / num_sharing or used + count > RESERVE * limit

    def overloaded(self, message: str, reason: str, *, room_in_s: float | None = None) -> Overloaded:
        """Return the error of a refusal, with the time after which another try is worth it."""
        usual_s = self.limits.retry_after_s
        retry_after_s = usual_s if room_in_s is None else min(max(room_in_s, MIN_RETRY_S), MAX_RETRIES * usual_s)
        return Overloaded(message, reason=reason, retry_after_s=retry_after_s)


class Reservation:
    """One request's place inside; a context manager that releases it."""

    def __init__(
        self, admission: Admission, caller: Caller, kind: Kind, on_room: Callable[[], None] | None = None
    ) -> None:
        self.caller = caller
        self.kind = kind
        self.on_room = on_room
        self._admission = admission
        self._on_release: Callable[[], None] | None = None
        self.characters = 0  # that the request holds
        self._tokens = 0
        self._held = admission.enter(caller, kind)  # by all reservations of the caller
        self._was_refused = False
        self._is_released = False

    @property
    def is_of_stream(self) -> bool:
        """Whether it is that of a stream, each of whose texts gets a reservation when there is room for it."""
        return self.kind == "stream"

    def part(self) -> "Reservation":
        """Return a reservation for one text of a stream, or a part of a request, that holds this one.

        It is released before this one, and no request itself.
        """
        return self._admission.admit_part(self.caller)

    def on_release(self, call: Callable[[], None]) -> None:
        """Have `call` called when the reservation is released."""
        self._on_release = call

    def take_characters(self, count: int) -> None:
        """Add `count` characters to what the request holds, before they cost anything.

        Raises:
            Overloaded: they, or the tokens that they are likely to make, do not fit; nothing was added.
        """
        assert not self._is_released, "the reservation was released"
        admission, held, max_tokens = self._admission, self._held, self._admission.limits.max_queued_tokens
        limit = CHARACTERS_PER_TOKEN * max_tokens
        used = max(admission.characters, CHARACTERS_PER_TOKEN * admission.tokens)
        own = max(held.characters, CHARACTERS_PER_TOKEN * held.tokens)
        if used > 0 and admission.is_full(used, count, own, limit, self.caller):
            raise self._refused(
                f"{admission.characters} characters, {admission.tokens} source tokens wait or run and the request has "
                f"{count} characters, at most {limit} characters, {max_tokens} tokens may",
                "token_budget",
            )
        admission.characters += count
        held.characters += count
        self.characters += count

    def take_tokens(self, count: int, *, is_continuation: bool = False) -> None:
        """Add `count` source tokens to what the request holds.

        Args:
            count: of source tokens.
            is_continuation: whether they belong to work that was let in before, which is not refused any more.

        Raises:
            Overloaded: they do not fit; the request holds what it held before.
        """
        assert not self._is_released, "the reservation was released"
        admission, held = self._admission, self._held
        if not is_continuation:  # a request larger than a whole budget still gets through when it is alone in it
            limit, own_limit = admission.limits.max_queued_tokens, self.caller.max_queued_tokens
            used, own = admission.tokens, held.tokens
            if used > 0 and admission.is_full(used, count, own, limit, self.caller):
                message = f"{used} source tokens wait or run and the request has {count}, at most {limit} may"
                raise self._refused(message, "token_budget")
            if own_limit is not None and own > 0 and own + count > own_limit:
                message = f"{own} of your source tokens wait or run and the request has {count}"
                raise self._refused(f"{message}, at most {own_limit} may", "client_budget")
        admission.tokens += count
        held.tokens += count
        self._tokens += count

    def check(self, ahead_s: float, finish_s: float, *, now: float, deadline: float | None) -> None:
        """Refuse a request that would wait too long, or be too late; it holds what it held before.

        Args:
            ahead_s: of work that goes before it.
            finish_s: until its last sentence is done; 0 before enough was measured.

        Raises:
            Overloaded: reason "queue_seconds" or "deadline_unattainable"; says when there may be room.
        """
        if (refusal := self._admission.late(ahead_s, finish_s, now=now, deadline=deadline)) is not None:
            self._was_refused = True
            raise refusal

    def got_room(self) -> None:
        """Note that what it asks for is not refused any more."""
        if self.on_room is not None:
            self.on_room()

    def release(self) -> None:
        """Give everything back; a second call does nothing."""
        if self._is_released:
            return
        self._is_released = True
        admission, held = self._admission, self._held
        admission.characters -= self.characters
        held.characters -= self.characters
        admission.tokens -= self._tokens
        held.tokens -= self._tokens
        admission.leave(self.caller, self.kind, held, was_refused=self._was_refused)
        if self._on_release is not None:
            self._on_release()

    def _refused(self, message: str, reason: str) -> Overloaded:
        self._was_refused = True
        return self._admission.overloaded(message, reason)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
