"""Bytes to messages: handlers of methods, and what is wrong with bytes that are no message.

gRPC answers UNKNOWN when a deserialiser raises, so those here return a `Malformed` instead, which becomes
INVALID_ARGUMENT without the parser's own words.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar, cast

import grpc
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message

AnyMessage = TypeVar("AnyMessage", bound=Message)
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"  # only the type stubs can subscript it

_VARINT, _FIXED64, _LENGTH_DELIMITED, _FIXED32 = 0, 1, 2, 5  # protobuf.dev/programming-guides/encoding
_MAX_FIELDS_SCANNED = 10_000  # finding the culprit is a courtesy that must stay cheap


@dataclass(frozen=True, slots=True)
class Malformed:
    """A request that is no message of its type."""

    message: str
    field: str = ""


def deserializer(message_type: type[AnyMessage]) -> Callable[[bytes], AnyMessage | Malformed]:
    """A function from bytes to a message, or to what is wrong with them."""

    def deserialize(data: bytes) -> AnyMessage | Malformed:
        try:
            return message_type.FromString(data)
        except DecodeError:
            return _explain(data, cast("Descriptor", message_type.DESCRIPTOR))

    return deserialize


def unary(behaviour: Any, request: type[Message]) -> Handler:
    """Return the handler of a method with one request and one response."""
    return grpc.unary_unary_rpc_method_handler(
        behaviour, request_deserializer=deserializer(request), response_serializer=_serialize
    )


def stream(behaviour: Any, request: type[Message]) -> Handler:
    """Return the handler of a method with a stream of requests and one of responses."""
    return grpc.stream_stream_rpc_method_handler(
        behaviour, request_deserializer=deserializer(request), response_serializer=_serialize
    )


def _serialize(response: Message) -> bytes:
    return response.SerializeToString()


def _explain(data: bytes, descriptor: Descriptor) -> Malformed:
    try:
        for name, value in _string_fields(data, descriptor):
            try:
                value.decode("utf-8")
            except UnicodeDecodeError:
                return Malformed(f"{name} is not valid UTF-8", field=name)
    except (IndexError, ValueError):
        pass  # the bytes are no protobuf at all
    return Malformed(f"the request is not a valid {descriptor.full_name} message")


def _string_fields(data: bytes, descriptor: Descriptor) -> Iterator[tuple[str, bytes]]:
    """Name ("texts[1]", "model") and bytes of the message's own string fields."""
    counts: dict[int, int] = {}
    for number, value in _length_delimited_fields(data):
        known = descriptor.fields_by_number.get(number)
        if known is None or known.type != FieldDescriptor.TYPE_STRING:
            continue
        index = counts.get(number, 0)
        counts[number] = index + 1
        yield f"{known.name}[{index}]" if known.is_repeated else known.name, value


def _length_delimited_fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Number and bytes of each length-delimited field.

    Raises:
        IndexError, ValueError: the bytes do not follow the wire format.
    """
    position = 0
    for _ in range(_MAX_FIELDS_SCANNED):
        if position == len(data):
            return
        tag, position = _read_varint(data, position)
        kind = tag & 7
        if kind == _VARINT:
            _, position = _read_varint(data, position)
        elif kind == _LENGTH_DELIMITED:
            length, position = _read_varint(data, position)
            yield tag >> 3, data[position : position + length]
            position += length
        elif kind in (_FIXED64, _FIXED32):
            position += 8 if kind == _FIXED64 else 4
        else:
            raise ValueError(f"wire type {kind}")
        if position > len(data):
            raise IndexError("field runs past the end")


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 64, 7):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise ValueError("varint is too long")
