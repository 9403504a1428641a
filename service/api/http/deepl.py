"""DeepL's protocol, version 2: texts, languages and glossaries; `deepl_documents.py` has its documents.

Requests become a `TranslationRequest`, and answers have what DeepL's clients read.

What the server cannot do is left out, and the header x-ignored-parameters of the answer names it: DeepL's clients
would take an error for the end of their work.
"""

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from starlette.responses import JSONResponse, PlainTextResponse, Response

from model.language_codes import name_of, subtags_of
from service.api.http.fields import KindOfWarning, checked, warn_of, warnings_of
from service.api.http.operations import JSON, URLENCODED, Dialect, HttpRequest, answer_with, operation
from service.api.http.server_status import ServerStatus
from service.call import Call
from service.errors import InvalidInput
from service.records import NO_OPTIONS, Segmentation, Term, TextFormat, TranslateOptions, TranslationRequest
from service.translate.glossaries import UploadedGlossaries, UploadedGlossary
from service.translate.router import Router
from service.translate.routes import offered, source_languages, target_languages

DIALECT = Dialect(
    name="deepl", error_field="message", text_field="text", key_field="auth_key", statuses={"NOT_FOUND": 400}
)
RESOURCES = replace(DIALECT, statuses={})  # of glossaries and documents: what is not there is 404
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
        source = body.source_lang or self._router.source_of(result)
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


class GlossaryBody(BaseModel):
    """A glossary to keep."""

    name: Annotated[str, Field(min_length=1, description="What its owner calls it.")]
    source_lang: Annotated[str, Field(min_length=1, description="Language of the terms.")]
    target_lang: Annotated[str, Field(min_length=1, description="Language of their translations.")]
    entries: Annotated[str, Field(description="A term a line: source and target.")]
    entries_format: Annotated[Literal["tsv", "csv"], Field(description="What is between the two.")] = "tsv"


class Glossary(BaseModel):
    """A glossary without its terms."""

    glossary_id: str
    name: str
    ready: bool = True
    source_lang: str
    target_lang: str
    creation_time: str
    entry_count: int


class Glossaries(BaseModel):
    """The caller's glossaries."""

    glossaries: list[Glossary]


class Pair(BaseModel):
    """Languages that a glossary can be for."""

    source_lang: str
    target_lang: str


class Pairs(BaseModel):
    """All such languages."""

    supported_languages: list[Pair]


_ALL, _ONE = "/v2/glossaries", "/v2/glossaries/{glossary_id}"
_GET: dict[str, Any] = {"verbs": ("GET",), "is_work": False}
_CREATE: dict[str, Any] = {"body": GlossaryBody, "kinds": (JSON, URLENCODED), "status": 201, "is_work": False}


class DeepLGlossaries:
    """Answers requests about glossaries."""

    def __init__(self, router: Router, glossaries: UploadedGlossaries) -> None:
        """Answer nothing yet."""
        self._router = router
        self._glossaries = glossaries

    @operation(RESOURCES, _ALL, "Keep a glossary", Glossary, **_CREATE)
    async def glossary_create(self, asked: HttpRequest, call: Call) -> Response:
        body = checked(GlossaryBody, asked.fields)
        terms = _terms(body.entries, "\t" if body.entries_format == "tsv" else ",")
        made = await self._glossaries.create(call.caller, body.name, body.source_lang, body.target_lang, terms)
        return answer_with(_described(made), status=201)

    @operation(RESOURCES, _ALL, "List glossaries", Glossaries, **_GET)
    async def glossary_list(self, _: HttpRequest, call: Call) -> Response:
        found = await self._glossaries.all_of(call.caller)
        return answer_with(Glossaries(glossaries=[_described(one) for one in found]))

    @operation(RESOURCES, _ONE, "Describe a glossary", Glossary, **_GET)
    async def glossary_get(self, asked: HttpRequest, call: Call) -> Response:
        return answer_with(_described(await self._found(asked, call)))

    @operation(RESOURCES, f"{_ONE}/entries", "Read a glossary", str, **_GET)
    async def glossary_entries(self, asked: HttpRequest, call: Call) -> Response:
        terms = (await self._found(asked, call)).terms
        lines = "\n".join(f"{term.source}\t{term.target}" for term in terms)
        return PlainTextResponse(lines, media_type="text/tab-separated-values")

    @operation(RESOURCES, _ONE, "Delete a glossary", verbs=("DELETE",), is_work=False, status=204)
    async def glossary_delete(self, asked: HttpRequest, call: Call) -> Response:
        await self._glossaries.delete(str(asked.request.path_params["glossary_id"]), call.caller)
        return Response(status_code=204)

    @operation(RESOURCES, "/v2/glossary-language-pairs", "List languages of glossaries", Pairs, **_GET)
    async def glossary_pairs(self, _: HttpRequest, call: Call) -> Response:
        languages = offered(self._router.infos(call))
        pairs = [Pair(source_lang=one.code, target_lang=target) for one in languages for target in one.targets]
        return answer_with(Pairs(supported_languages=pairs))

    async def _found(self, asked: HttpRequest, call: Call) -> UploadedGlossary:
        return await self._glossaries.find(str(asked.request.path_params["glossary_id"]), call.caller)


def _terms(entries: str, delimiter: str) -> list[Term]:
    """Return the terms of lines with two fields; blank lines say nothing; raises InvalidInput."""
    try:
        if delimiter == ",":
            rows = list(csv.reader(io.StringIO(entries, newline=None)))  # any line end ends a line
        else:
            rows = [line.split("\t") for line in entries.splitlines()]
    except csv.Error as error:
        raise InvalidInput(f"entries: {error}", field="entries") from error
    terms: list[Term] = []
    for number, fields in enumerate(rows, start=1):
        stripped = [field.strip() for field in fields]
        if not any(stripped):
            continue
        if len(stripped) < 2 or not (stripped[0] and stripped[1]):
            raise InvalidInput(f"entries, line {number}: a term has a source and a target", field="entries")
        terms.append(Term(stripped[0], stripped[1]))
    return terms


def _described(one: UploadedGlossary) -> Glossary:
    return Glossary(
        glossary_id=one.id,
        name=one.name,
        source_lang=one.source_language.lower(),
        target_lang=one.target_language.lower(),
        creation_time=one.created,
        entry_count=len(one.terms),
    )
