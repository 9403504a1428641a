"""A server's state at one moment, and as the message that says so.

Pure; takes copies of what others count and is told the time.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from protos import admin_pb2 as pb
from service.engines.handle import EngineSnapshot
from service.grpc.call import Call
from service.registry.registry import ModelSnapshot

DEFAULT_MAX_REQUESTS = 100

ServerState = Literal["starting", "serving", "degraded", "draining"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSnapshot:
    """Everything that `dragoman status` shows."""

    version: str
    pid: int
    uptime_s: float
    state: ServerState
    models: Sequence[ModelSnapshot]
    calls: Collection[Call]
    admitted_tokens: int
    max_admitted_tokens: int
    queued_work_s: float
    event_loop_lag_s: float
    log_level: str


def to_response(snapshot: ServerSnapshot, now: float, max_requests: int) -> pb.GetStatusResponse:
    """The message for a snapshot.

    Args:
        now: time.monotonic().
        max_requests: that are listed, oldest first; 0 for the default.
    """
    oldest = sorted(snapshot.calls, key=lambda call: call.started)[: max_requests or DEFAULT_MAX_REQUESTS]
    return pb.GetStatusResponse(
        version=snapshot.version,
        pid=snapshot.pid,
        uptime_s=snapshot.uptime_s,
        state=snapshot.state,
        models=[_to_model(model) for model in snapshot.models],
        requests=[_to_request(call, now) for call in oldest],
        num_requests=len(snapshot.calls),
        admitted_tokens=snapshot.admitted_tokens,
        max_admitted_tokens=snapshot.max_admitted_tokens,
        queued_work_s=snapshot.queued_work_s,
        event_loop_lag_s=snapshot.event_loop_lag_s,
        log_level=snapshot.log_level,
    )


def _to_model(model: ModelSnapshot) -> pb.ModelStatus:
    message = pb.ModelStatus(
        name=model.name,
        version=model.version,
        state=model.state,
        sha256_12=model.sha256_12,
        reason=model.reason,
    )
    if model.info is not None:
        for name in ("source_language", "target_language", "precision", "device"):
            setattr(message, name, getattr(model.info, name))
    if model.dispatch is not None:
        message.queued_jobs = model.dispatch.queued_jobs
        message.queued_tokens = model.dispatch.queued_tokens
        message.engines.extend(_to_engine(engine) for engine in model.dispatch.engines)
    return message


def _to_engine(engine: EngineSnapshot) -> pb.EngineStatus:
    return pb.EngineStatus(
        pid=engine.pid or 0,
        state=engine.state,
        jobs=engine.jobs,
        rows=engine.rows,
        max_rows=engine.max_rows,
        restarts=engine.restarts,
        silent_s=engine.silent_s,
    )


def _to_request(call: Call, now: float) -> pb.RequestStatus:
    return pb.RequestStatus(
        request_id=call.request_id,
        method=call.method,
        model=call.model,
        client=call.client.name,
        client_source=call.client.source,
        age_s=now - call.started,
        phase=call.progress.phase,
        texts=call.progress.texts,
        finished_texts=call.progress.finished_texts,
        remaining_s=max(0.0, call.deadline - now),
    )
