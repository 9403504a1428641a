"""Files that callers send: translated as one call, and kept until they are fetched."""

import asyncio
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import PurePath
from urllib.parse import quote

from starlette.responses import Response

from service.call import Call
from service.documents.draft import FileDraft, Unit
from service.documents.formats import format_of, read_file
from service.errors import InvalidInput, NotFound, Overloaded
from service.http.fields import File
from service.records import Translation, TranslationRequest
from service.registry.model_info import index_of
from service.translation.routing import Router

KEPT_S = 900.0
MAX_KEPT_BYTES = 64 << 20  # of all files; the oldest go first


class TranslatedFiles:
    """Translated files in memory, each under a name that nobody guesses."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._files: dict[str, tuple[float, File]] = {}  # the oldest first

    def keep(self, file: File) -> str:
        """Keep a file for `KEPT_S`, or until others need its room, and return the name to fetch it by."""
        now = self._clock()
        name = secrets.token_urlsafe(24) + PurePath(file.name).suffix.lower()
        self._files[name] = now, file
        num_bytes = sum(len(kept.content) for _, kept in self._files.values())
        for other, (since, kept) in list(self._files.items()):
            if other == name or (num_bytes <= MAX_KEPT_BYTES and now - since <= KEPT_S):
                break
            num_bytes -= len(kept.content)
            del self._files[other]
        return name

    def find(self, name: str) -> File | None:
        """Return the file of this name; None: there is none, or none any more."""
        now = self._clock()
        for other in [other for other, (since, _) in self._files.items() if now - since > KEPT_S]:
            del self._files[other]
        return self._files[name][1] if name in self._files else None


def download(file: File) -> Response:
    """Return the response that a browser saves: never shown, since it may be a page with scripts."""
    headers = {
        "content-disposition": f"attachment; filename*=UTF-8''{quote(file.name, safe='')}",
        "x-content-type-options": "nosniff",
    }
    return Response(file.content, media_type="application/octet-stream", headers=headers)


async def translate_file(file: File, wish: TranslationRequest, call: Call, router: Router) -> bytes:
    """Return a file with its translations; all of its requests are one call, which notes the warnings.

    Args:
        wish: what is asked for, without texts.

    Raises:
        InvalidInput: the file is not of the format that its name says, or a piece of it cannot be translated.
        DragomanError: as for translating.
    """
    draft, wants_links = await asyncio.to_thread(_read, file, wish, _has_scorer(wish, call, router))
    call.priority = call.caller.allowed(wish.priority)
    translations: list[Translation] = []
    for text_format, alike in groupby(draft.units, key=lambda unit: unit.format):
        units = list(alike)
        request = replace(wish, format=text_format, return_alignments=wants_links)
        for some in _batches(units, router.pipeline.limits.max_texts):
            translations += await _translate(some, request, call, router, is_begun=bool(translations))
    written = await asyncio.to_thread(draft.write, translations)
    kinds = [warning.kind for translation in translations for warning in translation.warnings]
    call.warn([*kinds, *(notice.kind for notice in written.notices)])
    return written.content


def _read(file: File, wish: TranslationRequest, has_scorer: bool) -> tuple[FileDraft, bool]:
    try:
        draft = read_file(file.content, format_of(PurePath(file.name)), wish.target_language)
    except ValueError as error:
        raise InvalidInput(f"file: {error}", field="file") from error
    return draft, draft.wants_links and has_scorer


def _has_scorer(wish: TranslationRequest, call: Call, router: Router) -> bool:
    """Return whether a single model translates, and says which words belong together."""
    infos = router.infos(call)
    try:
        source, target = wish.source_language, wish.target_language
        info = infos[index_of(infos, model=None, source_language=source, target_language=target)]
    except NotFound:
        return False
    return bool(source) and info.has_scorer


async def _translate(
    units: Sequence[Unit], request: TranslationRequest, call: Call, router: Router, *, is_begun: bool
) -> Sequence[Translation]:
    """Return the translations of some units; where others were translated before, wait for room as a client would."""
    request = replace(request, texts=tuple(unit.text for unit in units))
    call.texts += len(units)
    result = None
    while result is None:
        part = call.part(len(units))
        try:
            result = await router.translate(request, part)
        except Overloaded as error:
            if not is_begun:
                raise
            await asyncio.sleep(error.retry_after_s)  # at the deadline the call ends
        finally:
            call.join(part, is_next=True)
    for unit, translation in zip(units, result.translations, strict=True):
        fault = translation.error
        if isinstance(fault, InvalidInput):
            raise InvalidInput(fault.about(f"line {unit.line} of the file"), field="file") from fault
        if fault is not None:
            raise fault
    return result.translations


def _batches(units: Sequence[Unit], size: int) -> list[Sequence[Unit]]:
    return [units[begin : begin + size] for begin in range(0, len(units), size)]
