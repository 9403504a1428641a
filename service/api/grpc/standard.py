"""What every gRPC server has: grpc.health.v1, and grpc.reflection in version 1 and version 1 alpha.

grpcio-health-checking brings the messages, but its servicer has no List and its Watch cannot be told apart from a leak.

The two versions of reflection have the same messages under two package names, and the same bytes on the wire;
grpcio-reflection has version 1 alpha's servicer, which therefore answers for both, from a pool that holds what this
server serves and nothing else.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2
from grpc_reflection.v1alpha.reflection import aio as reflection_aio

from protos import admin_pb2, google_translation_pb2, open_inference_pb2, translation_pb2
from service.api.grpc.handlers import Handler, stream
from service.errors import InvalidInput, NotFound

HEALTH = health_pb2.DESCRIPTOR.services_by_name["Health"]
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
        """Give all services one status, which is NOT_SERVING once draining."""
        async with self._changed:
            self._is_serving = dict.fromkeys(self._is_serving, is_serving and not self._is_draining)
            self._changed.notify_all()

    async def drain(self) -> None:
        """Say NOT_SERVING from now on."""
        self._is_draining = True
        await self.set_serving(False)

    async def check(self, request: CheckRequest, context: object) -> Status:
        """Return the status of one service, or raise NotFound."""
        if request.service not in self._is_serving:
            raise NotFound(f"there is no service {request.service[:80]!a}")
        return self._response(request.service)

    async def watch(self, requests: AsyncIterator[CheckRequest], context: object) -> AsyncIterator[Status]:
        """Yield the status of one service now, and again at each change; SERVICE_UNKNOWN where there is none."""
        request = await anext(requests, None)
        if request is None:
            raise InvalidInput("the call came without a message", field="")
        response = self._response(request.service)
        while True:
            yield response
            response = await self._next_change(request.service, response)

    async def list(self, request: object, context: object) -> object:
        """Return the status of every service."""
        return _pb.HealthListResponse(statuses={name: self._response(name) for name in self._is_serving})

    async def _next_change(self, service: str, last: Status) -> Status:
        async with self._changed:
            await self._changed.wait_for(lambda: self._response(service) != last)
            return self._response(service)

    def _response(self, service: str) -> Status:
        is_serving = self._is_serving.get(service)
        return Status(status=Status.SERVICE_UNKNOWN if is_serving is None else _STATUS_OF[is_serving])


V1, V1ALPHA = "grpc.reflection.v1", "grpc.reflection.v1alpha"
REFLECTION = (f"{V1}.ServerReflection", f"{V1ALPHA}.ServerReflection")

# What the two ports serve: each describes nothing but its own services.
DATA_FILES = (
    translation_pb2.DESCRIPTOR,
    google_translation_pb2.DESCRIPTOR,
    open_inference_pb2.DESCRIPTOR,
    health_pb2.DESCRIPTOR,
)
ADMIN_FILES = (admin_pb2.DESCRIPTOR,)


class _Pool:
    """What the servicer asks a pool for, with methods among the symbols: grpcurl asks for them, protobuf finds none."""

    def __init__(self, pool: DescriptorPool) -> None:
        self.FindFileByName = pool.FindFileByName
        self.FindMessageTypeByName = pool.FindMessageTypeByName
        self.FindExtensionByNumber = pool.FindExtensionByNumber
        self.FindAllExtensions = pool.FindAllExtensions
        self._pool = pool

    def FindFileContainingSymbol(self, symbol: str) -> Any:  # noqa: N802 - as it is called there
        """Return the descriptor of the file with this symbol, or raise KeyError."""
        try:
            return self._pool.FindFileContainingSymbol(symbol)
        except KeyError:
            return self._pool.FindMethodByName(symbol).containing_service.file


def reflection_handlers(services: Sequence[str], *, files: Sequence[Any] = DATA_FILES) -> dict[str, Handler]:
    """Return the handlers of both versions of reflection, by their methods' full names.

    Args:
        files: the descriptors of the files that describe the services.
    """
    pool = DescriptorPool()
    for file in (*files, reflection_pb2.DESCRIPTOR):
        pool.AddSerializedFile(file.serialized_pb)
    pool.AddSerializedFile(_v1_file().SerializeToString())
    servicer: Any = reflection_aio.ReflectionServicer((*services, *REFLECTION), pool=_Pool(pool))
    handler = stream(servicer.ServerReflectionInfo, reflection_pb2.ServerReflectionRequest)
    return {f"{name}/ServerReflectionInfo": handler for name in REFLECTION}


def _v1_file() -> FileDescriptorProto:
    """The description of version 1: version 1 alpha's under another package."""
    file = FileDescriptorProto.FromString(reflection_pb2.DESCRIPTOR.serialized_pb)
    file.name, file.package = "grpc/reflection/v1/reflection.proto", V1
    for field in (field for message in file.message_type for field in message.field if field.type_name):
        field.type_name = field.type_name.replace(V1ALPHA, V1)
    for method in file.service[0].method:
        method.input_type = method.input_type.replace(V1ALPHA, V1)
        method.output_type = method.output_type.replace(V1ALPHA, V1)
    file.ClearField("options")
    return file
