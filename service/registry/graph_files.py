"""Which files the graphs of a bundle read: all of them must be the bundle's own, with a checksum in its manifest.

An ONNX graph may keep its weights in other files and names them by path; ONNX Runtime reads whatever it is pointed to
below the graph's directory.  Knows of the ONNX format only where such paths stand; runs nothing.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from model.bundle import Bundle, BundleError

# Field numbers of onnx.proto: message -> field -> (number, message or "" for bytes, whether there are many).
_ONNX: dict[str, dict[str, tuple[int, str, bool]]] = {
    "Entry": {"key": (1, "", False), "value": (2, "", False)},
    "Tensor": {"external_data": (13, "Entry", True)},
    "SparseTensor": {"values": (1, "Tensor", False), "indices": (2, "Tensor", False)},
    "Attribute": {
        "t": (5, "Tensor", False),
        "g": (6, "Graph", False),
        "tensors": (10, "Tensor", True),
        "graphs": (11, "Graph", True),
        "sparse_tensor": (22, "SparseTensor", False),
        "sparse_tensors": (23, "SparseTensor", True),
    },
    "Node": {"attribute": (5, "Attribute", True)},
    "Graph": {
        "node": (1, "Node", True),
        "initializer": (5, "Tensor", True),
        "sparse_initializer": (15, "SparseTensor", True),
    },
    "Function": {"node": (7, "Node", True), "attribute_proto": (11, "Attribute", True)},
    "TrainingInfo": {"initialization": (1, "Graph", False), "algorithm": (2, "Graph", False)},
    "Model": {
        "graph": (7, "Graph", False),
        "training_info": (20, "TrainingInfo", True),
        "functions": (25, "Function", True),
    },
}
_PACKAGE = "dragoman.onnx"


def check_graph_files(bundle: Bundle) -> None:
    """Make sure that no graph of the bundle reads a file that its manifest does not list.

    Raises:
        BundleError: one does, or is no ONNX file; names the graph and the path.
    """
    for name in sorted(bundle.manifest.files):
        if name.endswith(".onnx"):
            for location in external_files(bundle.path(name)):
                _check_location(bundle, name, location)


def external_files(graph: Path) -> list[str]:
    """The paths that a graph refers to, as they stand in it.

    Raises:
        BundleError: it is no ONNX file.
    """
    model = _model_class()()
    try:
        model.ParseFromString(graph.read_bytes())
    except DecodeError as error:
        raise BundleError(f"{graph} is not an ONNX file; restore the file or export again") from error
    return sorted({entry.value.decode("utf-8", "replace") for entry in _entries(model) if entry.key == b"location"})


def _check_location(bundle: Bundle, graph: str, location: str) -> None:
    path = PurePosixPath(location)
    where = f"{bundle.path(graph)} keeps weights in {location[:200]!a}"
    if not location or path.is_absolute() or ".." in path.parts or "\\" in location or ":" in location:
        raise BundleError(f"{where}, which is not a path inside the bundle")
    if (PurePosixPath(graph).parent / path).as_posix() not in bundle.manifest.files:
        raise BundleError(f"{where}, which the manifest does not list; export again")


def _entries(message: Any) -> Iterator[Any]:
    """All `external_data` entries below a message."""
    for field, value in message.ListFields():
        children: Iterable[Any] = value if field.is_repeated else (value,)
        if field.name == "external_data":
            yield from children
        elif field.message_type is not None:
            for child in children:
                yield from _entries(child)


def _model_class() -> Any:
    """The message that stands for a whole ONNX file, with nothing in it but the fields above."""
    file = descriptor_pb2.FileDescriptorProto(name="onnx_references.proto", package=_PACKAGE, syntax="proto2")
    for message, fields in _ONNX.items():
        described = file.message_type.add(name=message)
        for name, (number, kind, is_many) in fields.items():
            field = described.field.add(name=name, number=number)
            field.label = field.LABEL_REPEATED if is_many else field.LABEL_OPTIONAL
            field.type = field.TYPE_MESSAGE if kind else field.TYPE_BYTES
            if kind:
                field.type_name = f".{_PACKAGE}.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.Model"))
