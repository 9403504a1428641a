from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Priority(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PRIORITY_UNSPECIFIED: _ClassVar[Priority]
    PRIORITY_INTERACTIVE: _ClassVar[Priority]
    PRIORITY_BATCH: _ClassVar[Priority]

class FinishReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FINISH_REASON_UNSPECIFIED: _ClassVar[FinishReason]
    FINISH_REASON_END_OF_SENTENCE: _ClassVar[FinishReason]
    FINISH_REASON_LENGTH: _ClassVar[FinishReason]
PRIORITY_UNSPECIFIED: Priority
PRIORITY_INTERACTIVE: Priority
PRIORITY_BATCH: Priority
FINISH_REASON_UNSPECIFIED: FinishReason
FINISH_REASON_END_OF_SENTENCE: FinishReason
FINISH_REASON_LENGTH: FinishReason

class TranslateRequest(_message.Message):
    __slots__ = ("texts", "source_language", "target_language", "model", "options", "priority")
    TEXTS_FIELD_NUMBER: _ClassVar[int]
    SOURCE_LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    TARGET_LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    texts: _containers.RepeatedScalarFieldContainer[str]
    source_language: str
    target_language: str
    model: str
    options: TranslateOptions
    priority: Priority
    def __init__(self, texts: _Optional[_Iterable[str]] = ..., source_language: _Optional[str] = ..., target_language: _Optional[str] = ..., model: _Optional[str] = ..., options: _Optional[_Union[TranslateOptions, _Mapping]] = ..., priority: _Optional[_Union[Priority, str]] = ...) -> None: ...

class TranslateOptions(_message.Message):
    __slots__ = ("beam_size", "num_hypotheses", "length_penalty", "patience", "max_target_tokens", "use_shortlist", "allow_smaller_beam")
    BEAM_SIZE_FIELD_NUMBER: _ClassVar[int]
    NUM_HYPOTHESES_FIELD_NUMBER: _ClassVar[int]
    LENGTH_PENALTY_FIELD_NUMBER: _ClassVar[int]
    PATIENCE_FIELD_NUMBER: _ClassVar[int]
    MAX_TARGET_TOKENS_FIELD_NUMBER: _ClassVar[int]
    USE_SHORTLIST_FIELD_NUMBER: _ClassVar[int]
    ALLOW_SMALLER_BEAM_FIELD_NUMBER: _ClassVar[int]
    beam_size: int
    num_hypotheses: int
    length_penalty: float
    patience: float
    max_target_tokens: int
    use_shortlist: bool
    allow_smaller_beam: bool
    def __init__(self, beam_size: _Optional[int] = ..., num_hypotheses: _Optional[int] = ..., length_penalty: _Optional[float] = ..., patience: _Optional[float] = ..., max_target_tokens: _Optional[int] = ..., use_shortlist: _Optional[bool] = ..., allow_smaller_beam: _Optional[bool] = ...) -> None: ...

class TranslateResponse(_message.Message):
    __slots__ = ("translations", "model", "model_version", "timings", "beam_size")
    TRANSLATIONS_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    MODEL_VERSION_FIELD_NUMBER: _ClassVar[int]
    TIMINGS_FIELD_NUMBER: _ClassVar[int]
    BEAM_SIZE_FIELD_NUMBER: _ClassVar[int]
    translations: _containers.RepeatedCompositeFieldContainer[Translation]
    model: str
    model_version: str
    timings: Timings
    beam_size: int
    def __init__(self, translations: _Optional[_Iterable[_Union[Translation, _Mapping]]] = ..., model: _Optional[str] = ..., model_version: _Optional[str] = ..., timings: _Optional[_Union[Timings, _Mapping]] = ..., beam_size: _Optional[int] = ...) -> None: ...

class TranslateStreamRequest(_message.Message):
    __slots__ = ("settings", "texts")
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    TEXTS_FIELD_NUMBER: _ClassVar[int]
    settings: StreamSettings
    texts: _containers.RepeatedCompositeFieldContainer[StreamText]
    def __init__(self, settings: _Optional[_Union[StreamSettings, _Mapping]] = ..., texts: _Optional[_Iterable[_Union[StreamText, _Mapping]]] = ...) -> None: ...

class StreamSettings(_message.Message):
    __slots__ = ("source_language", "target_language", "model", "options", "priority")
    SOURCE_LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    TARGET_LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    source_language: str
    target_language: str
    model: str
    options: TranslateOptions
    priority: Priority
    def __init__(self, source_language: _Optional[str] = ..., target_language: _Optional[str] = ..., model: _Optional[str] = ..., options: _Optional[_Union[TranslateOptions, _Mapping]] = ..., priority: _Optional[_Union[Priority, str]] = ...) -> None: ...

class StreamText(_message.Message):
    __slots__ = ("id", "text")
    ID_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    id: int
    text: str
    def __init__(self, id: _Optional[int] = ..., text: _Optional[str] = ...) -> None: ...

class TranslateStreamResponse(_message.Message):
    __slots__ = ("translations", "model")
    TRANSLATIONS_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    translations: _containers.RepeatedCompositeFieldContainer[StreamTranslation]
    model: str
    def __init__(self, translations: _Optional[_Iterable[_Union[StreamTranslation, _Mapping]]] = ..., model: _Optional[str] = ...) -> None: ...

class StreamTranslation(_message.Message):
    __slots__ = ("id", "translation", "model_version", "beam_size")
    ID_FIELD_NUMBER: _ClassVar[int]
    TRANSLATION_FIELD_NUMBER: _ClassVar[int]
    MODEL_VERSION_FIELD_NUMBER: _ClassVar[int]
    BEAM_SIZE_FIELD_NUMBER: _ClassVar[int]
    id: int
    translation: Translation
    model_version: str
    beam_size: int
    def __init__(self, id: _Optional[int] = ..., translation: _Optional[_Union[Translation, _Mapping]] = ..., model_version: _Optional[str] = ..., beam_size: _Optional[int] = ...) -> None: ...

class Translation(_message.Message):
    __slots__ = ("status", "hypotheses", "source_tokens")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    HYPOTHESES_FIELD_NUMBER: _ClassVar[int]
    SOURCE_TOKENS_FIELD_NUMBER: _ClassVar[int]
    status: Status
    hypotheses: _containers.RepeatedCompositeFieldContainer[Hypothesis]
    source_tokens: int
    def __init__(self, status: _Optional[_Union[Status, _Mapping]] = ..., hypotheses: _Optional[_Iterable[_Union[Hypothesis, _Mapping]]] = ..., source_tokens: _Optional[int] = ...) -> None: ...

class Status(_message.Message):
    __slots__ = ("code", "message")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    code: int
    message: str
    def __init__(self, code: _Optional[int] = ..., message: _Optional[str] = ...) -> None: ...

class Hypothesis(_message.Message):
    __slots__ = ("text", "score", "finish_reason", "target_tokens")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    TARGET_TOKENS_FIELD_NUMBER: _ClassVar[int]
    text: str
    score: float
    finish_reason: FinishReason
    target_tokens: int
    def __init__(self, text: _Optional[str] = ..., score: _Optional[float] = ..., finish_reason: _Optional[_Union[FinishReason, str]] = ..., target_tokens: _Optional[int] = ...) -> None: ...

class Timings(_message.Message):
    __slots__ = ("tokenize_ms", "queue_ms", "encode_ms", "decode_ms", "detokenize_ms", "total_ms")
    TOKENIZE_MS_FIELD_NUMBER: _ClassVar[int]
    QUEUE_MS_FIELD_NUMBER: _ClassVar[int]
    ENCODE_MS_FIELD_NUMBER: _ClassVar[int]
    DECODE_MS_FIELD_NUMBER: _ClassVar[int]
    DETOKENIZE_MS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_MS_FIELD_NUMBER: _ClassVar[int]
    tokenize_ms: float
    queue_ms: float
    encode_ms: float
    decode_ms: float
    detokenize_ms: float
    total_ms: float
    def __init__(self, tokenize_ms: _Optional[float] = ..., queue_ms: _Optional[float] = ..., encode_ms: _Optional[float] = ..., decode_ms: _Optional[float] = ..., detokenize_ms: _Optional[float] = ..., total_ms: _Optional[float] = ...) -> None: ...

class ListModelsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListModelsResponse(_message.Message):
    __slots__ = ("models",)
    MODELS_FIELD_NUMBER: _ClassVar[int]
    models: _containers.RepeatedCompositeFieldContainer[Model]
    def __init__(self, models: _Optional[_Iterable[_Union[Model, _Mapping]]] = ...) -> None: ...

class Model(_message.Message):
    __slots__ = ("name", "version", "source_language", "target_language", "precision", "device", "default_options", "max_source_tokens", "max_beam_size", "has_shortlist")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SOURCE_LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    TARGET_LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    PRECISION_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_OPTIONS_FIELD_NUMBER: _ClassVar[int]
    MAX_SOURCE_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MAX_BEAM_SIZE_FIELD_NUMBER: _ClassVar[int]
    HAS_SHORTLIST_FIELD_NUMBER: _ClassVar[int]
    name: str
    version: str
    source_language: str
    target_language: str
    precision: str
    device: str
    default_options: TranslateOptions
    max_source_tokens: int
    max_beam_size: int
    has_shortlist: bool
    def __init__(self, name: _Optional[str] = ..., version: _Optional[str] = ..., source_language: _Optional[str] = ..., target_language: _Optional[str] = ..., precision: _Optional[str] = ..., device: _Optional[str] = ..., default_options: _Optional[_Union[TranslateOptions, _Mapping]] = ..., max_source_tokens: _Optional[int] = ..., max_beam_size: _Optional[int] = ..., has_shortlist: _Optional[bool] = ...) -> None: ...
