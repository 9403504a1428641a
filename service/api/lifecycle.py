"""The lifecycle of a call, whatever its protocol.

    begin           makes the record of the call and counts it in
    admit           says whose key it is made with, and refuses what the server has no room for
    fail, left      note why it has no answer: an error, or a caller that has gone
    end             accounts for it: in the metrics, in the log if it was slow, in a trace where traces are wanted

Knows no protocol: each protocol says where a call comes from and what came with it, and turns errors into its own.
"""

import asyncio
import re
import time
from collections.abc import Callable, Sequence
from random import Random
from typing import TypeAlias

from service.api.auth import KEY_HEADERS, Authenticator, Metadata
from service.call import PHASES, Call, Caller
from service.errors import DeadlineExceeded, DragomanError, InternalError, Overloaded, Unavailable
from service.telemetry.families import OTHER
from service.telemetry.logs import LogLimit, current_call, describe_error, get_logger
from service.telemetry.metrics import Metrics

REQUEST_ID_KEY = "x-request-id"
WARNINGS_KEY = "x-translation-warnings"
TRACE_KEYS = frozenset({"traceparent", "tracestate"})  # www.w3.org/TR/trace-context
SLOW_CALLS_LOGGED, SLOW_CALLS_S = 20, 20.0  # lines in so many seconds: what a reader of the log can take
REFUSALS_LOGGED = 10  # callers without a good key, a minute: anybody can make more of them than a disk holds
_VALID_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")

CallObserver: TypeAlias = Callable[[Call], None]  # told of each call that has ended; holds numbers and names, no texts
Refuse: TypeAlias = Callable[[Caller, float], DragomanError | None]  # with the deadline as time.monotonic()

_random = Random()


class CallLifecycle:
    """The calls of one process, whatever their protocol."""

    def __init__(
        self,
        metrics: Metrics,
        *,
        authenticator: Authenticator | None = None,
        refuse: Refuse | None = None,
        observers: Sequence[CallObserver] = (),
        slow_s: float | None = None,
    ) -> None:
        """Begin with no call.

        Args:
            authenticator: None for one that lets everybody call.
            refuse: asked before a call is worked for; None, or why this caller's call is refused.
            observers: told of each call that has ended, after it was counted.
            slow_s: calls that take longer are logged; None: none are.
        """
        self.calls: set[Call] = set()  # in progress
        self._metrics = metrics
        self._authenticator = authenticator or Authenticator()
        self._refuse = refuse
        self._observers = observers
        self._slow_s = slow_s
        self._slow_calls = LogLimit(max_lines=SLOW_CALLS_LOGGED, period_s=SLOW_CALLS_S)
        self._refusals = LogLimit(max_lines=REFUSALS_LOGGED, period_s=60.0)

    def begin(
        self, method: str, peer: str, metadata: Metadata, *, limit_s: float, remaining_s: float | None = None
    ) -> Call:
        """Make the record of a call, and count it in; `end` must follow.

        Args:
            method: as a label.
            peer: gRPC's name of the other end, such as "ipv4:10.0.0.7:41234".
            metadata: what came beside the request; names in lower case.
            limit_s: the longest that the server lets the call take.
            remaining_s: until the caller's own deadline; None: it has none.
        """
        now = time.monotonic()
        is_limit_ours = remaining_s is None or remaining_s > limit_s
        call = Call(
            method=method,
            request_id=_request_id(metadata),
            caller=self._authenticator.caller_at(peer, metadata),
            trace_headers=_trace_headers(metadata) if self._observers else {},
            started=now,
            deadline=now + (limit_s if remaining_s is None else min(limit_s, remaining_s)),
            limit_s=limit_s if is_limit_ours else None,
        )
        return self._counted_in(call)

    def begin_after(self, call: Call, method: str, *, limit_s: float) -> Call:
        """Make the record of work that goes on for the caller of a call that has its answer, and count it in."""
        now = time.monotonic()
        own = Call(
            method=method,
            request_id=call.request_id,
            caller=call.caller,
            models=call.models,
            trace_headers=call.trace_headers,
            started=now,
            deadline=now + limit_s,
            limit_s=limit_s,
        )
        return self._counted_in(own)

    def _counted_in(self, call: Call) -> Call:
        current_call.set(call)
        self._metrics.call_received(call.method)
        self.calls.add(call)
        return call

    def admit(self, method: str, metadata: Metadata, call: Call, *, is_work: bool, needs_key: bool = True) -> None:
        """Note whose key the call is made with, or raise why it may not be made.

        Args:
            method: the one that the key has to be good for.
            is_work: whether the models work for it, so that it is refused when they have too much.
            needs_key: whether a caller without a key is refused where there are keys; a bad key always is.
        """
        if needs_key or any(name in KEY_HEADERS for name, _ in metadata):
            self._authenticate(method, metadata, call)
        if is_work and self._refuse is not None and (refusal := self._refuse(call.caller, call.deadline)) is not None:
            raise refusal

    def _authenticate(self, method: str, metadata: Metadata, call: Call) -> None:
        try:
            key = self._authenticator.authenticate(method, metadata)
        except DragomanError as error:
            left_out = self._refusals.take()
            if left_out is not None:
                event = {"code": error.code, "reason": str(error), "client": call.caller.name}
                get_logger().warning("call_refused", **event, left_out=left_out)
            raise
        if key is not None:
            call.caller, call.models = key.caller, key.models

    def left(self, call: Call) -> None:
        """Note that the caller has gone without an answer."""
        call.code = "DEADLINE_EXCEEDED" if call.is_late(time.monotonic()) else "CANCELLED"

    def fail(self, error: BaseException, call: Call) -> DragomanError:
        """Return what the caller is told of an error, and note its code and why the call was refused."""
        domain_error = _to_domain_error(error, call)
        is_over_limit = call.limit_s is not None and call.is_late(time.monotonic())
        if isinstance(domain_error, DeadlineExceeded) and is_over_limit:
            message = f"the call took longer than {call.limit_s:g} s, the most this server allows"
            domain_error = DeadlineExceeded(message)
        if isinstance(domain_error, Overloaded | Unavailable) and domain_error.reason:
            self._metrics.rejected(domain_error.reason)
        call.code = domain_error.code
        return domain_error

    def end(self, call: Call) -> None:
        """Account for a call that has ended, with the code that it notes."""
        self.calls.discard(call)
        call.duration_s = time.monotonic() - call.started
        priority = call.priority.label if call.priority is not None else ""
        model = OTHER if call.has_several_models else call.model
        self._metrics.call_answered(call.method, model, call.code, call.duration_s, priority=priority)
        if self._slow_s is not None and call.duration_s > self._slow_s and call.has_phases:
            self._log_slow(call)
        for observer in self._observers:
            try:
                observer(call)
            except Exception as error:  # noqa: BLE001 - an observer must not disturb the call
                get_logger().error("observer_failed", **describe_error(error))

    def _log_slow(self, call: Call) -> None:
        """Log a call that took long, with where the time went; streams, which may last, have no phases."""
        self._metrics.families.slow_requests.inc()
        left_out = self._slow_calls.take()
        if left_out is None:
            return
        get_logger().warning(
            "slow_request",
            request_id=call.request_id,
            method=call.method,
            model=call.model,
            client=call.caller.name,
            client_source=call.caller.source,
            code=call.code,
            duration_ms=round(call.duration_s * 1e3, 1),
            **{f"{name}_ms": round(getattr(call, f"{name}_s") * 1e3, 1) for name in PHASES},
            last_phase=call.phase,
            texts=call.texts,
            finished_texts=call.finished_texts,
            source_tokens=call.source_tokens,
            target_tokens=call.target_tokens,
            left_out=left_out,
        )


def _request_id(metadata: Metadata) -> str:
    """Return the caller's id if it sent a valid one, else a new one."""
    for key, value in metadata:
        if key == REQUEST_ID_KEY and isinstance(value, str) and _VALID_REQUEST_ID.fullmatch(value):
            return value
    return f"{_random.getrandbits(128):032x}"


def _trace_headers(metadata: Metadata) -> dict[str, str]:
    return {key: value for key, value in metadata if key in TRACE_KEYS and isinstance(value, str)}


def _to_domain_error(error: BaseException, call: Call) -> DragomanError:
    if isinstance(error, DragomanError):
        return error
    if isinstance(error, asyncio.CancelledError):
        return Unavailable("the server is stopping")
    if isinstance(error, TimeoutError) and call.is_late(time.monotonic()):
        return DeadlineExceeded("the deadline passed")
    get_logger().error("call_failed", **describe_error(error))
    return InternalError(f"internal error; the server's log has it under request id {call.request_id}")
