from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GetStatusRequest(_message.Message):
    __slots__ = ("max_requests",)
    MAX_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    max_requests: int
    def __init__(self, max_requests: _Optional[int] = ...) -> None: ...

class GetStatusResponse(_message.Message):
    __slots__ = ("version", "pid", "uptime_s", "state", "models", "requests", "num_requests", "admitted_tokens", "max_admitted_tokens", "queued_work_s", "event_loop_lag_s", "log_level")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    UPTIME_S_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    MODELS_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    NUM_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    ADMITTED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MAX_ADMITTED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    QUEUED_WORK_S_FIELD_NUMBER: _ClassVar[int]
    EVENT_LOOP_LAG_S_FIELD_NUMBER: _ClassVar[int]
    LOG_LEVEL_FIELD_NUMBER: _ClassVar[int]
    version: str
    pid: int
    uptime_s: float
    state: str
    models: _containers.RepeatedCompositeFieldContainer[ModelStatus]
    requests: _containers.RepeatedCompositeFieldContainer[RequestStatus]
    num_requests: int
    admitted_tokens: int
    max_admitted_tokens: int
    queued_work_s: float
    event_loop_lag_s: float
    log_level: str
    def __init__(self, version: _Optional[str] = ..., pid: _Optional[int] = ..., uptime_s: _Optional[float] = ..., state: _Optional[str] = ..., models: _Optional[_Iterable[_Union[ModelStatus, _Mapping]]] = ..., requests: _Optional[_Iterable[_Union[RequestStatus, _Mapping]]] = ..., num_requests: _Optional[int] = ..., admitted_tokens: _Optional[int] = ..., max_admitted_tokens: _Optional[int] = ..., queued_work_s: _Optional[float] = ..., event_loop_lag_s: _Optional[float] = ..., log_level: _Optional[str] = ...) -> None: ...

class ModelStatus(_message.Message):
    __slots__ = ("name", "version", "state", "source_language", "target_language", "precision", "device", "sha256_12", "queued_jobs", "queued_tokens", "engines", "reason")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    TARGET_LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    PRECISION_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    SHA256_12_FIELD_NUMBER: _ClassVar[int]
    QUEUED_JOBS_FIELD_NUMBER: _ClassVar[int]
    QUEUED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    ENGINES_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    name: str
    version: str
    state: str
    source_language: str
    target_language: str
    precision: str
    device: str
    sha256_12: str
    queued_jobs: int
    queued_tokens: int
    engines: _containers.RepeatedCompositeFieldContainer[EngineStatus]
    reason: str
    def __init__(self, name: _Optional[str] = ..., version: _Optional[str] = ..., state: _Optional[str] = ..., source_language: _Optional[str] = ..., target_language: _Optional[str] = ..., precision: _Optional[str] = ..., device: _Optional[str] = ..., sha256_12: _Optional[str] = ..., queued_jobs: _Optional[int] = ..., queued_tokens: _Optional[int] = ..., engines: _Optional[_Iterable[_Union[EngineStatus, _Mapping]]] = ..., reason: _Optional[str] = ...) -> None: ...

class EngineStatus(_message.Message):
    __slots__ = ("pid", "state", "jobs", "rows", "max_rows", "restarts", "silent_s")
    PID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    MAX_ROWS_FIELD_NUMBER: _ClassVar[int]
    RESTARTS_FIELD_NUMBER: _ClassVar[int]
    SILENT_S_FIELD_NUMBER: _ClassVar[int]
    pid: int
    state: str
    jobs: int
    rows: int
    max_rows: int
    restarts: int
    silent_s: float
    def __init__(self, pid: _Optional[int] = ..., state: _Optional[str] = ..., jobs: _Optional[int] = ..., rows: _Optional[int] = ..., max_rows: _Optional[int] = ..., restarts: _Optional[int] = ..., silent_s: _Optional[float] = ...) -> None: ...

class RequestStatus(_message.Message):
    __slots__ = ("request_id", "method", "model", "client", "age_s", "phase", "texts", "finished_texts", "remaining_s", "client_source")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    AGE_S_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    TEXTS_FIELD_NUMBER: _ClassVar[int]
    FINISHED_TEXTS_FIELD_NUMBER: _ClassVar[int]
    REMAINING_S_FIELD_NUMBER: _ClassVar[int]
    CLIENT_SOURCE_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    method: str
    model: str
    client: str
    age_s: float
    phase: str
    texts: int
    finished_texts: int
    remaining_s: float
    client_source: str
    def __init__(self, request_id: _Optional[str] = ..., method: _Optional[str] = ..., model: _Optional[str] = ..., client: _Optional[str] = ..., age_s: _Optional[float] = ..., phase: _Optional[str] = ..., texts: _Optional[int] = ..., finished_texts: _Optional[int] = ..., remaining_s: _Optional[float] = ..., client_source: _Optional[str] = ...) -> None: ...

class ReloadModelsRequest(_message.Message):
    __slots__ = ("model",)
    MODEL_FIELD_NUMBER: _ClassVar[int]
    model: str
    def __init__(self, model: _Optional[str] = ...) -> None: ...

class ReloadModelsResponse(_message.Message):
    __slots__ = ("changes",)
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    changes: _containers.RepeatedCompositeFieldContainer[ModelChange]
    def __init__(self, changes: _Optional[_Iterable[_Union[ModelChange, _Mapping]]] = ...) -> None: ...

class ModelChange(_message.Message):
    __slots__ = ("name", "version", "result", "reason")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    name: str
    version: str
    result: str
    reason: str
    def __init__(self, name: _Optional[str] = ..., version: _Optional[str] = ..., result: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class SetLogLevelRequest(_message.Message):
    __slots__ = ("level",)
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    level: str
    def __init__(self, level: _Optional[str] = ...) -> None: ...

class SetLogLevelResponse(_message.Message):
    __slots__ = ("previous",)
    PREVIOUS_FIELD_NUMBER: _ClassVar[int]
    previous: str
    def __init__(self, previous: _Optional[str] = ...) -> None: ...
