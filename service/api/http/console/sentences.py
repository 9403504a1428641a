"""The sentences of a text on the console's page: where they are, and each one's translation as soon as it is there."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace

from service.call import Call
from service.errors import DragomanError
from service.records import Span, TextFormat, Translation, TranslationRequest, TranslationResult
from service.text.protected_spans import Alphabet, find_spans
from service.text.segmentation import split
from service.text.segments import Segment
from service.translate.router import Router

MAX_AT_ONCE = 8  # sentences of one text that are in the queue or in the batch

_ANY_CHARACTER = Alphabet(lambda character: character)


def sentences_of(text: str, language: str, text_format: TextFormat) -> tuple[Span, ...]:
    """Return where the sentences of a text are; one with markup is taken as one sentence."""
    if text_format is not TextFormat.PLAIN:
        return (Span(0, len(text)),)
    parts = split(Segment(text, 0, text), language, lambda: find_spans(text, _ANY_CHARACTER))
    return tuple([part.span for part in parts if isinstance(part, Segment)])


async def translate_sentences(
    sentences: Sequence[str], request: TranslationRequest, router: Router, call: Call
) -> AsyncGenerator[tuple[int, TranslationResult]]:
    """Yield the index of each sentence and its result, which has one translation, in the order in which they finish.

    A sentence that cannot be translated has an error of its own.  Who stops reading closes the iterator: what still
    runs is then cancelled.

    Args:
        request: how to translate; its texts are not looked at.
    """
    call.texts, call.priority = len(sentences), call.caller.allowed(request.priority)
    room = asyncio.Semaphore(MAX_AT_ONCE)

    async def translate(index: int) -> tuple[int, TranslationResult]:
        async with room:
            part = call.part(1)
            try:
                return index, await router.translate(replace(request, texts=(sentences[index],)), part)
            except DragomanError as error:
                error.__traceback__ = None  # its frames lead back to the result
                return index, TranslationResult(translations=(Translation(error=error),))
            finally:
                call.join(part)

    tasks = [asyncio.create_task(translate(index)) for index in range(len(sentences))]
    try:
        for finished in asyncio.as_completed(tasks):
            yield await finished
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
