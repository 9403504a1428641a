"""DeepL's protocol, version 2: its requests as `TranslationRequest`, and what its clients read in the answers.

What the server cannot do is left out, and the header x-ignored-parameters of the answer names it: DeepL's clients
would take an error for the end of their work.
"""

import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from starlette.responses import JSONResponse, Response

from model.language_codes import subtags_of
from service.api.http.fields import KindOfWarning, checked, warn_of, warnings_of
from service.api.http.languages import name_of, source_of, target_languages
from service.api.http.operations import JSON, URLENCODED, Dialect, HttpRequest, answer_with, operation
from service.api.http.server_status import ServerStatus
from service.call import Call
from service.errors import InvalidInput
from service.records import NO_OPTIONS, Segmentation, TextFormat, TranslateOptions, TranslationRequest
from service.translate.glossaries import UploadedGlossaries
from service.translate.routes import source_languages
from service.translate.routing import Router

DIALECT = Dialect(
    name="deepl", error_field="message", text_field="text", key_field="auth_key", statuses={"NOT_FOUND": 400}
)
IGNORED_KEY = "x-ignored-parameters"
NO_LIMIT = 1_000_000_000_000  # what DeepL says where it limits nobody
_OPTIONS = {
    None: NO_OPTIONS,
    "0": TranslateOptions(segmentation=Segmentation.LINE),
    "1": TranslateOptions(segmentation=Segmentation.SENTENCE_AND_LINE),
    "nonewlines": TranslateOptions(segmentation=Segmentation.SENTENCE_ACROSS_LINES),
}
_FORMATS = {"xml": TextFormat.XML, "html": TextFormat.HTML, None: TextFormat.PLAIN}
_REGIONS = {"en": ("EN-GB", "EN-US"), "pt": ("PT-BR", "PT-PT")}  # targets that DeepL's clients ask for
_NO_TRANSLATION = '  translate="no"'  # two spaces: the mark is known again, and taken out


def _listed(value: object) -> object:
    """Return a value alone as a list, and a text with commas, as forms have it, cut at them."""
    return value.split(",") if isinstance(value, str) else value


class GlossaryFields(BaseModel):
    """Which glossaries are asked for."""

    glossary_id: Annotated[str | None, Field(description="Glossary of the caller, or of the server.")] = None
    glossary_ids: Annotated[
        list[str],
        Field(max_length=5, description="Several instead, of which the first that has a term counts."),
        BeforeValidator(_listed, json_schema_input_type=list[str]),
    ] = []

    def glossaries(self) -> list[str]:
        """Return the names; raises InvalidInput where both fields have some."""
        if self.glossary_id and self.glossary_ids:
            raise InvalidInput("glossary_id and glossary_ids are both there, one is accepted", field="glossary_ids")
        return [self.glossary_id] if self.glossary_id else self.glossary_ids


class TranslateBody(GlossaryFields):
    """What is to be translated; further parameters of DeepL's are accepted, and ignored."""

    model_config = ConfigDict(extra="allow")

    text: Annotated[
        list[str],
        Field(min_length=1, description="The texts; in a form, one field for each."),
        BeforeValidator(lambda value: [value] if isinstance(value, str) else value, json_schema_input_type=list[str]),
    ]
    target_lang: Annotated[str, Field(min_length=1, description="Language to translate into, such as DE or EN-US.")]
    source_lang: Annotated[str | None, Field(description="Language of the texts; without: detected.")] = None
    tag_handling: Annotated[Literal["xml", "html"] | None, Field(description="What the texts are written in.")] = None
    ignore_tags: Annotated[
        list[str],
        Field(description="With tag_handling: elements that are not translated."),
        BeforeValidator(_listed, json_schema_input_type=list[str]),
    ] = []
    split_sentences: Annotated[
        Literal["0", "1", "nonewlines"] | None,
        Field(description="0: no sentence is cut; 1: at line breaks, too; nonewlines: over line breaks."),
        BeforeValidator(lambda value: str(int(value)) if isinstance(value, int) else value),
    ] = None
    preserve_formatting: Annotated[bool, Field(description="The server always does.")] = False
    show_billed_characters: Annotated[bool, Field(description="They are always shown.")] = True
    auth_key: Annotated[str | None, Field(description="API key, in clients before 2025.")] = None

    def ignored(self) -> list[str]:
        """Return the parameters that change nothing here, and would in DeepL's service."""
        names = list(self.model_extra or ())
        if self.ignore_tags and self.tag_handling is None:
            names.append("ignore_tags")
        if self.split_sentences == "1" and self.tag_handling == "html":  # whose line breaks are spaces
            names.append("split_sentences")
        return [name for name in names if re.fullmatch(r"[a-z_]{1,40}", name)]


class TranslatedText(BaseModel):
    """A translation."""

    detected_source_language: str
    text: str
    billed_characters: int
    warnings: list[KindOfWarning] | None = None  # not DeepL's own


class TranslateAnswer(BaseModel):
    """Translations, in the order of the texts."""

    translations: list[TranslatedText]


class LanguagesBody(BaseModel):
    """Which languages are asked for."""

    type: Annotated[Literal["source", "target"], Field(description="Translated from, or into.")] = "source"


class Language(BaseModel):
    """A language."""

    language: str
    name: str
    supports_formality: bool | None = None


class Usage(BaseModel):
    """What the caller's key has used since the server started."""

    character_count: int
    character_limit: int = NO_LIMIT


_LISTING: dict[str, Any] = {"verbs": ("GET", "POST"), "is_work": False}


class DeepL:
    """Answers the requests of DeepL's clients."""

    def __init__(self, router: Router, server: ServerStatus, glossaries: UploadedGlossaries) -> None:
        """Answer with this router; `server` knows what the holder of a key has had translated."""
        self._router = router
        self._glossaries = glossaries
        self._server = server

    @operation(
        DIALECT, "/v2/translate", "Translate texts", TranslateAnswer, body=TranslateBody, kinds=(JSON, URLENCODED)
    )
    async def translate(self, asked: HttpRequest, call: Call) -> Response:
        body = checked(TranslateBody, asked.fields)
        tags = body.ignore_tags if body.tag_handling else ()
        glossary_name, terms = await self._glossaries.named(body.glossaries(), call.caller, body.target_lang)
        request = TranslationRequest(
            texts=tuple(_marked(text, tags) for text in body.text),
            source_language=body.source_lang or "",
            target_language=body.target_lang,
            format=_FORMATS[body.tag_handling],
            options=_OPTIONS[body.split_sentences],
            glossary_name=glossary_name,
            terms=terms,
            priority=asked.priority,
            allows_same_language=True,
        )
        result = await self._router.translate(request, call)
        warn_of(result.translations, call)
        source = body.source_lang or source_of(result, self._router)
        answer = TranslateAnswer(
            translations=[
                TranslatedText(
                    detected_source_language=_code(translation.detected_language or source),
                    text=translation.text.replace(_NO_TRANSLATION, "") if tags else translation.text,
                    billed_characters=len(text),
                    warnings=warnings_of(translation),
                )
                for text, translation in zip(body.text, result.translations, strict=True)
            ]
        )
        ignored = body.ignored()
        return answer_with(answer, {IGNORED_KEY: ", ".join(ignored)} if ignored else None)

    @operation(DIALECT, "/v2/languages", "List languages", list[Language], body=LanguagesBody, **_LISTING)
    async def languages(self, asked: HttpRequest, call: Call) -> Response:
        infos = self._router.infos(call)
        if checked(LanguagesBody, asked.fields).type == "source":
            codes = sorted({_code(code) for code in source_languages(infos)})
            languages = [Language(language=code, name=name_of(code)) for code in codes]
        else:
            targets = [target for code in target_languages(infos) for target in _REGIONS.get(code, (code.upper(),))]
            languages = [
                Language(language=one, name=name_of(one), supports_formality=False) for one in dict.fromkeys(targets)
            ]
        return JSONResponse([one.model_dump(exclude_none=True) for one in languages])

    @operation(DIALECT, "/v2/usage", "Count the characters of a key", Usage, **_LISTING)
    async def usage(self, asked: HttpRequest, call: Call) -> Response:
        count = await self._server.characters_of(call.caller.name) if call.caller.source == "key" else 0
        return answer_with(Usage(character_count=count))


def _code(language: str) -> str:
    """Return a source language as DeepL says it: without a region."""
    subtags = subtags_of(language)
    return (subtags.language if subtags else language).upper()


def _marked(text: str, tags: Sequence[str]) -> str:
    """Return the text with a mark in the start tags of elements that are not to be translated."""
    names = "|".join(re.escape(tag.strip()) for tag in tags if tag.strip())
    if not names:
        return text
    return re.sub(rf"<(?:{names})(?=[\s/>])", lambda match: match[0] + _NO_TRANSLATION, text)
