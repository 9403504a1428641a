"""DeepL's glossaries: made, listed, read and deleted by their owner."""

import csv
import io
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field
from starlette.responses import PlainTextResponse, Response

from service.api.http.deepl_documents import RESOURCES
from service.api.http.fields import checked
from service.api.http.languages import offered
from service.api.http.operations import JSON, URLENCODED, HttpRequest, answer_with, operation
from service.call import Call
from service.errors import InvalidInput
from service.records import Term
from service.translate.glossaries import UploadedGlossaries, UploadedGlossary
from service.translate.routing import Router


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
