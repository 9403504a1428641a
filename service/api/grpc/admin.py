"""dragoman.admin.v1.AdminService: the status of the server, a reload of its models, the level of its log.

It has an address of its own, which only operators reach.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import asdict
from typing import Any

from protos import admin_pb2 as pb
from service.call import Call
from service.errors import DragomanError, FailedPrecondition, InvalidInput
from service.models.registry import ModelChange, Refusal, Result
from service.models.reloader import Reloader
from service.models.version import ModelVersion
from service.telemetry.logs import describe_error, get_logger

SERVICE = pb.DESCRIPTOR.services_by_name["AdminService"]
DEFAULT_MAX_REQUESTS = 100


class AdminServicer:
    """Answers the service's three methods."""

    def __init__(
        self,
        read: Callable[[int], Awaitable[pb.GetStatusResponse]],
        set_log_level: Callable[[str], str],
        reloader: Reloader,
    ) -> None:
        """Reload nothing yet.

        Args:
            read: returns the status with so many requests listed, as `encode_status`.
            set_log_level: returns the level before, or raises ValueError.
        """
        self._read = read
        self._set_log_level = set_log_level
        self._reloader = reloader
        self._reloads: set[asyncio.Task[Sequence[ModelChange]]] = set()

    async def get_status(self, request: pb.GetStatusRequest, context: object) -> pb.GetStatusResponse:
        return await self._read(request.max_requests)

    async def reload_models(self, request: pb.ReloadModelsRequest, context: object) -> pb.ReloadModelsResponse:
        """Load what is new, also when the caller leaves; raises FailedPrecondition if a bundle is refused."""
        reload = asyncio.ensure_future(self._reloader.reload(request.model))
        self._reloads.add(reload)
        reload.add_done_callback(self._reloads.discard)
        try:
            changes = await asyncio.shield(reload)
        except asyncio.CancelledError:  # the caller has left: only the log can tell how it ended
            reload.add_done_callback(_log_failure)
            raise
        refused = [f"{one.name} {one.version}: {one.reason}" for one in changes if one.result is Result.REFUSED]
        if refused:
            raise FailedPrecondition(f"{len(refused)} refused: {'; '.join(refused)}")
        return pb.ReloadModelsResponse(
            changes=[
                pb.ModelChange(name=change.name, version=change.version, result=change.result, reason=change.reason)
                for change in changes
            ]
        )

    async def set_log_level(self, request: pb.SetLogLevelRequest, context: object) -> pb.SetLogLevelResponse:
        try:
            previous = self._set_log_level(request.level)
        except ValueError as error:
            raise InvalidInput(str(error), field="level") from error
        get_logger().warning("log_level_changed", log_level=request.level, previous=previous)
        return pb.SetLogLevelResponse(previous=previous)


def _log_failure(reload: "asyncio.Task[Sequence[ModelChange]]") -> None:
    error = None if reload.cancelled() else reload.exception()
    if isinstance(error, DragomanError):
        get_logger().error("reload_failed", reason=str(error))
    elif error is not None:
        get_logger().error("reload_failed", **describe_error(error))


def encode_status(
    versions: Iterable[ModelVersion],
    refusals: Iterable[Refusal],
    calls: Collection[Call],
    *,
    now: float,
    max_requests: int,
    num_requests: int,
    **facts: Any,
) -> pb.GetStatusResponse:
    """Return the message at the time `now`; it lists the oldest requests, and 0 means the default number of them."""
    oldest = sorted(calls, key=lambda call: call.started)[: max_requests or DEFAULT_MAX_REQUESTS]
    return pb.GetStatusResponse(
        models=[*(_encode_version(one, now) for one in versions), *map(_encode_refusal, refusals)],
        requests=[_encode_call(call, now) for call in oldest],
        num_requests=num_requests,
        **facts,
    )


def _encode_version(model: ModelVersion, now: float) -> pb.ModelStatus:
    info, pool = model.info, model.pool
    return pb.ModelStatus(
        name=info.name,
        version=info.version,
        state=model.state,
        sha256_12=model.sha256_12,
        source_language=info.source_language,
        target_language=info.target_language,
        precision=info.precision,
        device=info.device,
        queued_jobs=pool.queued_jobs,
        queued_tokens=pool.queued_tokens,
        engines=[pb.EngineStatus(**asdict(engine)) for engine in pool.snapshots(now)],
    )


def _encode_refusal(refusal: Refusal) -> pb.ModelStatus:
    candidate = refusal.candidate
    return pb.ModelStatus(
        name=refusal.name,
        version=candidate.version,
        state="refused",
        sha256_12=candidate.manifest_sha256[:12],
        reason=refusal.reason,
    )


def _encode_call(call: Call, now: float) -> pb.RequestStatus:
    return pb.RequestStatus(
        request_id=call.request_id,
        method=call.method,
        model=call.model,
        client=call.caller.name,
        client_source=call.caller.source,
        age_s=now - call.started,
        phase=call.phase,
        texts=call.texts,
        finished_texts=call.finished_texts,
        remaining_s=max(0.0, call.deadline - now),
    )
