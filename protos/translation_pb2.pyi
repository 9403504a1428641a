from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TextFormat(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TEXT_FORMAT_UNSPECIFIED: _ClassVar[TextFormat]
    TEXT_FORMAT_PLAIN: _ClassVar[TextFormat]
    TEXT_FORMAT_HTML: _ClassVar[TextFormat]
    TEXT_FORMAT_XML: _ClassVar[TextFormat]
    TEXT_FORMAT_XLIFF: _ClassVar[TextFormat]

class Segmentation(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SEGMENTATION_UNSPECIFIED: _ClassVar[Segmentation]
    SEGMENTATION_SENTENCE: _ClassVar[Segmentation]
    SEGMENTATION_NONE: _ClassVar[Segmentation]
    SEGMENTATION_LINE: _ClassVar[Segmentation]
    SEGMENTATION_SENTENCE_AND_LINE: _ClassVar[Segmentation]
    SEGMENTATION_SENTENCE_ACROSS_LINES: _ClassVar[Segmentation]

class Priority(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PRIORITY_UNSPECIFIED: _ClassVar[Priority]
    PRIORITY_INTERACTIVE: _ClassVar[Priority]
    PRIORITY_BATCH: _ClassVar[Priority]

class WarningKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    WARNING_KIND_UNSPECIFIED: _ClassVar[WarningKind]
    WARNING_KIND_NOT_TRANSLATED: _ClassVar[WarningKind]
    WARNING_KIND_TRUNCATED: _ClassVar[WarningKind]
    WARNING_KIND_REPETITION: _ClassVar[WarningKind]
    WARNING_KIND_COPIED: _ClassVar[WarningKind]
    WARNING_KIND_EMPTY: _ClassVar[WarningKind]
    WARNING_KIND_WRONG_SCRIPT: _ClassVar[WarningKind]
    WARNING_KIND_LENGTH_RATIO: _ClassVar[WarningKind]
    WARNING_KIND_LOW_COVERAGE: _ClassVar[WarningKind]
    WARNING_KIND_UNKNOWN_CHARACTERS: _ClassVar[WarningKind]
    WARNING_KIND_TERM_MISSED: _ClassVar[WarningKind]
    WARNING_KIND_SPLIT: _ClassVar[WarningKind]
    WARNING_KIND_NUMBERS: _ClassVar[WarningKind]

class FinishReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FINISH_REASON_UNSPECIFIED: _ClassVar[FinishReason]
    FINISH_REASON_END_OF_SENTENCE: _ClassVar[FinishReason]
    FINISH_REASON_LENGTH: _ClassVar[FinishReason]
    FINISH_REASON_REPETITION: _ClassVar[FinishReason]
TEXT_FORMAT_UNSPECIFIED: TextFormat
TEXT_FORMAT_PLAIN: TextFormat
TEXT_FORMAT_HTML: TextFormat
TEXT_FORMAT_XML: TextFormat
TEXT_FORMAT_XLIFF: TextFormat
SEGMENTATION_UNSPECIFIED: Segmentation
SEGMENTATION_SENTENCE: Segmentation
SEGMENTATION_NONE: Segmentation
SEGMENTATION_LINE: Segmentation
SEGMENTATION_SENTENCE_AND_LINE: Segmentation
SEGMENTATION_SENTENCE_ACROSS_LINES: Segmentation
PRIORITY_UNSPECIFIED: Priority
PRIORITY_INTERACTIVE: Priority
PRIORITY_BATCH: Priority
WARNING_KIND_UNSPECIFIED: WarningKind
WARNING_KIND_NOT_TRANSLATED: WarningKind
WARNING_KIND_TRUNCATED: WarningKind
WARNING_KIND_REPETITION: WarningKind
WARNING_KIND_COPIED: WarningKind
WARNING_KIND_EMPTY: WarningKind
WARNING_KIND_WRONG_SCRIPT: WarningKind
WARNING_KIND_LENGTH_RATIO: WarningKind
WARNING_KIND_LOW_COVERAGE: WarningKind
WARNING_KIND_UNKNOWN_CHARACTERS: WarningKind
WARNING_KIND_TERM_MISSED: WarningKind
WARNING_KIND_SPLIT: WarningKind
WARNING_KIND_NUMBERS: WarningKind
FINISH_REASON_UNSPECIFIED: FinishReason
FINISH_REASON_END_OF_SENTENCE: FinishReason
FINISH_REASON_LENGTH: FinishReason
FINISH_REASON_REPETITION: FinishReason

class TranslateRequest(_message.Message):
    __slots__ = ("texts", "source_language", "target_language", "model", "options", "priority", "format", "return_alignments", "glossary", "target_prefixes")
    TEXTS_FIELD_NUMBER: _ClassVar[int]
    SOURCE_LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    TARGET_LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    RETURN_ALIGNMENTS_FIELD_NUMBER: _ClassVar[int]
    GLOSSARY_FIELD_NUMBER: _ClassVar[int]
    TARGET_PREFIXES_FIELD_NUMBER: _ClassVar[int]
    texts: _containers.RepeatedScalarFieldContainer[str]
    source_language: str
    target_language: str
    model: str
    options: TranslateOptions
    priority: Priority
    format: TextFormat
    return_alignments: bool
    glossary: Glossary
    target_prefixes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, texts: _Optional[_Iterable[str]] = ..., source_language: _Optional[str] = ..., target_language: _Optional[str] = ..., model: _Optional[str] = ..., options: _Optional[_Union[TranslateOptions, _Mapping]] = ..., priority: _Optional[_Union[Priority, str]] = ..., format: _Optional[_Union[TextFormat, str]] = ..., return_alignments: _Optional[bool] = ..., glossary: _Optional[_Union[Glossary, _Mapping]] = ..., target_prefixes: _Optional[_Iterable[str]] = ...) -> None: ...

class Glossary(_message.Message):
    __slots__ = ("name", "terms")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TERMS_FIELD_NUMBER: _ClassVar[int]
    name: str
    terms: _containers.RepeatedCompositeFieldContainer[Term]
    def __init__(self, name: _Optional[str] = ..., terms: _Optional[_Iterable[_Union[Term, _Mapping]]] = ...) -> None: ...

class Term(_message.Message):
    __slots__ = ("source", "target")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    source: str
    target: str
    def __init__(self, source: _Optional[str] = ..., target: _Optional[str] = ...) -> None: ...

class TranslateOptions(_message.Message):
    __slots__ = ("beam_size", "num_hypotheses", "length_penalty", "patience", "max_target_tokens", "use_shortlist", "allow_smaller_beam", "segmentation", "repetition_penalty", "no_repeat_ngram_size", "min_target_tokens", "suppressed_phrases", "sampling_top_k", "sampling_top_p", "sampling_temperature", "sampling_seed", "return_alternatives", "use_cache", "stop_repetition")
    BEAM_SIZE_FIELD_NUMBER: _ClassVar[int]
    NUM_HYPOTHESES_FIELD_NUMBER: _ClassVar[int]
    LENGTH_PENALTY_FIELD_NUMBER: _ClassVar[int]
    PATIENCE_FIELD_NUMBER: _ClassVar[int]
    MAX_TARGET_TOKENS_FIELD_NUMBER: _ClassVar[int]
    USE_SHORTLIST_FIELD_NUMBER: _ClassVar[int]
    ALLOW_SMALLER_BEAM_FIELD_NUMBER: _ClassVar[int]
    SEGMENTATION_FIELD_NUMBER: _ClassVar[int]
    REPETITION_PENALTY_FIELD_NUMBER: _ClassVar[int]
    NO_REPEAT_NGRAM_SIZE_FIELD_NUMBER: _ClassVar[int]
    MIN_TARGET_TOKENS_FIELD_NUMBER: _ClassVar[int]
    SUPPRESSED_PHRASES_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_TOP_K_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_TOP_P_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_SEED_FIELD_NUMBER: _ClassVar[int]
    RETURN_ALTERNATIVES_FIELD_NUMBER: _ClassVar[int]
    USE_CACHE_FIELD_NUMBER: _ClassVar[int]
    STOP_REPETITION_FIELD_NUMBER: _ClassVar[int]
    beam_size: int
    num_hypotheses: int
    length_penalty: float
    patience: float
    max_target_tokens: int
    use_shortlist: bool
    allow_smaller_beam: bool
    segmentation: Segmentation
    repetition_penalty: float
    no_repeat_ngram_size: int
    min_target_tokens: int
    suppressed_phrases: _containers.RepeatedScalarFieldContainer[str]
    sampling_top_k: int
    sampling_top_p: float
    sampling_temperature: float
    sampling_seed: int
    return_alternatives: bool
    use_cache: bool
    stop_repetition: bool
    def __init__(self, beam_size: _Optional[int] = ..., num_hypotheses: _Optional[int] = ..., length_penalty: _Optional[float] = ..., patience: _Optional[float] = ..., max_target_tokens: _Optional[int] = ..., use_shortlist: _Optional[bool] = ..., allow_smaller_beam: _Optional[bool] = ..., segmentation: _Optional[_Union[Segmentation, str]] = ..., repetition_penalty: _Optional[float] = ..., no_repeat_ngram_size: _Optional[int] = ..., min_target_tokens: _Optional[int] = ..., suppressed_phrases: _Optional[_Iterable[str]] = ..., sampling_top_k: _Optional[int] = ..., sampling_top_p: _Optional[float] = ..., sampling_temperature: _Optional[float] = ..., sampling_seed: _Optional[int] = ..., return_alternatives: _Optional[bool] = ..., use_cache: _Optional[bool] = ..., stop_repetition: _Optional[bool] = ...) -> None: ...

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
    __slots__ = ("source_language", "target_language", "model", "options", "priority", "format", "return_alignments", "glossary")
    SOURCE_LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    TARGET_LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    RETURN_ALIGNMENTS_FIELD_NUMBER: _ClassVar[int]
    GLOSSARY_FIELD_NUMBER: _ClassVar[int]
    source_language: str
    target_language: str
    model: str
    options: TranslateOptions
    priority: Priority
    format: TextFormat
    return_alignments: bool
    glossary: Glossary
    def __init__(self, source_language: _Optional[str] = ..., target_language: _Optional[str] = ..., model: _Optional[str] = ..., options: _Optional[_Union[TranslateOptions, _Mapping]] = ..., priority: _Optional[_Union[Priority, str]] = ..., format: _Optional[_Union[TextFormat, str]] = ..., return_alignments: _Optional[bool] = ..., glossary: _Optional[_Union[Glossary, _Mapping]] = ...) -> None: ...

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
    __slots__ = ("status", "hypotheses", "source_tokens", "segments", "warnings", "detected_language", "detection_confidence", "pivot_language", "terms")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    HYPOTHESES_FIELD_NUMBER: _ClassVar[int]
    SOURCE_TOKENS_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    DETECTED_LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    DETECTION_CONFIDENCE_FIELD_NUMBER: _ClassVar[int]
    PIVOT_LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    TERMS_FIELD_NUMBER: _ClassVar[int]
    status: Status
    hypotheses: _containers.RepeatedCompositeFieldContainer[Hypothesis]
    source_tokens: int
    segments: _containers.RepeatedCompositeFieldContainer[Segment]
    warnings: _containers.RepeatedCompositeFieldContainer[TextWarning]
    detected_language: str
    detection_confidence: float
    pivot_language: str
    terms: _containers.RepeatedCompositeFieldContainer[TermUse]
    def __init__(self, status: _Optional[_Union[Status, _Mapping]] = ..., hypotheses: _Optional[_Iterable[_Union[Hypothesis, _Mapping]]] = ..., source_tokens: _Optional[int] = ..., segments: _Optional[_Iterable[_Union[Segment, _Mapping]]] = ..., warnings: _Optional[_Iterable[_Union[TextWarning, _Mapping]]] = ..., detected_language: _Optional[str] = ..., detection_confidence: _Optional[float] = ..., pivot_language: _Optional[str] = ..., terms: _Optional[_Iterable[_Union[TermUse, _Mapping]]] = ...) -> None: ...

class Segment(_message.Message):
    __slots__ = ("source", "target", "score", "finish_reason", "hypotheses", "warnings", "quality", "links")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    HYPOTHESES_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    QUALITY_FIELD_NUMBER: _ClassVar[int]
    LINKS_FIELD_NUMBER: _ClassVar[int]
    source: Span
    target: Span
    score: float
    finish_reason: FinishReason
    hypotheses: _containers.RepeatedCompositeFieldContainer[Hypothesis]
    warnings: _containers.RepeatedCompositeFieldContainer[TextWarning]
    quality: float
    links: _containers.RepeatedCompositeFieldContainer[Link]
    def __init__(self, source: _Optional[_Union[Span, _Mapping]] = ..., target: _Optional[_Union[Span, _Mapping]] = ..., score: _Optional[float] = ..., finish_reason: _Optional[_Union[FinishReason, str]] = ..., hypotheses: _Optional[_Iterable[_Union[Hypothesis, _Mapping]]] = ..., warnings: _Optional[_Iterable[_Union[TextWarning, _Mapping]]] = ..., quality: _Optional[float] = ..., links: _Optional[_Iterable[_Union[Link, _Mapping]]] = ...) -> None: ...

class Span(_message.Message):
    __slots__ = ("begin", "end")
    BEGIN_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    begin: int
    end: int
    def __init__(self, begin: _Optional[int] = ..., end: _Optional[int] = ...) -> None: ...

class Link(_message.Message):
    __slots__ = ("source", "target")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    source: Span
    target: Span
    def __init__(self, source: _Optional[_Union[Span, _Mapping]] = ..., target: _Optional[_Union[Span, _Mapping]] = ...) -> None: ...

class TextWarning(_message.Message):
    __slots__ = ("kind", "message", "source")
    KIND_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    kind: WarningKind
    message: str
    source: Span
    def __init__(self, kind: _Optional[_Union[WarningKind, str]] = ..., message: _Optional[str] = ..., source: _Optional[_Union[Span, _Mapping]] = ...) -> None: ...

class TermUse(_message.Message):
    __slots__ = ("source", "target", "span", "is_honoured")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    SPAN_FIELD_NUMBER: _ClassVar[int]
    IS_HONOURED_FIELD_NUMBER: _ClassVar[int]
    source: str
    target: str
    span: Span
    is_honoured: bool
    def __init__(self, source: _Optional[str] = ..., target: _Optional[str] = ..., span: _Optional[_Union[Span, _Mapping]] = ..., is_honoured: _Optional[bool] = ...) -> None: ...

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
    __slots__ = ("name", "version", "source_language", "target_language", "precision", "device", "default_options", "max_source_tokens", "max_beam_size", "has_shortlist", "has_scorer", "languages", "runtime", "runtime_detail")
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
    HAS_SCORER_FIELD_NUMBER: _ClassVar[int]
    LANGUAGES_FIELD_NUMBER: _ClassVar[int]
    RUNTIME_FIELD_NUMBER: _ClassVar[int]
    RUNTIME_DETAIL_FIELD_NUMBER: _ClassVar[int]
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
    has_scorer: bool
    languages: _containers.RepeatedCompositeFieldContainer[ModelLanguage]
    runtime: str
    runtime_detail: str
    def __init__(self, name: _Optional[str] = ..., version: _Optional[str] = ..., source_language: _Optional[str] = ..., target_language: _Optional[str] = ..., precision: _Optional[str] = ..., device: _Optional[str] = ..., default_options: _Optional[_Union[TranslateOptions, _Mapping]] = ..., max_source_tokens: _Optional[int] = ..., max_beam_size: _Optional[int] = ..., has_shortlist: _Optional[bool] = ..., has_scorer: _Optional[bool] = ..., languages: _Optional[_Iterable[_Union[ModelLanguage, _Mapping]]] = ..., runtime: _Optional[str] = ..., runtime_detail: _Optional[str] = ...) -> None: ...

class ModelLanguage(_message.Message):
    __slots__ = ("bcp47", "flores", "iso639_3", "is_source", "is_target")
    BCP47_FIELD_NUMBER: _ClassVar[int]
    FLORES_FIELD_NUMBER: _ClassVar[int]
    ISO639_3_FIELD_NUMBER: _ClassVar[int]
    IS_SOURCE_FIELD_NUMBER: _ClassVar[int]
    IS_TARGET_FIELD_NUMBER: _ClassVar[int]
    bcp47: str
    flores: str
    iso639_3: str
    is_source: bool
    is_target: bool
    def __init__(self, bcp47: _Optional[str] = ..., flores: _Optional[str] = ..., iso639_3: _Optional[str] = ..., is_source: _Optional[bool] = ..., is_target: _Optional[bool] = ...) -> None: ...

class ScoreRequest(_message.Message):
    __slots__ = ("pairs", "source_language", "target_language", "model", "priority", "return_alignments")
    PAIRS_FIELD_NUMBER: _ClassVar[int]
    SOURCE_LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    TARGET_LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    RETURN_ALIGNMENTS_FIELD_NUMBER: _ClassVar[int]
    pairs: _containers.RepeatedCompositeFieldContainer[ScorePair]
    source_language: str
    target_language: str
    model: str
    priority: Priority
    return_alignments: bool
    def __init__(self, pairs: _Optional[_Iterable[_Union[ScorePair, _Mapping]]] = ..., source_language: _Optional[str] = ..., target_language: _Optional[str] = ..., model: _Optional[str] = ..., priority: _Optional[_Union[Priority, str]] = ..., return_alignments: _Optional[bool] = ...) -> None: ...

class ScorePair(_message.Message):
    __slots__ = ("source", "target")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    source: str
    target: str
    def __init__(self, source: _Optional[str] = ..., target: _Optional[str] = ...) -> None: ...

class ScoreResponse(_message.Message):
    __slots__ = ("scores", "model", "model_version")
    SCORES_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    MODEL_VERSION_FIELD_NUMBER: _ClassVar[int]
    scores: _containers.RepeatedCompositeFieldContainer[PairScore]
    model: str
    model_version: str
    def __init__(self, scores: _Optional[_Iterable[_Union[PairScore, _Mapping]]] = ..., model: _Optional[str] = ..., model_version: _Optional[str] = ...) -> None: ...

class PairScore(_message.Message):
    __slots__ = ("status", "tokens", "log_probability", "links")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    LOG_PROBABILITY_FIELD_NUMBER: _ClassVar[int]
    LINKS_FIELD_NUMBER: _ClassVar[int]
    status: Status
    tokens: _containers.RepeatedCompositeFieldContainer[ScoredToken]
    log_probability: float
    links: _containers.RepeatedCompositeFieldContainer[Link]
    def __init__(self, status: _Optional[_Union[Status, _Mapping]] = ..., tokens: _Optional[_Iterable[_Union[ScoredToken, _Mapping]]] = ..., log_probability: _Optional[float] = ..., links: _Optional[_Iterable[_Union[Link, _Mapping]]] = ...) -> None: ...

class ScoredToken(_message.Message):
    __slots__ = ("text", "log_probability")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    LOG_PROBABILITY_FIELD_NUMBER: _ClassVar[int]
    text: str
    log_probability: float
    def __init__(self, text: _Optional[str] = ..., log_probability: _Optional[float] = ...) -> None: ...

class DetectLanguageRequest(_message.Message):
    __slots__ = ("texts",)
    TEXTS_FIELD_NUMBER: _ClassVar[int]
    texts: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, texts: _Optional[_Iterable[str]] = ...) -> None: ...

class DetectLanguageResponse(_message.Message):
    __slots__ = ("languages",)
    LANGUAGES_FIELD_NUMBER: _ClassVar[int]
    languages: _containers.RepeatedCompositeFieldContainer[DetectedLanguage]
    def __init__(self, languages: _Optional[_Iterable[_Union[DetectedLanguage, _Mapping]]] = ...) -> None: ...

class DetectedLanguage(_message.Message):
    __slots__ = ("language", "confidence")
    LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    CONFIDENCE_FIELD_NUMBER: _ClassVar[int]
    language: str
    confidence: float
    def __init__(self, language: _Optional[str] = ..., confidence: _Optional[float] = ...) -> None: ...
