"""grpc.health.v1 with Check, Watch and List.

grpcio-health-checking brings the messages, but its servicer has no List and its Watch cannot be told apart from a leak.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2

from service.errors import NotFound
from service.grpc.first_message import MESSAGE_WITHIN_S, FirstMessages
from service.grpc.wire import deserializer

SERVICE_NAME = "grpc.health.v1.Health"
# Methods that bound their number and their time themselves, with the latter in seconds: they answer at once.
OWN_LIMITS = {f"{SERVICE_NAME}/{method}": MESSAGE_WITHIN_S for method in ("Check", "List")}
OVERALL = ""  # the whole server's name

CheckRequest = health_pb2.HealthCheckRequest
Status = health_pb2.HealthCheckResponse
_pb: Any = health_pb2  # the published type stubs do not know List
_STATUS_OF = {True: Status.SERVING, False: Status.NOT_SERVING}


class Health:
    """Whether each service is serving; what it says once it is draining stays."""

    def __init__(self, services: tuple[str, ...]) -> None:
        self._is_serving = dict.fromkeys((OVERALL, *services), False)
        self._is_draining = False
        self._changed = asyncio.Condition()

    async def set_serving(self, is_serving: bool) -> None:
        """Give all services one status; ignored once draining."""
        if not self._is_draining:
            await self._set(is_serving)

    async def drain(self) -> None:
        """Say NOT_SERVING from now on."""
        self._is_draining = True
        await self._set(False)

    async def _set(self, is_serving: bool) -> None:
        async with self._changed:
            self._is_serving = dict.fromkeys(self._is_serving, is_serving)
            self._changed.notify_all()

    async def check(self, request: CheckRequest, context: object) -> Status:
        """The status of one service.

        Raises:
            NotFound: there is no such service.
        """
        if request.service not in self._is_serving:
            raise NotFound(f"there is no service {request.service[:80]!a}")
        return self._response(request.service)

    async def watch(self, request: CheckRequest, context: object) -> AsyncIterator[Status]:
        """The status of one service now, and again at each change; SERVICE_UNKNOWN where there is none."""
        response = self._response(request.service)
        while True:
            yield response
            response = await self._next_change(request.service, response)

    async def list_all(self, request: object, context: object) -> object:
        """The status of every service."""
        return _pb.HealthListResponse(statuses={name: self._response(name) for name in self._is_serving})

    async def _next_change(self, service: str, last: Status) -> Status:
        async with self._changed:
            await self._changed.wait_for(lambda: self._response(service) != last)
            return self._response(service)

    def _response(self, service: str) -> Status:
        is_serving = self._is_serving.get(service)
        return Status(status=Status.SERVICE_UNKNOWN if is_serving is None else _STATUS_OF[is_serving])


def add_to_server(health: Health, server: grpc.aio.Server) -> None:
    """Serve `health` on `server`; its methods need no key, so each is a stream of one message to gRPC."""
    messages, check = FirstMessages(), deserializer(CheckRequest)
    handlers = {
        "Check": grpc.stream_stream_rpc_method_handler(
            messages.answering(health.check), request_deserializer=check, response_serializer=Status.SerializeToString
        ),
        "Watch": grpc.stream_stream_rpc_method_handler(
            messages.streaming(health.watch), request_deserializer=check, response_serializer=Status.SerializeToString
        ),
        "List": grpc.stream_stream_rpc_method_handler(
            messages.answering(health.list_all),
            request_deserializer=deserializer(_pb.HealthListRequest),
            response_serializer=_pb.HealthListResponse.SerializeToString,
        ),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE_NAME, handlers),))
