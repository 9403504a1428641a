"""grpc.reflection.v1 and v1alpha, so that grpcurl and the like can ask what the server offers.

The two versions have the same messages under two package names, and the same bytes on the wire; grpcio-reflection has
v1alpha's servicer, which therefore answers for both, from a pool that holds what this server serves and nothing else.
"""

from collections.abc import Sequence
from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2
from grpc_reflection.v1alpha.reflection import aio as reflection_aio

from protos import admin_pb2, google_translation_pb2, open_inference_pb2, translation_pb2
from service.api.grpc.calls import Handler, stream

V1, V1ALPHA = "grpc.reflection.v1", "grpc.reflection.v1alpha"
SERVICE_NAMES = (f"{V1}.ServerReflection", f"{V1ALPHA}.ServerReflection")

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


def handlers(services: Sequence[str], *, files: Sequence[Any] = DATA_FILES) -> dict[str, Handler]:
    """Return the handlers of both versions, by their methods' full names.

    Args:
        files: the descriptors of the files that describe the services.
    """
    pool = DescriptorPool()
    for file in (*files, reflection_pb2.DESCRIPTOR):
        pool.AddSerializedFile(file.serialized_pb)
    pool.AddSerializedFile(_v1_file().SerializeToString())
    servicer: Any = reflection_aio.ReflectionServicer((*services, *SERVICE_NAMES), pool=_Pool(pool))
    handler = stream(servicer.ServerReflectionInfo, reflection_pb2.ServerReflectionRequest)
    return {f"{name}/ServerReflectionInfo": handler for name in SERVICE_NAMES}


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
