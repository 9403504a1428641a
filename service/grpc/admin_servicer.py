"""dragoman.admin.v1.AdminService: what the server is doing, its models looked at again, the level of its log.

Served on an address of its own, where only operators reach it.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import grpc
import grpc.aio

from protos import admin_pb2 as pb
from service.errors import DragomanError, FailedPrecondition, InvalidInput
from service.grpc.server_status import ServerSnapshot, to_response
from service.grpc.wire import deserializer
from service.registry.registry import ModelChange, Result
from service.telemetry.logs import describe_error, get_logger, set_log_level

SERVICE_NAME = pb.DESCRIPTOR.services_by_name["AdminService"].full_name
METHODS = frozenset(f"{SERVICE_NAME}/{name}" for name in ("GetStatus", "ReloadModels", "SetLogLevel"))


class Reloader(Protocol):
    """Who looks after the models."""

    async def reload(self, model: str = "") -> Sequence[ModelChange]:
        """Load what is new, of one model or of all; return when every change is made or refused."""
        ...


class AdminServicer:
    """Answers the service's three methods."""

    def __init__(self, read: Callable[[], ServerSnapshot], reloader: Reloader) -> None:
        """An operator's view of a server."""
        self._read = read
        self._reloader = reloader
        self._reloads: set[asyncio.Task[Sequence[ModelChange]]] = set()

    async def get_status(self, request: pb.GetStatusRequest, context: object) -> pb.GetStatusResponse:
        """What the server is doing now."""
        return to_response(self._read(), time.monotonic(), request.max_requests)

    async def reload_models(self, request: pb.ReloadModelsRequest, context: object) -> pb.ReloadModelsResponse:
        """Load what is new; that goes on when the caller leaves.

        Raises:
            FailedPrecondition: a bundle was refused, or there is no repository of models.
        """
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
        return pb.ReloadModelsResponse(changes=[_to_change(change) for change in changes])

    async def set_log_level(self, request: pb.SetLogLevelRequest, context: object) -> pb.SetLogLevelResponse:
        """Change the level of the log."""
        try:
            previous = set_log_level(request.level)
        except ValueError as error:
            raise InvalidInput(str(error), field="level") from error
        get_logger().warning("log_level_changed", level=request.level, previous=previous)
        return pb.SetLogLevelResponse(previous=previous)


def add_to_server(servicer: AdminServicer, server: grpc.aio.Server) -> None:
    """Serve `servicer` on `server`."""
    handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
        "GetStatus": grpc.unary_unary_rpc_method_handler(
            servicer.get_status,
            request_deserializer=deserializer(pb.GetStatusRequest),
            response_serializer=pb.GetStatusResponse.SerializeToString,
        ),
        "ReloadModels": grpc.unary_unary_rpc_method_handler(
            servicer.reload_models,
            request_deserializer=deserializer(pb.ReloadModelsRequest),
            response_serializer=pb.ReloadModelsResponse.SerializeToString,
        ),
        "SetLogLevel": grpc.unary_unary_rpc_method_handler(
            servicer.set_log_level,
            request_deserializer=deserializer(pb.SetLogLevelRequest),
            response_serializer=pb.SetLogLevelResponse.SerializeToString,
        ),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE_NAME, handlers),))


def _log_failure(reload: "asyncio.Task[Sequence[ModelChange]]") -> None:
    error = None if reload.cancelled() else reload.exception()
    if isinstance(error, DragomanError):
        get_logger().error("reload_failed", reason=str(error))
    elif error is not None:
        get_logger().error("reload_failed", **describe_error(error))


def _to_change(change: ModelChange) -> pb.ModelChange:
    return pb.ModelChange(name=change.name, version=change.version, result=change.result, reason=change.reason)
