from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GraphFile(_message.Message):
    __slots__ = ("graph",)
    GRAPH_FIELD_NUMBER: _ClassVar[int]
    graph: Graph
    def __init__(self, graph: _Optional[_Union[Graph, _Mapping]] = ...) -> None: ...

class Graph(_message.Message):
    __slots__ = ("initializer",)
    INITIALIZER_FIELD_NUMBER: _ClassVar[int]
    initializer: _containers.RepeatedCompositeFieldContainer[Tensor]
    def __init__(self, initializer: _Optional[_Iterable[_Union[Tensor, _Mapping]]] = ...) -> None: ...

class Tensor(_message.Message):
    __slots__ = ("dims", "data_type", "name", "raw_data", "external_data")
    DIMS_FIELD_NUMBER: _ClassVar[int]
    DATA_TYPE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    RAW_DATA_FIELD_NUMBER: _ClassVar[int]
    EXTERNAL_DATA_FIELD_NUMBER: _ClassVar[int]
    dims: _containers.RepeatedScalarFieldContainer[int]
    data_type: int
    name: str
    raw_data: bytes
    external_data: _containers.RepeatedCompositeFieldContainer[Entry]
    def __init__(self, dims: _Optional[_Iterable[int]] = ..., data_type: _Optional[int] = ..., name: _Optional[str] = ..., raw_data: _Optional[bytes] = ..., external_data: _Optional[_Iterable[_Union[Entry, _Mapping]]] = ...) -> None: ...

class Entry(_message.Message):
    __slots__ = ("key", "value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: str
    value: str
    def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
