"""The texts of one stream, from their arrival until their answers are sent.

    StreamBuffer      places and ids of texts, and the finished answers
    StreamTranslator  the way of each text to a model

A text keeps its place until its answer is sent.  While no place is free the stream takes in nothing more, so a slow
reader costs places of its own stream and nothing else.  A text that admission refuses waits in line (`CallScheduler`),
unless it would be too late.  A text whose engine is lost, or has too little memory, is tried once more.  This module
knows neither messages nor how answers are sent.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

from service.call import Call
from service.errors import DeadlineExceeded, DragomanError, InvalidInput, OutOfMemory, Unavailable
from service.models.codec import too_long
from service.records import Translation, TranslationRequest, TranslationResult
from service.scheduler.admission import Reservation
from service.translate.router import Router

# A stream takes in no further text while it holds this many characters; with the places it bounds a stream's memory.
MAX_HELD_CHARACTERS = 1 << 18
# More translated characters than this do not share a message: clients accept 4 MiB by default.
MAX_MESSAGE_CHARACTERS = 1 << 16


TranslateText = Callable[[str], Coroutine[Any, Any, TranslationResult]]
Answer: TypeAlias = tuple[int, TranslationResult]  # id of a text and its result, which has one translation


class StreamBuffer:
    """One stream: texts go in on one side, answers come out on the other, in the order in which they finish."""

    def __init__(self, translate: TranslateText, *, max_texts: int) -> None:
        """Begin without texts.

        Args:
            translate: returns the result of one text; an exception ends the stream.
            max_texts: texts without a sent answer that the stream may hold.
        """
        self._translate = translate
        self._max_texts = max_texts
        self._running: dict[int, asyncio.Task[TranslationResult]] = {}
        self._finished: deque[tuple[Answer, int]] = deque()  # with the number of characters of the source
        self._unanswered: set[int] = set()  # ids of those that run or have finished
        self._sending_texts = self._sending_characters = 0  # what the last `answers` gave
        self._held_characters = 0
        self._has_ended = False  # nothing more comes in
        self._on_idle: Callable[[], None] | None = None  # once cancelled
        self._ending: BaseException | None = None  # raised when all is answered
        self._failure: BaseException | None = None  # raised at once
        self._for_sender, self._for_receiver = asyncio.Event(), asyncio.Event()

    @property
    def num_held(self) -> int:
        """Number of texts whose answers are not sent yet."""
        return len(self._running) + len(self._finished) + self._sending_texts

    async def take_in(self, texts: Sequence[tuple[int, str]]) -> None:
        """Start each text when it has a place; return when there is a place for another text.

        Raises:
            InvalidInput: an id is that of a text without an answer.
        """
        self._check_ids([text_id for text_id, _ in texts])
        for text_id, text in texts:
            await self._room()
            self._start(text_id, text)
        await self._room()

    def end_input(self, ending: BaseException | None = None) -> None:
        """Take in nothing more; once all is answered, `answers` raises `ending`, or returns nothing without one."""
        if not self._has_ended:
            self._has_ended, self._ending = True, ending
            self._for_sender.set()

    def fail(self, error: BaseException) -> None:
        """Drop all texts; `answers` raises the first error that `fail` was given."""
        if self._failure is None:
            self._failure = error
            self.cancel()
            self._for_sender.set()

    def cancel(self, then: Callable[[], None] | None = None) -> None:
        """Stop all work, and call `then` when all of it has stopped."""
        self._has_ended = True
        self._on_idle = then or self._on_idle
        for task in self._running.values():
            task.cancel()
        self._tell_if_idle()

    async def answers(self) -> list[Answer]:
        """Return the answers that have finished, as soon as there are some; nothing at the end of the stream.

        They are of one model, and short enough for one message.  The next call says that these answers were sent.

        Raises:
            DragomanError: how the stream ends.
        """
        self._held_characters -= self._sending_characters
        self._sending_texts = self._sending_characters = 0
        self._for_receiver.set()
        while not self._finished:
            if self._failure is not None:
                raise self._failure
            if self._has_ended and not self._running:
                break
            self._for_sender.clear()
            await self._for_sender.wait()
        if self._failure is not None:
            raise self._failure
        if not self._finished and self._ending is not None:
            raise self._ending
        return self._next_batch()

    def _check_ids(self, ids: Sequence[int]) -> None:
        seen = set(self._unanswered)
        for text_id in ids:
            if text_id in seen:
                raise InvalidInput(f"id {text_id} is that of a text without an answer yet", field="texts.id")
            seen.add(text_id)

    async def _room(self) -> None:
        while self.num_held >= self._max_texts or self._held_characters >= MAX_HELD_CHARACTERS:
            self._for_receiver.clear()
            await self._for_receiver.wait()

    def _start(self, text_id: int, text: str) -> None:
        task = asyncio.create_task(self._translate(text))
        self._running[text_id] = task
        self._unanswered.add(text_id)
        self._held_characters += len(text)
        task.add_done_callback(partial(self._settle, text_id, len(text)))

    def _settle(self, text_id: int, characters: int, task: "asyncio.Task[TranslationResult]") -> None:
        del self._running[text_id]
        if task.cancelled():
            self.fail(Unavailable("the server is stopping"))  # where it was not this stream that stopped it
        elif (error := task.exception()) is not None:
            self.fail(error)
        else:
            self._finished.append(((text_id, task.result()), characters))
            self._for_sender.set()
        self._tell_if_idle()

    def _tell_if_idle(self) -> None:
        if not self._running and self._on_idle is not None:
            on_idle, self._on_idle = self._on_idle, None
            on_idle()

    def _next_batch(self) -> list[Answer]:
        batch: list[Answer] = []
        size = 0
        while self._finished:
            (text_id, result), characters = self._finished[0]
            size += sum(len(hypothesis.text) for hypothesis in result.translations[0].hypotheses)
            if batch and (size > MAX_MESSAGE_CHARACTERS or result.model != batch[0][1].model):
                break
            self._finished.popleft()
            self._unanswered.discard(text_id)  # its sender may use it again as soon as it has the answer
            self._sending_texts += 1
            self._sending_characters += characters
            batch.append((text_id, result))
        return batch


_LAST_MOMENT_S = 0.05  # timers of one moment, here and in an engine, fire in any order


class StreamTranslator:
    """Translates the texts of one stream, any number at a time."""

    def __init__(self, router: Router, call: Call, reservation: Reservation) -> None:
        """Nothing is translated yet; the reservation is that of the stream."""
        self._router = router
        self._call = call
        self._reservation = reservation
        self._settings = TranslationRequest()

    def use(self, settings: TranslationRequest) -> None:
        """Translate the texts with these settings.

        Raises:
            NotFound, InvalidInput: no text can be translated with them.
        """
        self._settings = settings
        self._call.priority = self._call.caller.allowed(settings.priority)
        self._router.check(settings, self._call)

    async def translate(self, text: str) -> TranslationResult:
        """Return the answer to one text, also if that is an error of its own.

        Raises:
            DeadlineExceeded: the deadline of the stream has passed.
        """
        translator, call = self._router.translator, self._call.for_text()
        try:
            if len(text) > translator.limits.max_characters:  # it would wait for more room than there ever is
                raise too_long(len(text), "characters", translator.limits.max_characters, "texts.text")
            request = replace(self._settings, texts=(text,))
            result: TranslationResult | None = None
            with suppress(Unavailable, OutOfMemory):
                result = await self._router.translate_admitted(request, call, self._reservation)
            if result is None:
                call = call.part(1)  # what the first try has counted was of no use
                result = await self._router.translate_admitted(request, call, self._reservation)
        except DragomanError as error:
            if isinstance(error, DeadlineExceeded) and time.monotonic() > call.deadline - _LAST_MOMENT_S:
                raise
            translator.usage_meter.text_refused(error)
            error.__traceback__ = None  # its frames lead back to the result: a cycle for each text that fails
            result = TranslationResult(translations=(Translation(error=error),), model=call.model)
        self._call.text_finished(call)
        if (fault := result.translations[0].error) is not None:
            translator.usage_meter.text_failed(fault, result.model)
        return result
