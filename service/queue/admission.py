"""Says yes or no to a request before it costs anything, and counts what was let in.

Pure and synchronous; knows neither gRPC nor engines.  Counts are exact: whatever a permit took it gives back once, when
it is released.  Where room is short, who holds less than an equal share of it still gets in.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Literal, Self

from service.config import LimitsConfig
from service.errors import DeadlineExceeded, InvalidInput, Overloaded, Unavailable
from service.queue.callers import ANYBODY, Caller, Identity
from service.queue.job_queue import Forecast

# Texts wait to be tokenised and are kept until they are answered; languages have about 4 characters per token.
CHARACTERS_PER_TOKEN = 8
# A limit of the server is twice this large for those who hold less than their share of it.
RESERVE = 2
MARGIN = 0.1  # an estimate is taken for so much longer before a request is refused for it
MIN_RETRY_S = 0.1
MAX_RETRIES = 10  # times `limits.retry_after_s`: the longest wait that an estimate can ask for


@dataclass(slots=True)
class _Holding:
    """What one client has inside, its streams left out: one without a text takes nothing from others."""

    requests: int = 0
    parts: int = 0  # texts of streams
    characters: int = 0
    tokens: int = 0


Kind = Literal["request", "stream", "part"]  # of permits; a part is one text of a stream


class Admission:
    """The door: everything that is inside holds a `Permit`."""

    def __init__(
        self,
        limits: LimitsConfig,
        *,
        on_empty: Callable[[], None] = lambda: None,
        on_leave: Callable[[], None] = lambda: None,
    ) -> None:
        """An open door.

        Args:
            on_empty: called whenever the last permit comes back.
            on_leave: called whenever a permit comes back that was not refused anything.  (What was refused holds too
                little to matter to others, and who waits for room would wake itself by being refused.)
        """
        self._limits = limits
        self._on_empty = on_empty
        self._on_leave = on_leave
        self._refusal: Callable[[], Unavailable] | None = None
        self._holdings: dict[Identity, _Holding] = {}  # of clients that hold a permit of a request or a part
        self._streams: Counter[Identity] = Counter()  # of clients that have streams
        self.requests = 0  # permits out, those of streams among them
        self.streams = 0
        self.characters = 0  # taken by them
        self.tokens = 0  # source tokens taken by them

    def close(self, why: str, *, reason: str = "draining") -> None:
        """Refuse every later request with Unavailable(why), counted as `reason`; who is inside stays."""
        self._refusal = partial(Unavailable, why, reason=reason)

    def open(self) -> None:
        """Let requests in again."""
        self._refusal = None

    def admit(self, num_texts: int, *, now: float, deadline: float | None = None, caller: Caller = ANYBODY) -> "Permit":
        """A permit for one request; release it when the request is answered.

        Args:
            num_texts: texts in the request.
            now: time.monotonic().
            deadline: on the same clock; None for none.
            client: who asks.

        Raises:
            Unavailable: the door is closed.
            InvalidInput: no texts, or too many.
            DeadlineExceeded: nobody waits for the answer any more.
            Overloaded: as many requests, or as many source tokens, as allowed are inside.
        """
        if self._refusal is not None:
            raise self._refusal()
        self._check_num_texts(num_texts)
        if deadline is not None and deadline <= now:
            raise DeadlineExceeded("the deadline had passed when the request arrived")
        held = self._holdings.get(caller.identity, _Holding())
        requests = self.requests - self.streams
        if self._is_full(requests, 1, held.requests, self._limits.max_concurrent_requests, caller):
            limit = self._limits.max_concurrent_requests
            raise self._overloaded(f"{requests} requests are being served, at most {limit} are", "queue_full")
        if self._is_full(self.tokens, 1, held.tokens, self._limits.max_queued_tokens, caller):
            limit = self._limits.max_queued_tokens
            raise self._overloaded(f"{self.tokens} source tokens wait or run, at most {limit} may", "token_budget")
        if caller.max_queued_tokens is not None and held.tokens >= caller.max_queued_tokens:
            raise self._over_budget(f"{held.tokens} of your source tokens wait or run", caller.max_queued_tokens)
        self._holdings.setdefault(caller.identity, held).requests += 1
        self.requests += 1
        return Permit(self, caller)

    def admit_stream(self, caller: Caller = ANYBODY) -> "Permit":
        """A permit for one stream, whose texts take theirs from it (`Permit.part`); a full budget does not refuse it.

        Raises:
            Unavailable: the door is closed.
            Overloaded: as many streams as allowed are inside, and the client has its share of them.
        """
        if self._refusal is not None:
            raise self._refusal()
        limit, own = self._limits.max_streams, self._streams[caller.identity]
        if _is_full(self.streams, 1, own, limit, _num_clients(self._streams, caller)):
            raise self._overloaded(f"{self.streams} streams are open, at most {limit} may be", "streams")
        self._streams[caller.identity] += 1
        self.requests += 1
        self.streams += 1
        return Permit(self, caller, "stream")

    def admit_part(self, caller: Caller) -> "Permit":
        """A permit for one text of a stream that is inside."""
        self._holdings.setdefault(caller.identity, _Holding()).parts += 1
        return Permit(self, caller, "part")

    def check(self, forecast: Forecast, *, now: float, deadline: float | None) -> None:
        """Refuse what would wait too long, or would be too late; for a permit.

        Raises:
            Overloaded: reason "queue_seconds" or "deadline_unattainable"; says when there may be room.
        """
        limit_s = self._limits.max_queue_seconds
        if forecast.ahead_s > limit_s:
            message = f"about {forecast.ahead_s:.3g} s of work go before the request, at most {limit_s:g} s may"
            raise self._overloaded(message, "queue_seconds", room_in_s=forecast.ahead_s - limit_s)
        if deadline is None or not forecast.finish_s:
            return
        needed_s, left_s = forecast.finish_s * (1 + MARGIN), deadline - now
        if needed_s > left_s:
            message = (
                f"the answer would take about {forecast.finish_s:.3g} s, the deadline is {max(0.0, left_s):.3g} s away"
            )
            raise self._overloaded(message, "deadline_unattainable", room_in_s=needed_s - left_s)

    def leave(self, caller: Caller, characters: int, tokens: int, kind: Kind, *, was_refused: bool) -> None:
        """Count a request, its characters and its tokens out, for a permit."""
        if kind == "stream":
            self._stream_left(caller)
        else:
            self._work_left(caller, characters, tokens, kind)
        self.requests -= kind != "part"
        self.streams -= kind == "stream"
        self.characters -= characters
        self.tokens -= tokens
        if not was_refused:
            self._on_leave()
        if self.requests == 0:
            self._on_empty()

    def _stream_left(self, caller: Caller) -> None:
        self._streams[caller.identity] -= 1
        if not self._streams[caller.identity]:
            del self._streams[caller.identity]

    def _work_left(self, caller: Caller, characters: int, tokens: int, kind: Kind) -> None:
        held = self._holdings[caller.identity]
        held.requests -= kind == "request"
        held.parts -= kind == "part"
        held.characters -= characters
        held.tokens -= tokens
        if held.requests == held.parts == 0:
            del self._holdings[caller.identity]

    def _check_num_texts(self, num_texts: int) -> None:
        limit = self._limits.max_texts
        if num_texts < 1:
            raise InvalidInput(f"texts has 0 entries, from 1 to {limit} are accepted", field="texts")
        if num_texts > limit:
            raise InvalidInput(f"texts has {num_texts} entries, from 1 to {limit} are accepted", field="texts")

    def take_characters(self, caller: Caller, count: int) -> None:
        """Count characters in, for a permit; raises Overloaded when they, or the tokens they make, do not fit."""
        limit = CHARACTERS_PER_TOKEN * self._limits.max_queued_tokens
        held = self._holdings[caller.identity]
        used, own = (max(each.characters, CHARACTERS_PER_TOKEN * each.tokens) for each in (self, held))
        if used > 0 and self._is_full(used, count, own, limit, caller):
            raise self._overloaded(
                f"{self.characters} characters, {self.tokens} source tokens wait or run and the request has {count} "
                f"characters, at most {limit} characters, {self._limits.max_queued_tokens} tokens may",
                "token_budget",
            )
        held.characters += count
        self.characters += count

    def take_tokens(self, caller: Caller, count: int) -> None:
        """Count tokens in, for a permit; raises Overloaded when they do not fit."""
        # A request larger than a whole budget still gets through when it is alone in it.
        limit = self._limits.max_queued_tokens
        held = self._holdings[caller.identity]
        if self.tokens > 0 and self._is_full(self.tokens, count, held.tokens, limit, caller):
            raise self._overloaded(
                f"{self.tokens} source tokens wait or run and the request has {count}, at most {limit} may",
                "token_budget",
            )
        own_limit = caller.max_queued_tokens
        if own_limit is not None and held.tokens > 0 and held.tokens + count > own_limit:
            message = f"{held.tokens} of your source tokens wait or run and the request has {count}"
            raise self._over_budget(message, own_limit)
        held.tokens += count
        self.tokens += count

    def _is_full(self, used: int, count: int, own: int, limit: int, caller: Caller) -> bool:
        """Whether there is no room for `count` more, for a client that holds `own` of the `used`."""
        return _is_full(used, count, own, limit, _num_clients(self._holdings, caller))

    def _over_budget(self, message: str, limit: int) -> Overloaded:
        return self._overloaded(f"{message}, at most {limit} may", "client_budget")

    def _overloaded(self, message: str, reason: str, *, room_in_s: float | None = None) -> Overloaded:
        usual_s = self._limits.retry_after_s
        retry_after_s = usual_s if room_in_s is None else min(max(room_in_s, MIN_RETRY_S), MAX_RETRIES * usual_s)
        return Overloaded(message, reason=reason, retry_after_s=retry_after_s)


class Permit:
    """One request's place inside; a context manager that releases it."""

    def __init__(self, admission: Admission, caller: Caller, kind: Kind = "request") -> None:
        self.caller = caller
        self._admission = admission
        self._kind = kind
        self._characters = 0
        self._tokens = 0
        self._was_refused = False
        self._is_released = False

    def take_characters(self, count: int) -> None:
        """Add `count` characters to what the request holds, before they cost anything.

        Raises:
            Overloaded: they, or the tokens that they are likely to make, do not fit; nothing was added.
        """
        assert not self._is_released, "the permit was released"
        with self._refusable():
            self._admission.take_characters(self.caller, count)
        self._characters += count

    def take_tokens(self, count: int) -> None:
        """Add `count` source tokens to what the request holds.

        Raises:
            Overloaded: they do not fit; the request holds what it held before.
        """
        assert not self._is_released, "the permit was released"
        with self._refusable():
            self._admission.take_tokens(self.caller, count)
        self._tokens += count

    def check(self, forecast: Forecast, *, now: float, deadline: float | None) -> None:
        """As `Admission.check`; the request holds what it held before."""
        with self._refusable():
            self._admission.check(forecast, now=now, deadline=deadline)

    def part(self) -> "Permit":
        """A permit for one text of the stream that holds this one; released before it, and no request of its own."""
        return self._admission.admit_part(self.caller)

    def release(self) -> None:
        """Give everything back; a second call does nothing."""
        if self._is_released:
            return
        self._is_released = True
        self._admission.leave(self.caller, self._characters, self._tokens, self._kind, was_refused=self._was_refused)

    @contextmanager
    def _refusable(self) -> Iterator[None]:
        try:
            yield
        except Overloaded:
            self._was_refused = True
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def _num_clients(holders: Collection[Identity], caller: Caller) -> int:
    """How many share what the holders have a part of, with this client."""
    return len(holders) + (caller.identity not in holders)


def _is_full(used: int, count: int, own: int, limit: int, num_clients: int) -> bool:
    """Whether there is no room for `count` more for one of the clients, which holds `own` of the `used`."""
    if used + count <= limit:
        return False
    return own + count > limit / num_clients or used + count > RESERVE * limit
