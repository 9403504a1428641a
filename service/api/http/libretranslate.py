"""LibreTranslate's protocol: its requests become a `TranslationRequest`, and its clients read the answers.

A list of texts is answered with lists.  An error is {"error": ...}; an unknown language has status 400.
"""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, InstanceOf, WithJsonSchema
from pydantic.alias_generators import to_camel
from starlette.datastructures import URL
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from model.language_codes import name_of
from service.api.auth import address_of, trusted_proxies
from service.api.http.fields import File, KindOfWarning, checked, warn_of, warnings_of
from service.api.http.files import FileTranslator, download
from service.api.http.handlers import peer_of
from service.api.http.operations import MULTIPART, Dialect, HttpRequest, answer_with, operation
from service.api.http.server_status import ServerStatus
from service.call import Call
from service.config import LimitsConfig, SecurityConfig
from service.documents.formats import SUFFIXES
from service.records import NO_OPTIONS, TextFormat, TranslateOptions, TranslationRequest, TranslationResult
from service.translate.router import Router
from service.translate.routes import offered

DIALECT = Dialect(name="libretranslate", text_field="q", key_field="api_key", statuses={"NOT_FOUND": 400})
AUTO = "auto"
_CODES = {AUTO: "", "zt": "zh-Hant"}  # others are BCP 47, deprecated ones such as iw included
_FORMATS = {"text": TextFormat.PLAIN, "html": TextFormat.HTML}
MAX_ALTERNATIVES = 15


def _named(code: str) -> str:
    if code == AUTO:
        raise ValueError("auto is accepted for the source alone: name a language")
    return code


_Text = Annotated[str, Field(min_length=1)]
_Key = Annotated[str | None, Field(description="API key, where the server asks for one.")]
_Source = Annotated[str, Field(description="Language of the texts, BCP 47; `auto`: the server detects it.")]
_Target = Annotated[str, Field(min_length=1, description="Language to translate into, BCP 47."), AfterValidator(_named)]


class KeyBody(BaseModel):
    """Nothing but a key."""

    api_key: _Key = None


class TranslateBody(KeyBody):
    """What is to be translated."""

    q: Annotated[_Text | Annotated[list[str], Field(min_length=1)], Field(description="The text, or a list of texts.")]
    source: _Source = AUTO
    target: _Target
    format: Annotated[Literal["text", "html"] | None, Field(description="What the texts are written in.")] = "text"
    alternatives: Annotated[
        int, Field(ge=0, le=MAX_ALTERNATIVES, description="Number of other translations of each text.")
    ] = 0


class FileBody(KeyBody):
    """A file to translate."""

    file: Annotated[
        InstanceOf[File],
        WithJsonSchema(
            {"type": "string", "format": "binary", "description": f"One of {' '.join(SUFFIXES)}; texts in UTF-8."}
        ),
    ]
    source: _Source = AUTO
    target: _Target


class DetectBody(KeyBody):
    """A text whose language is asked for."""

    q: Annotated[_Text, Field(description="The text.")]


class _Answer(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)


class Detected(_Answer):
    """A language that a text may be written in."""

    confidence: float  # from 0 to 100
    language: str


class TranslateAnswer(_Answer):
    """Translations: lists where the texts were a list."""

    translated_text: str | list[str]
    detected_language: Detected | list[Detected] | None = None
    alternatives: list[str] | list[list[str]] | None = None
    warnings: list[KindOfWarning] | list[list[KindOfWarning]] | None = None  # not LibreTranslate's own


class FileAnswer(_Answer):
    """Where the translated file is for some minutes."""

    translated_file_url: str
    warnings: list[KindOfWarning] | None = None  # not LibreTranslate's own
    remarks: tuple[str, ...] | None = None  # not LibreTranslate's own


class Language(_Answer):
    """A language, and those that it can be translated into."""

    code: str
    name: str
    targets: list[str]


class Named(_Answer):
    """A language of a choice."""

    code: str
    name: str


class Choice(_Answer):
    """The languages that a page begins with."""

    source: Named
    target: Named


class Settings(_Answer):
    """What a page that uses the server has to know."""

    char_limit: int
    frontend_timeout: int = 500  # milliseconds without a keystroke after which LibreTranslate's page translates
    api_keys: bool
    key_required: bool
    suggestions: bool = False
    files_translation: bool = True
    supported_files_format: list[str]
    language: Choice


# For these LibreTranslate's clients send no key, and some a GET with a body.
_LISTING: dict[str, Any] = {"body": KeyBody, "verbs": ("GET", "POST"), "is_work": False, "needs_key": False}


class LibreTranslate:
    """Answers the requests of LibreTranslate's clients."""

    def __init__(
        self,
        router: Router,
        files: FileTranslator,
        limits: LimitsConfig,
        server: ServerStatus,
        security: SecurityConfig,
    ) -> None:
        """Answer with this router; raises ConfigError if what the settings say of proxies cannot be used."""
        self._router = router
        self._files = files
        self._limits = limits
        self._has_keys = security.api_keys is not None
        self._proxies = trusted_proxies(security)
        self._server = server

    def pages(self) -> list[Route]:
        """Return the routes that are no calls."""
        return [Route("/health", self._health), Route("/download_file/{name}", self._download)]

    @operation(DIALECT, "/translate", "Translate texts", TranslateAnswer, body=TranslateBody)
    async def translate(self, asked: HttpRequest, call: Call) -> Response:
        body = checked(TranslateBody, asked.fields)
        source = _language(body.source)
        request = TranslationRequest(
            texts=(body.q,) if isinstance(body.q, str) else tuple(body.q),
            source_language=source,
            target_language=_language(body.target),
            format=_FORMATS[body.format or "text"],
            options=self._options(body.alternatives),
            priority=asked.priority,
            allows_same_language=True,
        )
        result = await self._router.translate(request, call)
        warn_of(result.translations, call)
        texts = [translation.text for translation in result.translations]
        detected = [] if source else [self._detected(result, place) for place in range(len(texts))]
        others = [[one.text for one in translation.hypotheses[1:]] for translation in result.translations]
        warnings = [warnings_of(translation) or [] for translation in result.translations]

        def shaped(values: list[Any]) -> Any:
            return values[0] if isinstance(body.q, str) else values

        answer = TranslateAnswer(
            translated_text=shaped(texts),
            detected_language=None if source else shaped(detected),
            alternatives=shaped(others) if body.alternatives else None,
            warnings=shaped(warnings) if any(warnings) else None,
        )
        return answer_with(answer)

    @operation(
        DIALECT, "/translate_file", "Translate a file", FileAnswer, body=FileBody, kinds=(MULTIPART,), takes_files=True
    )
    async def translate_file(self, asked: HttpRequest, call: Call) -> Response:
        body = checked(FileBody, asked.fields)
        wish = TranslationRequest(
            source_language=_language(body.source),
            target_language=_language(body.target),
            priority=asked.priority,
            allows_same_language=True,
        )
        translated = await self._files.translated(body.file, wish, call)
        name = await self._server.keep(translated.file)
        address = f"{self._address(asked.request)}download_file/{name}"
        return answer_with(
            FileAnswer(
                translated_file_url=address,
                warnings=translated.warnings or None,
                remarks=translated.remarks or None,
            )
        )

    @operation(DIALECT, "/detect", "Detect the language of a text", list[Detected], body=DetectBody)
    async def detect(self, asked: HttpRequest, call: Call) -> Response:
        """Answer with no language if none can be told."""
        (found,) = await self._router.detect((checked(DetectBody, asked.fields).q,), call)
        languages = [Detected(confidence=found.confidence * 100, language=found.language)] if found.language else []
        return JSONResponse([one.model_dump(by_alias=True) for one in languages])

    @operation(DIALECT, "/languages", "List the languages", list[Language], **_LISTING)
    async def languages(self, asked: HttpRequest, call: Call) -> Response:
        languages = [
            Language(code=one.code, name=name_of(one.code), targets=list(one.targets))
            for one in offered(self._router.infos(call))
        ]
        return JSONResponse([one.model_dump() for one in languages])

    @operation(DIALECT, "/frontend/settings", "Say what a page needs", Settings, **_LISTING)
    async def frontend_settings(self, asked: HttpRequest, call: Call) -> Response:
        languages = offered(self._router.infos(call))
        target = next((one.targets[0] for one in languages if one.targets), "")
        return answer_with(
            Settings(
                char_limit=self._limits.max_characters,
                api_keys=self._has_keys,
                key_required=self._has_keys,
                supported_files_format=list(SUFFIXES),
                language=Choice(
                    source=Named(code=AUTO, name="Auto Detect"), target=Named(code=target, name=name_of(target))
                ),
            )
        )

    def _address(self, request: Request) -> URL:
        """Return the server's address as the caller has it: with https where a trusted proxy says so."""
        proto = request.headers.get("x-forwarded-proto", "")
        if proto == "https" and self._proxies and self._proxies.are_at(address_of(peer_of(request))):
            return request.base_url.replace(scheme=proto)
        return request.base_url

    def _options(self, alternatives: int) -> TranslateOptions:
        """Return options that give so many alternatives, with a beam that is wide enough for them."""
        if not alternatives:
            return NO_OPTIONS
        beams = [model.info.default_options.beam_size or 1 for model in self._router.translator.catalogue.models]
        return TranslateOptions(num_hypotheses=alternatives + 1, beam_size=max([alternatives + 1, *beams]))

    def _detected(self, result: TranslationResult, place: int) -> Detected:
        """Return the language of a text; where nothing was measured, the one that it was translated from, and 0."""
        translation = result.translations[place]
        if translation.detected_language:
            return Detected(confidence=translation.detection_confidence * 100, language=translation.detected_language)
        return Detected(confidence=0.0, language=self._router.source_of(result))

    async def _health(self, _: Request) -> Response:
        is_ready = await self._server.is_ready()
        return JSONResponse({"status": "ok" if is_ready else "not ready"}, 200 if is_ready else 503)

    async def _download(self, request: Request) -> Response:
        file = await self._server.find(request.path_params["name"])
        if file is None:
            error = {"error": "there is no such file: translated files are kept for some minutes"}
            return JSONResponse(error, DIALECT.statuses["NOT_FOUND"])
        return download(file)


def _language(code: str) -> str:
    return _CODES.get(code, code)
