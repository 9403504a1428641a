"""The texts of one stream on their way through the pipeline.

A text that admission refuses waits in line, unless it would be too late anyway; one whose engine is lost, or has too
little memory, is tried once more.  Knows neither messages nor how the answers are sent.
"""

import time
from dataclasses import replace

from service.call import Call
from service.errors import DeadlineExceeded, DragomanError, OutOfMemory, Overloaded, TooLong, Unavailable
from service.queue.admission import MIN_RETRY_S, Permit
from service.queue.waiting_lines import WaitingLines
from service.records import Translation, TranslationRequest, TranslationResult
from service.registry.model_info import TextCodec
from service.translation.pipeline import RequestWork
from service.translation.routing import Router

_LAST_MOMENT_S = 0.05  # timers of one moment, here and in an engine, fire in any order


class StreamTranslator:
    """Translates the texts of one stream, any number at a time."""

    def __init__(self, router: Router, lines: WaitingLines, call: Call, permit: Permit) -> None:
        """Nothing is translated yet.

        Args:
            lines: told of everything that leaves admission.
            permit: the stream's, from which each text takes its own.
        """
        self._router = router
        self._pipeline = router.pipeline
        self._lines = lines
        self._call = call
        self._permit = permit
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
        call = self._call.for_text()
        try:
            result = await self._translate(replace(self._settings, texts=(text,)), call)
        except DragomanError as error:
            if isinstance(error, DeadlineExceeded) and time.monotonic() > call.deadline - _LAST_MOMENT_S:
                raise
            self._pipeline.account.text_failed(error)
            error.__traceback__ = None  # its frames lead back to the result: a cycle for each text that fails
            result = TranslationResult(translations=(Translation(error=error),), model=call.model)
        self._call.text_finished(call)
        return result

    async def _translate(self, request: TranslationRequest, call: Call) -> TranslationResult:
        length, limit = len(request.texts[0]), self._pipeline.limits.max_characters
        if length > limit:  # it would wait for more room than there ever is
            message = f"has {length} characters, at most {limit} are accepted"
            raise TooLong(message, field="texts.text", index=0)
        return await self._router.route(request, call, self._in_two_tries)

    async def _in_two_tries(self, request: TranslationRequest, call: Call) -> TranslationResult:
        try:
            return await self._when_admitted(request, call)
        except (Unavailable, OutOfMemory):  # the text is still here
            return await self._when_admitted(request, call)

    async def _when_admitted(self, request: TranslationRequest, call: Call) -> TranslationResult:
        # Whoever waits in one line waits for the same reason: limits are of a caller, of a model and of a class.
        model = self._pipeline.find_model(request, call)
        line = (call.caller.identity, model.info.name, call.priority)
        begun: dict[TextCodec, RequestWork] = {}
        retry_after_s: float | None = None
        if not self._lines.has_line(line):
            try:
                with self._permit.part() as permit:
                    return await self._pipeline.translate_admitted(request, call, permit, begun=begun)
            except Overloaded as error:
                retry_after_s = _pause_s(error)
        with self._lines.queue(line) as place:
            while True:
                await place.turn(retry_after_s)
                try:
                    with self._permit.part() as permit:
                        return await self._pipeline.translate_admitted(
                            request, call, permit, on_room=place.enter, begun=begun
                        )
                except Overloaded as error:
                    retry_after_s = _pause_s(error)
                    place.join()  # it has left the line if an engine was too full for what admission had let in


def _pause_s(refusal: Overloaded) -> float:
    """Return how long the first in line waits at most before it tries again.

    Raises:
        OutOfMemory: an engine had too little memory; to wait for room is of no use.
        DeadlineExceeded: the text would be too late.
    """
    if isinstance(refusal, OutOfMemory):
        raise refusal
    if refusal.reason == "deadline_unattainable":
        raise DeadlineExceeded(str(refusal)) from refusal
    return max(refusal.retry_after_s, MIN_RETRY_S)  # limits.retry_after_s may be 0: it would do nothing but try
