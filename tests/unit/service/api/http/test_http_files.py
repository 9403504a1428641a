"""Files that are translated in batches, documents that are translated later, and what is said of their texts."""

import asyncio
import time
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any, cast

import pytest

from service.api.http.fields import File, warn_of
from service.api.http.files import (
    KEPT_S,
    LOST_AFTER_S,
    MAX_OWN_FILES,
    MAX_OWN_OPEN,
    FileStore,
    FileTranslator,
    JobStatus,
)
from service.call import Call, Caller
from service.engine.wire import FinishReason
from service.errors import InvalidInput, Overloaded
from service.records import (
    ModelInfo,
    Span,
    TextWarning,
    TranslatedSegment,
    TranslatedText,
    Translation,
    TranslationRequest,
    TranslationResult,
    WarningKind,
)
from service.translate.router import Router

FILE = File("a.txt", b"one\n\ntwo\n\nthree\n")


class BusyRouter:
    """Takes two texts at a time, and refuses the requests of these numbers."""

    def __init__(self, *refused: int) -> None:
        self.translator = SimpleNamespace(limits=SimpleNamespace(max_texts=2, max_message_bytes=100))
        self.num_requests = 0
        self._refused = refused

    def infos(self, _: Call) -> list[ModelInfo]:
        return []

    async def translate(self, request: TranslationRequest, call: Call) -> TranslationResult:
        self.num_requests += 1
        if self.num_requests in self._refused:
            raise Overloaded("full", reason="queue_full", retry_after_s=0.01)
        call.finished_texts = len(request.texts)
        translations = [self.translation_of(text.upper()) for text in request.texts]
        return TranslationResult(translations=translations, model="m", model_version="1", beam_size=1)

    def translation_of(self, text: str) -> Translation:
        found = TranslatedText(text=text, score=0.0, finish_reason=FinishReason.END_OF_SENTENCE, target_tokens=1)
        kinds = (TextWarning(WarningKind.COPIED, "copied", Span(0, 3)),) if text.startswith("TWO") else ()
        return Translation(
            hypotheses=(found,), segments=(TranslatedSegment(source=Span(0, 3), target=Span(0, 3), warnings=kinds),)
        )


async def translated(router: BusyRouter) -> tuple[bytes, Call]:
    now = time.monotonic()
    call = Call(method="m", request_id="r", started=now, deadline=now + 60.0)
    files = FileTranslator(cast("Router", cast("Any", router)))
    translated = await files.translated(FILE, TranslationRequest(target_language="de"), call)
    return translated.file.content, call


async def test_file_that_was_begun_waits_for_room_and_is_counted_once():
    router = BusyRouter(2, 3)

    content, call = await translated(router)

    assert content == b"ONE\n\nTWO\n\nTHREE\n"
    assert router.num_requests == 4
    assert (call.texts, call.finished_texts) == (3, 3)


async def test_file_that_finds_no_room_is_refused_at_once():
    router = BusyRouter(1)

    with pytest.raises(Overloaded):
        await translated(router)
    assert router.num_requests == 1


async def test_file_of_text_has_the_length_of_any_other_text_and_a_package_has_a_limit_of_its_own():
    files = FileTranslator(cast("Router", cast("Any", BusyRouter())))
    now = time.monotonic()
    call = Call(method="m", started=now, deadline=now + 60.0)

    too_long, no_package, large = File("a.txt", b"a" * 101), File("a.docx", b"a" * 101), File("a.docx", b"a" * 200_000)
    for file, message in ((too_long, "has 101 bytes"), (no_package, "no ZIP package"), (large, "no ZIP package")):
        with pytest.raises(InvalidInput, match=message):
            await files.translated(file, TranslationRequest(target_language="de"), call)


async def test_client_has_so_many_files_in_work_and_another_one_still_has_room():
    files = FileTranslator(cast("Router", cast("Any", BusyRouter())))
    now = time.monotonic()
    mine, other = (Call(method="m", caller=Caller(name=name), started=now, deadline=now + 60.0) for name in "ab")
    with ExitStack() as held:
        for _ in range(MAX_OWN_FILES):
            held.enter_context(files.room(mine))
        with pytest.raises(Overloaded, match=f"{MAX_OWN_FILES} files of this client"):
            held.enter_context(files.room(mine))
        with files.room(other):
            pass
        waiting = asyncio.create_task(wait_for_room(files, mine))
        await asyncio.sleep(0)
        assert not waiting.done()
    await waiting


async def wait_for_room(files: FileTranslator, call: Call) -> None:
    async with files.waited_room(call):
        pass


async def test_files_that_are_too_old_are_gone_and_take_no_memory():
    now = 100.0
    kept = FileStore(clock=lambda: now)
    old = await kept.keep(FILE)
    now += KEPT_S / 2
    young = await kept.keep(FILE)
    now += KEPT_S / 2 + 1

    assert (await kept.find(old), await kept.find(young)) == (None, FILE)
    assert list(kept._files) == [young]


OWNER = ("key", "shop")


async def test_job_is_found_by_id_and_key_together():
    jobs = FileStore()
    name, key = await jobs.begin_document(OWNER)
    other, other_key = await jobs.begin_document(OWNER)

    assert await jobs.find_document(name, key) == JobStatus("queued")
    assert [
        await jobs.find_document(name, other_key),
        await jobs.find_document(other, key),
        await jobs.find_document("x", key),
    ] == [None] * 3


async def test_client_has_so_many_open_jobs_and_others_have_theirs():
    jobs = FileStore()
    names = [(await jobs.begin_document(OWNER))[0] for _ in range(MAX_OWN_OPEN)]

    with pytest.raises(Overloaded, match=f"{MAX_OWN_OPEN} documents of this client wait"):
        await jobs.begin_document(OWNER)
    await jobs.begin_document(("key", "other"))
    await jobs.note_document(names[0], JobStatus("done"))
    await jobs.begin_document(OWNER)


async def test_job_that_nothing_is_heard_of_is_lost_and_one_that_is_over_is_forgotten():
    now = 100.0
    jobs = FileStore(clock=lambda: now)
    lost, done = await jobs.begin_document(OWNER), await jobs.begin_document(OWNER)
    await jobs.note_document(done[0], JobStatus("done"))
    now += LOST_AFTER_S + 1
    found = await jobs.find_document(*lost)

    assert found is not None
    assert (found.state, "send it again" in found.message) == ("error", True)
    now += KEPT_S + 1
    assert [await jobs.find_document(*lost), await jobs.find_document(*done)] == [None, None]


def translation(*kinds: WarningKind) -> Translation:
    hypotheses = (TranslatedText(text="x", score=0.0, finish_reason=None, target_tokens=1),)  # type: ignore[arg-type]
    return Translation(
        hypotheses=hypotheses,
        segments=tuple(
            TranslatedSegment(
                source=Span(place, place + 1),
                target=Span(place, place + 1),
                hypotheses=hypotheses,
                warnings=(TextWarning(kind, f"{kind} at {place}", Span(place, place + 1)),),
            )
            for place, kind in enumerate(kinds)
        ),
    )


def test_header_is_short_however_many_warnings_there_are():
    call = Call(method="m", started=time.monotonic(), deadline=time.monotonic() + 60.0)
    assert call.warnings == ""

    warn_of([translation(*WarningKind) for _ in range(1_000)], call)

    assert len(call.warnings) < 500
    assert call.warnings.startswith("copied=1000, empty=1000, ")
    assert call.warnings.count("=") == len(WarningKind)
