"""google.cloud.translation.v3.TranslationService: Google's messages to records and back.

Errors leave as exceptions of `errors.py`; `handlers.py` gives them a status.
"""

from protos import google_translation_pb2 as pb
from service.call import Call
from service.errors import InvalidInput
from service.records import TextFormat, Translation, TranslationRequest
from service.translate.router import Router

SERVICE = pb.DESCRIPTOR.services_by_name["TranslationService"]
TRANSLATE = f"{SERVICE.full_name}/TranslateText"

_FORMATS = {"": TextFormat.HTML, "text/html": TextFormat.HTML, "text/plain": TextFormat.PLAIN}


class GoogleServicer:
    """Answers TranslateText, DetectLanguage and GetSupportedLanguages."""

    def __init__(self, router: Router) -> None:
        self._router = router

    async def translate_text(self, request: pb.TranslateTextRequest, call: Call) -> pb.TranslateTextResponse:
        """Return one translation per text, or the error of the first text that has none."""
        result = await self._router.translate(_decode(request), call)
        translations = [_encode(translation, request) for translation in result.translations]
        call.warn(warning.kind for translation in result.translations for warning in translation.warnings)
        has_glossary = bool(request.glossary_config.glossary)
        return pb.TranslateTextResponse(
            translations=translations, glossary_translations=translations if has_glossary else ()
        )

    async def detect_language(self, request: pb.DetectLanguageRequest, call: Call) -> pb.DetectLanguageResponse:
        """Return the language of the text; none where it cannot be told."""
        (found,) = await self._router.detect((request.content,), call)
        if not found.language:
            return pb.DetectLanguageResponse()
        return pb.DetectLanguageResponse(
            languages=[pb.DetectedLanguage(language_code=found.language, confidence=found.confidence)]
        )

    async def get_supported_languages(
        self, request: pb.GetSupportedLanguagesRequest, call: Call
    ) -> pb.SupportedLanguages:
        """Return the languages of the models that the caller may use."""
        name = _model_name(request.model)
        infos = [info for info in self._router.infos(call) if name in (None, info.name)]
        sources = {code for info in infos for code in info.source_languages}
        targets = {code for info in infos for code in info.target_languages}
        return pb.SupportedLanguages(
            languages=[
                pb.SupportedLanguage(language_code=code, support_source=code in sources, support_target=code in targets)
                for code in sorted(sources | targets)
            ]
        )


def _decode(message: pb.TranslateTextRequest) -> TranslationRequest:
    if message.mime_type not in _FORMATS:
        problem = f'mime_type is {message.mime_type[:40]!r}, "text/plain" and "text/html" are accepted'
        raise InvalidInput(problem, field="mime_type")
    if not message.target_language_code:
        raise InvalidInput("target_language_code is empty, it must name a language", field="target_language_code")
    if message.glossary_config.ignore_case:
        raise InvalidInput("ignore_case is true, only exact case is supported", field="glossary_config.ignore_case")
    if message.transliteration_config.enable_transliteration:
        raise InvalidInput("transliteration is not supported: leave it out", field="transliteration_config")
    return TranslationRequest(
        texts=tuple(message.contents),
        model=_model_name(message.model),
        source_language=message.source_language_code,
        target_language=message.target_language_code,
        format=_FORMATS[message.mime_type],
        glossary_name=message.glossary_config.glossary.rpartition("/")[2],
    )


def _model_name(resource: str) -> str | None:
    """Return NAME of ".../models/NAME"; None for Google's own, "general/nmt" and the like, and for none."""
    name = resource.rpartition("models/")[2]
    return None if not name or name.startswith("general/") else name


def _encode(translation: Translation, request: pb.TranslateTextRequest) -> pb.Translation:
    """Return the message; raises the text's error if it has one."""
    message = pb.Translation(
        translated_text=translation.text,
        model=request.model,
        detected_language_code=translation.detected_language,
    )
    if request.glossary_config.glossary:
        message.glossary_config.CopyFrom(request.glossary_config)
    return message
