from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TranslateTextGlossaryConfig(_message.Message):
    __slots__ = ("glossary", "ignore_case")
    GLOSSARY_FIELD_NUMBER: _ClassVar[int]
    IGNORE_CASE_FIELD_NUMBER: _ClassVar[int]
    glossary: str
    ignore_case: bool
    def __init__(self, glossary: _Optional[str] = ..., ignore_case: _Optional[bool] = ...) -> None: ...

class TransliterationConfig(_message.Message):
    __slots__ = ("enable_transliteration",)
    ENABLE_TRANSLITERATION_FIELD_NUMBER: _ClassVar[int]
    enable_transliteration: bool
    def __init__(self, enable_transliteration: _Optional[bool] = ...) -> None: ...

class TranslateTextRequest(_message.Message):
    __slots__ = ("contents", "mime_type", "source_language_code", "target_language_code", "parent", "model", "glossary_config", "transliteration_config", "labels")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    CONTENTS_FIELD_NUMBER: _ClassVar[int]
    MIME_TYPE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_LANGUAGE_CODE_FIELD_NUMBER: _ClassVar[int]
    TARGET_LANGUAGE_CODE_FIELD_NUMBER: _ClassVar[int]
    PARENT_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    GLOSSARY_CONFIG_FIELD_NUMBER: _ClassVar[int]
    TRANSLITERATION_CONFIG_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    contents: _containers.RepeatedScalarFieldContainer[str]
    mime_type: str
    source_language_code: str
    target_language_code: str
    parent: str
    model: str
    glossary_config: TranslateTextGlossaryConfig
    transliteration_config: TransliterationConfig
    labels: _containers.ScalarMap[str, str]
    def __init__(self, contents: _Optional[_Iterable[str]] = ..., mime_type: _Optional[str] = ..., source_language_code: _Optional[str] = ..., target_language_code: _Optional[str] = ..., parent: _Optional[str] = ..., model: _Optional[str] = ..., glossary_config: _Optional[_Union[TranslateTextGlossaryConfig, _Mapping]] = ..., transliteration_config: _Optional[_Union[TransliterationConfig, _Mapping]] = ..., labels: _Optional[_Mapping[str, str]] = ...) -> None: ...

class TranslateTextResponse(_message.Message):
    __slots__ = ("translations", "glossary_translations")
    TRANSLATIONS_FIELD_NUMBER: _ClassVar[int]
    GLOSSARY_TRANSLATIONS_FIELD_NUMBER: _ClassVar[int]
    translations: _containers.RepeatedCompositeFieldContainer[Translation]
    glossary_translations: _containers.RepeatedCompositeFieldContainer[Translation]
    def __init__(self, translations: _Optional[_Iterable[_Union[Translation, _Mapping]]] = ..., glossary_translations: _Optional[_Iterable[_Union[Translation, _Mapping]]] = ...) -> None: ...

class Translation(_message.Message):
    __slots__ = ("translated_text", "model", "detected_language_code", "glossary_config")
    TRANSLATED_TEXT_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    DETECTED_LANGUAGE_CODE_FIELD_NUMBER: _ClassVar[int]
    GLOSSARY_CONFIG_FIELD_NUMBER: _ClassVar[int]
    translated_text: str
    model: str
    detected_language_code: str
    glossary_config: TranslateTextGlossaryConfig
    def __init__(self, translated_text: _Optional[str] = ..., model: _Optional[str] = ..., detected_language_code: _Optional[str] = ..., glossary_config: _Optional[_Union[TranslateTextGlossaryConfig, _Mapping]] = ...) -> None: ...

class DetectLanguageRequest(_message.Message):
    __slots__ = ("parent", "model", "content", "mime_type", "labels")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    PARENT_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    MIME_TYPE_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    parent: str
    model: str
    content: str
    mime_type: str
    labels: _containers.ScalarMap[str, str]
    def __init__(self, parent: _Optional[str] = ..., model: _Optional[str] = ..., content: _Optional[str] = ..., mime_type: _Optional[str] = ..., labels: _Optional[_Mapping[str, str]] = ...) -> None: ...

class DetectedLanguage(_message.Message):
    __slots__ = ("language_code", "confidence")
    LANGUAGE_CODE_FIELD_NUMBER: _ClassVar[int]
    CONFIDENCE_FIELD_NUMBER: _ClassVar[int]
    language_code: str
    confidence: float
    def __init__(self, language_code: _Optional[str] = ..., confidence: _Optional[float] = ...) -> None: ...

class DetectLanguageResponse(_message.Message):
    __slots__ = ("languages",)
    LANGUAGES_FIELD_NUMBER: _ClassVar[int]
    languages: _containers.RepeatedCompositeFieldContainer[DetectedLanguage]
    def __init__(self, languages: _Optional[_Iterable[_Union[DetectedLanguage, _Mapping]]] = ...) -> None: ...

class GetSupportedLanguagesRequest(_message.Message):
    __slots__ = ("parent", "display_language_code", "model")
    PARENT_FIELD_NUMBER: _ClassVar[int]
    DISPLAY_LANGUAGE_CODE_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    parent: str
    display_language_code: str
    model: str
    def __init__(self, parent: _Optional[str] = ..., display_language_code: _Optional[str] = ..., model: _Optional[str] = ...) -> None: ...

class SupportedLanguages(_message.Message):
    __slots__ = ("languages",)
    LANGUAGES_FIELD_NUMBER: _ClassVar[int]
    languages: _containers.RepeatedCompositeFieldContainer[SupportedLanguage]
    def __init__(self, languages: _Optional[_Iterable[_Union[SupportedLanguage, _Mapping]]] = ...) -> None: ...

class SupportedLanguage(_message.Message):
    __slots__ = ("language_code", "display_name", "support_source", "support_target")
    LANGUAGE_CODE_FIELD_NUMBER: _ClassVar[int]
    DISPLAY_NAME_FIELD_NUMBER: _ClassVar[int]
    SUPPORT_SOURCE_FIELD_NUMBER: _ClassVar[int]
    SUPPORT_TARGET_FIELD_NUMBER: _ClassVar[int]
    language_code: str
    display_name: str
    support_source: bool
    support_target: bool
    def __init__(self, language_code: _Optional[str] = ..., display_name: _Optional[str] = ..., support_source: _Optional[bool] = ..., support_target: _Optional[bool] = ...) -> None: ...
